"""Confidence interval of a ratio of sums, over prompts or time blocks and over deployments. Pure.

Every figure compared here is a product of sums to the power 1 or -1 (tokens / seconds of one arm over the
same of the other), so its logarithm is a signed sum of logarithms of column sums. The interval is built in
the logarithm:

* over units (prompts, or time blocks): the delete-one jackknife, with Student's t for the *effective*
  number of units (Kish: the squared sum of the weights over the sum of their squares), since one answer of
  1,024 tokens outweighs twenty answers of 30 tokens. With few units the log ratio is skewed: its
  spread is then small exactly when it is far off, and an equal arm counts as better in 3.1% instead of 2.5%.
  Johnson's correction of t for skewness (JASA 73, 1978) widens that end; it never narrows the other, since
  the skewness is itself an estimate;
* over deployments: the spread of the log ratio from deployment to deployment, with Student's t;
* both together: the same prompts go to every deployment, so the two spreads are independent, and the
  squares of the widths add.

Seeded simulation checks the coverage (tests/bench/compare/test_coverage.py): from 20 prompts on the
jackknife covers as often as a bootstrap over prompts; with fewer prompts it is closer to 95%.

A share (identical answers, accepted draft tokens) has an exact interval in place of these: `share_of` for
independent prompts, `share_over_units` if each prompt brings many draws that resemble each other.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

from peagle_bench.results.records import Interval

_TINY = 1e-300
_MODERATE = 2.5  #: t up to which the correction for skewness, a short series, is good
_WIDEST = 100.0  #: of an interval, on each side of a log ratio


@lru_cache(maxsize=4096)
def t_quantile(freedom: float, confidence: float = 0.95) -> float:
    """Return the two-sided quantile t of Student's distribution for ``confidence``.

    Args:
        freedom: degrees of freedom above 0, also fractional; infinity gives the normal distribution.
        confidence: between 0 and 1.

    Raises:
        ValueError: an argument is out of range.
    """
    if not freedom > 0 or not 0 < confidence < 1:
        raise ValueError(f"freedom must be above 0, confidence between 0 and 1: {freedom}, {confidence}")
    t, step = 0.0, math.inf
    # Newton's method: above 0 the distribution is concave, so that each step ends below the quantile.
    while step > 1e-12 * t:
        step = (confidence - t_within(t, freedom)) / (2 * _t_density(t, freedom))
        t += step
    return t


def _t_density(t: float, freedom: float) -> float:
    if math.isinf(freedom):
        return math.exp(-t * t / 2) / math.sqrt(2 * math.pi)
    front = math.exp(math.lgamma((freedom + 1) / 2) - math.lgamma(freedom / 2))
    return front / math.sqrt(freedom * math.pi) * math.exp(-(freedom + 1) / 2 * math.log1p(t * t / freedom))


def t_within(t: float, freedom: float) -> float:
    """Return the probability that Student's t is between ``-t`` and ``t``."""
    if math.isinf(freedom):
        return math.erf(t / math.sqrt(2))
    return 1 - _incomplete_beta(freedom / 2, 0.5, freedom / (freedom + t * t))


def _incomplete_beta(a: float, b: float, x: float) -> float:
    """Compute the regularised incomplete beta function (DLMF 8.17) by its continued fraction."""
    if x <= 0 or x >= 1:
        return float(x >= 1)
    if x > (a + 1) / (a + b + 2):  # there the fraction converges quickly for the mirrored case
        return 1 - _incomplete_beta(b, a, 1 - x)
    log_front = math.lgamma(a + b) - math.lgamma(a) - math.lgamma(b) + a * math.log(x) + b * math.log1p(-x)
    return math.exp(log_front) / a * _fraction(a, b, x)


def _fraction(a: float, b: float, x: float) -> float:
    """Evaluate the continued fraction of DLMF 8.17.22 by Lentz's method."""
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


CONFIDENCE = 0.95
FEWEST_UNITS = 2  #: prompts or blocks that an interval needs

Row = Sequence[float]  #: the columns of one unit
Signs = Sequence[int]  #: one a column: 1 multiplies, -1 divides, 0 leaves it out
Table = Mapping[Any, Row]  #: units by id, of one deployment


@dataclass(frozen=True)
class Spread:
    """Variance of a log ratio, its degrees of freedom, and the skewness of the log ratio."""

    variance: float
    freedom: float
    skewness: float = 0.0

    def widths(self, confidence: float) -> tuple[float, float]:
        """Compute the widths of the interval below and above the log ratio."""
        t = t_quantile(round(self.freedom, 3), confidence)
        shift = self.skewness * (1 + 2 * min(t, _MODERATE) ** 2) / 6
        error = math.sqrt(self.variance)
        return (t + max(0.0, -shift)) * error, (t + max(0.0, shift)) * error


def log_value(rows: Iterable[Row], signs: Signs) -> float:
    """Compute the logarithm of the product of column sums, each to the power of its sign.

    Raises:
        ValueError: a column with a sign sums to 0, so the ratio is undefined.
    """
    sums = _sums(rows, len(signs))
    return _log(sums, signs)


def _sums(rows: Iterable[Row], columns: int) -> list[float]:
    listed = list(rows)
    return [math.fsum(row[column] for row in listed) for column in range(columns)]


def _log(sums: Sequence[float], signs: Signs) -> float:
    if any(sign and value <= 0 for value, sign in zip(sums, signs, strict=True)):
        raise ValueError("the sum of a column is 0, so the ratio is undefined")
    # fsum: the ratio of two identical arms must be exactly 1.
    return math.fsum(sign * math.log(value) for value, sign in zip(sums, signs, strict=True) if sign)


def over_units(rows: Sequence[Row], signs: Signs) -> Spread:
    """Estimate the sampling variance of :func:`log_value` over units by the jackknife.

    Raises:
        ValueError: there are fewer than two units, or only one unit contributes to a column.
    """
    count = len(rows)
    if count < FEWEST_UNITS:
        raise ValueError(f"an interval needs at least {FEWEST_UNITS} units, found {count}")
    sums = _sums(rows, len(signs))
    left = [_log([s - x for s, x in zip(sums, row, strict=True)], signs) for row in rows]
    weights = _weights(rows, signs)
    mean = math.fsum(left) / count
    parts = [mean - value for value in left]
    variance = (count - 1) / count * math.fsum(part**2 for part in parts)
    return Spread(variance, max(1.0, _effective(weights) - 1), _skewness(parts, weights))


def _weights(rows: Sequence[Row], signs: Signs) -> list[float]:
    """Return each unit's mean share of the columns with a sign; the shares sum to 1."""
    signed = [(column, total) for column, total in enumerate(_sums(rows, len(signs))) if signs[column]]
    return [math.fsum(row[column] / total for column, total in signed) / len(signed) for row in rows]


def _effective(weights: Sequence[float]) -> float:
    """Compute Kish's effective number of units."""
    return math.fsum(weights) ** 2 / math.fsum(weight**2 for weight in weights)


def _skewness(parts: Sequence[float], weights: Sequence[float]) -> float:
    """Estimate the skewness of a log ratio from what each unit contributes to it.

    A unit's deviation is its part over its weight. The sample's skewness is too small for few units; the
    factor is that of Fisher and Pearson's G1, for the effective number of units.
    """
    units = [(part, weight) for part, weight in zip(parts, weights, strict=True) if weight > 0]
    count, second = _effective(weights), math.fsum(part**2 / weight for part, weight in units)
    if count <= 3 or second <= 0:
        return 0.0
    factor = math.sqrt(count * (count - 1)) / (count - 2)
    of_unit = factor * math.fsum(part**3 / weight**2 for part, weight in units) / math.pow(second, 1.5)
    squares, cubes = (math.fsum(weight**power for weight in weights) for power in (2, 3))
    return of_unit * cubes / math.pow(squares, 1.5)


def over_deployments(tables: Sequence[Table], signs: Signs) -> Spread:
    """Estimate the variance of :func:`log_value` over deployments.

    Raises:
        ValueError: there are fewer than two deployments.
    """
    count = len(tables)
    if count < 2:
        raise ValueError(f"an interval over deployments needs at least 2, found {count}")
    values = [log_value(table.values(), signs) for table in tables]
    mean = math.fsum(values) / count
    squares = math.fsum((value - mean) ** 2 for value in values)
    return Spread(squares / (count - 1) / count, count - 1)


def pooled(tables: Sequence[Table]) -> list[Row]:
    """Sum each unit's rows over the deployments, in the order of first appearance."""
    rows: dict[Hashable, list[float]] = {}
    for table in tables:
        for unit, row in table.items():
            kept = rows.get(unit)
            rows[unit] = list(row) if kept is None else [a + b for a, b in zip(kept, row, strict=True)]
    return list(rows.values())


def widths(spreads: Sequence[Spread], confidence: float) -> tuple[float, float]:
    """Combine independent spreads into the widths of the interval below and above the log ratio.

    Each is the root of the sum of squares. Satterthwaite's degrees of freedom for the summed variance give a
    narrower interval that covers only 89% with two deployments (simulated): a spread that is small by chance
    contributes many degrees of freedom.
    """
    reaches = [spread.widths(confidence) for spread in spreads]
    return math.hypot(*(below for below, _ in reaches)), math.hypot(*(above for _, above in reaches))


def ratio(tables: Sequence[Table], signs: Signs, confidence: float = CONFIDENCE) -> Interval:
    """Compute the ratio of sums over all deployments, with its confidence interval.

    Args:
        tables: one per deployment; the same id in several tables is the same prompt (or block).
        signs: one per column.
        confidence: the nominal coverage of the interval.

    Raises:
        ValueError: fewer than two units, or a column whose sum is 0.
    """
    rows = pooled(tables)
    spreads = [over_units(rows, signs)]
    if len(tables) > 1:
        spreads.append(over_deployments(tables, signs))
    # Of one effective unit nothing is known: the bounds stay finite all the same, as results files need them.
    value, (below, above) = log_value(rows, signs), widths(spreads, confidence)
    low, high = value - min(below, _WIDEST), value + min(above, _WIDEST)
    return Interval(math.exp(value), math.exp(low), math.exp(high))


def share_of(hits: float, of: float, confidence: float = CONFIDENCE) -> Interval:
    """Compute a share with its Clopper-Pearson interval, which covers at least as often as it says.

    Args:
        hits: number of hits; may be fractional, as for an effective number.
        of: number of draws, above 0.
        confidence: least coverage of the interval.
    """
    tail = (1 - confidence) / 2
    low = _beta_quantile(tail, hits, of - hits + 1) if hits > 0 else 0.0
    high = _beta_quantile(1 - tail, hits + 1, of - hits) if hits < of else 1.0
    return Interval(hits / of, low, high)


def share_over_units(rows: Sequence[Row], confidence: float = CONFIDENCE) -> Interval:
    """Compute a share of draws that come in units, with the interval of Korn and Graubard (1998).

    It is Clopper-Pearson's with the effective number of draws: as many independent ones as have the
    jackknife's variance over units, at most the actual number, and fewer for few units. If all draws agree,
    each unit counts as one. With one draw per unit it is `share_of`.

    Args:
        rows: hits and draws of each unit.
        confidence: nominal coverage of the interval.

    Raises:
        ValueError: fewer than two units, or no draws.
    """
    count, (hits, of) = len(rows), _sums(rows, 2)
    if count < FEWEST_UNITS or of <= 0:
        raise ValueError(f"a share needs {FEWEST_UNITS} units with draws, found {count} with {of:g}")
    share = hits / of
    if all(row[1] == 1 for row in rows):
        return share_of(hits, of, confidence)
    if hits in (0, of):
        return replace(share_of(share * count, count, confidence), value=share)
    left = [(hits - row[0]) / (of - row[1]) if of > row[1] else share for row in rows]
    mean = math.fsum(left) / count
    variance = (count - 1) / count * math.fsum((estimate - mean) ** 2 for estimate in left)
    freedom = max(1.0, math.fsum(row[1] for row in rows) ** 2 / math.fsum(row[1] ** 2 for row in rows) - 1)
    draws = share * (1 - share) / variance if variance > 0 else of
    draws *= (t_quantile(max(of - 1, 1.0), confidence) / t_quantile(round(freedom, 3), confidence)) ** 2
    draws = min(draws, of)
    return replace(share_of(share * draws, draws, confidence), value=share)


@lru_cache(maxsize=4096)
def _beta_quantile(probability: float, a: float, b: float) -> float:
    """Return the quantile of a beta distribution, by bisection."""
    low, high = 0.0, 1.0
    for _ in range(45):
        middle = (low + high) / 2
        low, high = (middle, high) if _incomplete_beta(a, b, middle) < probability else (low, middle)
    return (low + high) / 2
