"""The tests behind the verdicts, and what they can find; pure, standard library only."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from functools import lru_cache
from statistics import NormalDist

ALPHA = 1e-4  #: chance of a false alarm that each statistical test allows itself
POWER = 0.9  #: what "is caught" means where a check states its power
_NORMAL = NormalDist()


def quantile(values: Iterable[float], share: float) -> float:
    """The value that ``share`` of ``values`` do not exceed (the next one up); 0.0 of nothing."""
    ordered = sorted(values)
    if not ordered:
        return 0.0
    return ordered[min(len(ordered) - 1, math.ceil(share * len(ordered)))]


@lru_cache(maxsize=4096)
def fisher_greater(hits: int, of: int, base_hits: int, base_of: int) -> float:
    """One-sided Fisher: the chance of so many hits or more, were both groups alike."""
    total, drawn = of + base_of, hits + base_hits
    if not of or not base_of:
        return 1.0
    whole = _log_choose(total, drawn)
    return min(
        1.0,
        math.fsum(
            math.exp(_log_choose(of, k) + _log_choose(base_of, drawn - k) - whole)
            for k in range(hits, min(of, drawn) + 1)
            if drawn - k <= base_of
        ),
    )


def mcnemar_greater(only_mine: int, only_its: int) -> float:
    """One-sided exact McNemar on pairs: the chance of ``only_mine`` or more, were both sides alike.

    ``only_mine`` pairs show the event on one side alone, ``only_its`` on the other alone.
    """
    pairs = only_mine + only_its
    return min(1.0, _at_least(only_mine, pairs, 0.5)) if only_mine else 1.0


@lru_cache(maxsize=256)
def mcnemar_rate_found(of: int, base_hits: int) -> float | None:
    """The smallest true rate among ``of`` pairs that `mcnemar_greater` finds with `POWER`; None when none is.

    The other side shows the event in ``base_hits`` pairs, independently.
    """
    base = base_hits / of if of else 0.0
    for percent in range(1, 101):
        rate = percent / 100
        mine, its = rate * (1 - base), base * (1 - rate)
        quiet = math.floor(of * its + _NORMAL.inv_cdf(POWER) * math.sqrt(of * its * (1 - its)))
        needed = next((k for k in range(of + 1) if mcnemar_greater(k, quiet) < ALPHA), None)
        if needed is not None and _at_least(needed, of, mine) >= POWER:
            return rate
    return None


def chi_square_z(statistic: float, freedom: int) -> float:
    """A chi-square statistic as a standard normal (Wilson and Hilferty)."""
    if not freedom:
        return 0.0
    spread = 2 / (9 * freedom)
    return float(((statistic / freedom) ** (1 / 3) - (1 - spread)) / math.sqrt(spread))


def _log_choose(n: int, k: int) -> float:
    return math.lgamma(n + 1) - math.lgamma(k + 1) - math.lgamma(n - k + 1)


def self_normalised(differences: Sequence[float]) -> float:
    """Sum over the root of the sum of squares.

    For differences that are symmetric about 0 and independent, it exceeds t with a chance of at most
    exp(-t^2 / 2), whatever their sizes (Hoeffding on the signs): prompts may differ as they like.
    """
    scale = math.sqrt(math.fsum(d * d for d in differences))
    return math.fsum(differences) / scale if scale else 0.0


def self_normalised_limit(alpha: float = ALPHA) -> float:
    """The bound that `self_normalised` exceeds with a chance of at most ``alpha``."""
    return math.sqrt(2 * math.log(1 / alpha))


def z_limit(alpha: float = ALPHA) -> float:
    """Two-sided bound of a standard normal."""
    return _NORMAL.inv_cdf(1 - alpha / 2)


def shift_found(variance: float, count: int, *, alpha: float = ALPHA, power: float = POWER) -> float:
    """The smallest shift of a mean that a one-sample Z test finds with ``power``.

    ``variance`` is the sum of the ``count`` single variances. Infinite for nothing.
    """
    if count == 0:
        return math.inf
    return (z_limit(alpha) + _NORMAL.inv_cdf(power)) * math.sqrt(variance) / count


def rate_found(units: int, *, power: float = POWER) -> float:
    """The smallest share of ``units`` that, if wrong each by chance, shows at least one with ``power``."""
    return 1.0 if units == 0 else 1 - (1 - power) ** (1 / units)


@lru_cache(maxsize=256)
def fisher_rate_found(of: int, base_hits: int, base_of: int) -> float | None:
    """The smallest true rate that `fisher_greater` finds with `POWER` at `ALPHA`; None when none is.

    ``base_hits`` of ``base_of`` is what the other group happened to show.
    """
    needed = next((k for k in range(of + 1) if fisher_greater(k, of, base_hits, base_of) < ALPHA), None)
    if needed is None:
        return None
    for percent in range(1, 101):
        if _at_least(needed, of, percent / 100) >= POWER:
            return percent / 100
    return None


def _at_least(needed: int, of: int, rate: float) -> float:
    if rate >= 1:
        return 1.0
    return 1 - math.fsum(
        math.exp(_log_choose(of, k) + k * math.log(rate) + (of - k) * math.log1p(-rate))
        for k in range(needed)
    )


def excess_found(base: float) -> int:
    """How many wrong tokens, each in another prompt, beside ``base`` expected ones `self_normalised` finds.

    Solves x = (t + z) sqrt(x + 2 base): the variance is that of both counts.
    """
    reach = (self_normalised_limit() + _NORMAL.inv_cdf(POWER)) ** 2
    return math.ceil((reach + math.sqrt(reach * reach + 8 * reach * base)) / 2)
