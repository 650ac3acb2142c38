"""What an endpoint costs, from catalogued prices; a price that is not known stays unknown."""

from __future__ import annotations

from dataclasses import dataclass

from peagle_sm.core.plan.resolve import Draft


@dataclass(frozen=True)
class Cost:
    """USD; None where no price is known. ``max_usd`` is what the whole lifetime can cost.

    ``most_usd_per_hour`` is the price with as many instances as autoscaling may come to.
    """

    usd_per_hour: float | None
    usd_per_day: float | None
    max_usd: float | None
    source: str
    most_usd_per_hour: float | None = None


def cost_of(draft: Draft) -> Cost:
    """Price the instances; among several types the dearest counts, since any of them may be given."""
    if draft.context.local:
        return Cost(0.0, 0.0, 0.0, "local: nothing is billed", 0.0)
    prices = {name: draft.catalog.price(name, draft.region) for name in draft.instance_types}
    unknown = [name for name, price in prices.items() if price is None]
    known = [price for price in prices.values() if price is not None]
    if unknown or not known:
        return Cost(None, None, None, f"no price known for {', '.join(unknown)} in {draft.region}")
    dearest = max(known, key=lambda price: price.usd_per_hour)
    hourly = dearest.usd_per_hour * draft.spec.placement.instance_count
    most = dearest.usd_per_hour * draft.spec.instance_bounds[1]
    kind = "SageMaker on demand" if dearest.kind == "sagemaker" else "EC2 on demand, NOT SageMaker's price"
    source = f"{dearest.instance} in {dearest.region}: {kind}, {dearest.source}, {dearest.date}"
    return Cost(
        usd_per_hour=round(hourly, 4),
        usd_per_day=round(hourly * 24, 2),
        max_usd=round(most * draft.spec.lifecycle.max_lifetime_hours, 2),
        source=source,
        most_usd_per_hour=round(most, 4),
    )
