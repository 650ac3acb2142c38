"""Student's t: how far an interval from few units must reach. Pure."""

from __future__ import annotations

import math
from functools import lru_cache

_TINY = 1e-300


@lru_cache(maxsize=4096)
def quantile(freedom: float, confidence: float = 0.95) -> float:
    """The t that a share ``confidence`` of Student's distribution lies within, either side of 0.

    Args:
        freedom: degrees of freedom, above 0, whole or not; infinite is the normal distribution.
        confidence: between 0 and 1.

    Raises:
        ValueError: either is out of its range.
    """
    if not freedom > 0 or not 0 < confidence < 1:
        raise ValueError(f"freedom must be above 0 and confidence within 0 and 1: {freedom}, {confidence}")
    low, high = 0.0, 1.0
    while within(high, freedom) < confidence:
        low, high = high, high * 2
    while high - low > 1e-9 * high:
        middle = (low + high) / 2
        low, high = (middle, high) if within(middle, freedom) < confidence else (low, middle)
    return high


def within(t: float, freedom: float) -> float:
    """The share of Student's distribution between ``-t`` and ``t``."""
    if math.isinf(freedom):
        return math.erf(t / math.sqrt(2))
    return 1 - _incomplete_beta(freedom / 2, 0.5, freedom / (freedom + t * t))


def _incomplete_beta(a: float, b: float, x: float) -> float:
    """The regularised incomplete beta function (DLMF 8.17), by its continued fraction."""
    if x <= 0 or x >= 1:
        return float(x >= 1)
    if x > (a + 1) / (a + b + 2):  # there the fraction converges quickly for the mirrored case
        return 1 - _incomplete_beta(b, a, 1 - x)
    log_front = math.lgamma(a + b) - math.lgamma(a) - math.lgamma(b) + a * math.log(x) + b * math.log1p(-x)
    return math.exp(log_front) / a * _fraction(a, b, x)


def _fraction(a: float, b: float, x: float) -> float:
    """Lentz's evaluation of DLMF 8.17.22."""
    c, d = 1.0, 1 / _away_from_zero(1 - (a + b) * x / (a + 1))
    value = d
    for m in range(1, 500):
        even = m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m))
        odd = -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1))
        for term in (even, odd):
            d = 1 / _away_from_zero(1 + term * d)
            c = _away_from_zero(1 + term / c)
            value *= c * d
        if abs(c * d - 1) < 1e-14:
            break
    return value


def _away_from_zero(value: float) -> float:
    return value if abs(value) > _TINY else _TINY
