"""Cost of an endpoint: per hour, while it is off, and per million tokens.

An unknown price stays unknown. `fleet_for` sizes the fleet for a demand.
"""

from __future__ import annotations

import math
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


SECONDS_PER_HOUR = 3600
HEADROOM = 0.3
"""Default share of the measured throughput to keep free for peaks and a lost instance."""


def usd_per_million_tokens(usd_per_hour: float, otps: float) -> float | None:
    """Return USD per million output tokens at constant ``otps`` (tokens per second).

    None if ``otps`` is 0. Idle hours cost the same and produce no tokens: at half the use the figure doubles.
    """
    return usd_per_hour / (otps * SECONDS_PER_HOUR) * 1e6 if otps > 0 else None


@dataclass(frozen=True)
class Serving:
    """Throughput of one copy of a model at one measured load.

    A copy is the unit of scaling: an instance, or one copy of an inference component.
    ``copies_per_instance`` copies share an instance's price; ``gpus`` is that of one copy, None if unknown.
    """

    otps: float
    requests_per_s: float
    usd_per_instance_hour: float | None
    copies_per_instance: int = 1
    gpus: int | None = None


@dataclass(frozen=True)
class Demand:
    """Load to serve, one of the two rates; ``headroom`` is the free share to keep."""

    otps: float | None = None
    requests_per_s: float | None = None
    headroom: float = HEADROOM

    def __post_init__(self) -> None:
        if (self.otps is None) == (self.requests_per_s is None):
            raise ValueError("a demand is either tokens per second or requests per second")
        if not 0 <= self.headroom < 1:
            raise ValueError(f"headroom: found {self.headroom}; allowed: 0 or more, and less than 1")


@dataclass(frozen=True)
class Fleet:
    """Copies and instances for a demand; ``use`` is the used share of capacity."""

    copies: int
    instances: int
    gpus: int | None
    usd_per_hour: float | None
    use: float


def fleet_for(demand: Demand, serving: Serving) -> Fleet | None:
    """Size the fleet for ``demand`` with its headroom; None if throughput is 0."""
    demanded = demand.otps if demand.otps is not None else demand.requests_per_s
    per_copy = serving.otps if demand.otps is not None else serving.requests_per_s
    if demanded is None or per_copy <= 0:
        return None
    # The division's own rounding must not buy another instance.
    copies = max(1, math.ceil(demanded / (per_copy * (1 - demand.headroom)) - 1e-9))
    instances = math.ceil(copies / serving.copies_per_instance)
    price = serving.usd_per_instance_hour
    return Fleet(
        copies=copies,
        instances=instances,
        gpus=None if serving.gpus is None else copies * serving.gpus,
        usd_per_hour=None if price is None else round(instances * price, 4),
        use=demanded / (copies * per_copy),
    )
