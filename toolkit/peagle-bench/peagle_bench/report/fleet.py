"""Cost of a million tokens, and the fleet for a demand. Pure.

An unknown price stays unknown.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

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
