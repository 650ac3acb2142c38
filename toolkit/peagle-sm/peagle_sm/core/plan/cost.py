"""Cost of an endpoint: per hour, and while it is off. An unknown price stays unknown."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:  # the command line prices what rests, and must not load the spec for it
    from peagle_sm.core.plan.resolve import Draft


@dataclass(frozen=True)
class Cost:
    """Cost in USD, None if unknown; ``max_usd`` is the most for the whole lifetime.

    ``most_usd_per_hour`` is the price with autoscaling's maximum of instances. ``at_most``: the instance's
    price is an upper bound, since SageMaker's is not known.
    """

    usd_per_hour: float | None
    usd_per_day: float | None
    max_usd: float | None
    source: str
    most_usd_per_hour: float | None = None
    at_most: bool = False


def cost_of(draft: Draft) -> Cost:
    """Price the instances; of several types the most expensive counts."""
    if draft.context.local:
        return Cost(0.0, 0.0, 0.0, "local: nothing is billed", 0.0)
    prices = {name: draft.price(name) for name in draft.instance_types}
    unknown = [name for name, price in prices.items() if price is None]
    known = [price for price in prices.values() if price is not None]
    if unknown or not known:
        reasons = dict.fromkeys(
            draft.context.prices[name].why for name in unknown if name in draft.context.prices
        )
        because = f" ({'; '.join(reasons)})" if reasons else ""
        return Cost(None, None, None, f"no price known for {', '.join(unknown)} in {draft.region}{because}")
    dearest = max(known, key=lambda price: price.counted_usd_per_hour)
    hourly = dearest.counted_usd_per_hour * draft.spec.placement.instance_count
    most = dearest.counted_usd_per_hour * draft.spec.instance_bounds[1]
    return Cost(
        usd_per_hour=round(hourly, 4),
        usd_per_day=round(hourly * 24, 2),
        max_usd=round(most * draft.spec.lifecycle.max_lifetime_hours, 2),
        source=str(dearest),
        most_usd_per_hour=round(most, 4),
        at_most=dearest.at_most,
    )


def rest_costs(stack: str | None, usd_per_hour: float | None) -> str:
    """Describe an endpoint's cost while it is off; ``usd_per_hour`` is its price on.

    The local SageMaker's price is 0. Config and model of an endpoint without a stack are free. A stack keeps
    a key (1 USD a month), alarms (0.10 USD per metric), a dashboard (3 USD after the account's first three):
    docs/how-to/stacks.md, from AWS's public list of November 2026.
    """
    if stack is None or usd_per_hour == 0:
        return "it costs nothing"
    return f"no instance is billed; the key, alarms and dashboard of {stack} cost a few USD a month"
