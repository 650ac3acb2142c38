"""When the requests of an open loop arrive. Pure."""

from __future__ import annotations

import math
import random
from collections.abc import Iterator


def arrivals(rate_per_s: float, *, seed: int, ramp_s: float = 0.0) -> Iterator[float]:
    """Seconds from the start of one Poisson process after another's event, without end.

    While the ramp lasts, the rate grows from 0 to ``rate_per_s`` in a straight line: the gaps are drawn from
    the unit exponential and mapped through the inverse of the expected count, so there is one draw a request
    whatever the ramp, and a seed gives the same loads again.
    """
    draws = random.Random(f"arrivals {seed}")
    expected = 0.0
    in_ramp = rate_per_s * ramp_s / 2
    while True:
        expected += draws.expovariate(1.0)
        if expected < in_ramp:
            yield math.sqrt(2 * expected * ramp_s / rate_per_s)
        else:
            yield ramp_s / 2 + expected / rate_per_s
