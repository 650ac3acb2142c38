"""Hourly price of measured instances: AWS's price list, else the catalogue, else the endpoint's tag."""

from __future__ import annotations

from dataclasses import dataclass

from peagle_sm.aws.control.prices import LOCAL, find_listed
from peagle_sm.aws.session.session import Session
from peagle_sm.core.catalog import Catalog, load_catalog
from peagle_sm.core.plan.tags_and_schedules import USD_PER_HOUR
from peagle_sm.core.prices import NOT_ASKED, choose_price


@dataclass(frozen=True)
class HourlyPrice:
    """On-demand USD per hour of ``instances`` instances; None if unknown.

    ``source`` is the price's source, or why there is no price; ``note`` is why the price is not from AWS.
    """

    usd_per_hour: float | None
    source: str
    note: str | None = None


def hourly(
    session: Session | None,
    instance_type: str | None,
    instances: int = 1,
    *,
    region: str | None = None,
    catalog: Catalog | None = None,
    planned: float | None = None,
) -> HourlyPrice:
    """Price ``instances`` of ``instance_type`` in ``region`` (None: the session's).

    Without a session only the catalogue is used. ``planned`` is the price of one in the endpoint's tag, which
    counts as the spec's own figure.
    """
    if session is not None and session.is_local:
        return HourlyPrice(0.0, LOCAL)
    place = region or (session.region if session else None)
    if instance_type is None or place is None:
        missing = "instance type" if instance_type is None else "region"
        return HourlyPrice(None, f"no price: the {missing} is not known")
    listed = NOT_ASKED if session is None else find_listed(session, instance_type, place)
    bound = (catalog or load_catalog()).price(instance_type, place)
    price = choose_price(instance_type, place, bound, listed, planned)
    if price is not None and price.kind == "spec":
        price = price.model_copy(update={"source": f"the endpoint's tag {USD_PER_HOUR}"})
        # If the plan counted the upper bound, too, then the bound's source says more than the tag.
        if bound is not None and abs(bound.counted_usd_per_hour - price.usd_per_hour) < 0.005:
            price = bound
    note = listed.why or None
    if price is None:
        return HourlyPrice(None, f"no price known for {instance_type} in {place}", note)
    source = f"{instances} x {price}" if instances != 1 else str(price)
    return HourlyPrice(round(price.counted_usd_per_hour * instances, 4), source, note)
