"""Costs of measured points: USD per million output tokens, and the fleet for a demand. Pure.

The caller gives prices as a function of the arm. A price of 0 means that nothing is billed (the local
SageMaker), so no cost is derived from it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from peagle_bench.compare.confidence_intervals import ratio
from peagle_bench.dialogues import FEWEST_CONVERSATIONS
from peagle_bench.load.points import MOST_FAILED, Objective, is_short, is_withheld
from peagle_bench.report.fleet import Demand, Fleet, Serving, fleet_for, usd_per_million_tokens
from peagle_bench.results.records import ArmRecord, Interval, Load, PointRecord, RequestRecord
from peagle_sm.core.catalog import Catalog, load_catalog

Pricing = Callable[[ArmRecord], tuple[float | None, str]]
"""USD per hour of an arm's whole endpoint (None if unknown), and the source of the price."""


USED = 0.3
"""Default share of a day's capacity that is used: busy by day, quiet at night."""


def recorded(arm: ArmRecord) -> tuple[float | None, str]:
    """Return the price recorded with the measurement."""
    return arm.usd_per_hour, arm.price_source or "no price recorded"


@dataclass(frozen=True)
class CostRow:
    """Cost of one arm under one load.

    ``usd_per_hour`` is the arm's share of its endpoint's price. ``usd_per_million`` assumes full use,
    ``usd_low`` and ``usd_high`` are its 95% confidence interval over requests of this deployment (None if the
    file has no requests), ``usd_used`` assumes that only ``used`` of the capacity is used. ``misses`` lists
    missed objectives, failed requests and a window that is too short.
    """

    arm: ArmRecord
    load: Load
    otps: float
    usd_per_hour: float | None
    usd_per_million: float | None
    price_source: str
    misses: tuple[str, ...]
    fleet: Fleet | None
    usd_low: float | None = None
    usd_high: float | None = None
    used: float = USED
    failed: float = 0.0  #: share of failed requests
    label: str = ""  #: the arm's name for a reader
    run: str = ""  #: name of its run, if there are several

    @property
    def usd_used(self) -> float | None:
        """USD per million output tokens if ``used`` of the capacity is used; idle hours cost the same."""
        return None if self.usd_per_million is None else self.usd_per_million / self.used


def rate_interval(requests: Sequence[RequestRecord]) -> Interval | None:
    """Compute tokens per second of a request, with its interval over conversations; None with too few.

    Requests in one batch are not independent, so at high concurrency it is too narrow.
    """
    units: dict[str | int, tuple[float, float]] = {}
    for number, request in enumerate(requests):
        if request.error is None:
            unit = request.conversation or number
            tokens, seconds = units.get(unit, (0.0, 0.0))
            duration = request.done_s - request.sent_s
            units[unit] = tokens + (request.output_tokens or 0), seconds + duration
    try:
        return ratio([units], (1, -1)) if len(units) >= FEWEST_CONVERSATIONS else None
    except ValueError:  # no tokens
        return None


def cost_rows(
    arms: Iterable[ArmRecord],
    points: Iterable[PointRecord],
    *,
    pricing: Pricing = recorded,
    demand: Demand | None = None,
    objective: Objective | None = None,
    catalog: Catalog | None = None,
    label_of: Callable[[str], str] = lambda name: name,
    run: str = "",
    requests_of: Callable[[PointRecord], Sequence[RequestRecord]] = lambda point: (),
    used: float = USED,
) -> tuple[CostRow, ...]:
    """Price every point that is not withheld; control arms are left out."""
    known = {arm.name: arm for arm in arms if not arm.control}
    rows = []
    for point in points:
        arm = known.get(point.arm)
        if arm is None or is_withheld(point.client):
            continue
        usd, source = pricing(arm)
        serving, note = serving_of(arm, point, usd, catalog or load_catalog())
        price = serving.usd_per_instance_hour
        share = None if price is None else price / serving.copies_per_instance
        million = None if share is None else usd_per_million_tokens(share, serving.otps)
        rate = None if million is None else rate_interval(requests_of(point))
        rows.append(
            CostRow(
                arm=arm,
                load=point.load,
                otps=point.otps,
                usd_per_hour=None if share is None else share * _copies(arm),
                usd_per_million=million,
                usd_low=million * rate.value / rate.high if million and rate else None,
                usd_high=million * rate.value / rate.low if million and rate else None,
                used=used,
                failed=sum(point.errors.values()) / point.requests if point.requests else 0.0,
                price_source=note or source,
                misses=(*faults_of(point), *(objective.misses(point) if objective else ())),
                fleet=fleet_for(demand, serving) if demand else None,
                label=label_of(arm.name),
                run=run,
            )
        )
    return tuple(rows)


def faults_of(point: PointRecord) -> tuple[str, ...]:
    """List the reasons why a cost may be too low: failed requests, and a rate that may be too high."""
    failed = sum(point.errors.values())
    faults = (
        [f"{failed} of {point.requests} requests failed"] if failed > MOST_FAILED * point.requests else []
    )
    return (*faults, *(["the window is too short"] if is_short(point) else []))


def _copies(arm: ArmRecord) -> int:
    return (arm.copies or 1) if arm.component else max(1, arm.instance_count)


def serving_of(
    arm: ArmRecord, point: PointRecord, usd_per_hour: float | None, catalog: Catalog
) -> tuple[Serving, str | None]:
    """Return what one copy of ``arm`` served at ``point``, and a note if its price is unknown.

    A load is assumed to spread evenly over an endpoint's instances, and over a component's copies. The price
    of a component's copy is the instance's divided by the number of copies that fit on it by GPUs.
    """
    count = max(1, arm.instance_count)
    price = usd_per_hour / count if usd_per_hour else None
    entry = catalog.instances.get(arm.instance_type or "")
    gpus = entry.gpu_count if entry and entry.gpu_count else None
    if arm.component is None:
        return Serving(point.otps / count, point.requests_per_s / count, price, 1, gpus), None
    fits = gpus // arm.gpus if gpus and arm.gpus else 0
    copies, note = arm.copies or 1, None
    if not fits or arm.copies is None:
        unknown = "the number of its copies" if fits else "its share of the instance's GPUs"
        price, note = None, f"component {arm.component}: {unknown} is unknown"
    return Serving(point.otps / copies, point.requests_per_s / copies, price, max(1, fits), arm.gpus), note


def cheapest(rows: Sequence[CostRow]) -> CostRow | None:
    """Choose the row with the lowest cost for the demand, or per million tokens without a demand.

    Rows with more than 1% failed requests, a window that is too short, a missed objective or no price are
    excluded; None if none is left.
    """
    able = [row for row in rows if not row.misses and _money(row) is not None]
    return min(able, key=lambda row: (_money(row) or 0.0, -row.otps), default=None)


def _money(row: CostRow) -> float | None:
    return row.usd_per_million if row.fleet is None else row.fleet.usd_per_hour
