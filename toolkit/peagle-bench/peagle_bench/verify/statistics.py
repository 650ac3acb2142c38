"""Verdict of a check, its statistical tests, and the noise floor. Pure, standard library only.

The floor is the difference of the baseline from itself, which no check may report as a fault. A margin is a
token's log-probability minus that of the best other token. The baseline's margins are read twice at each
token of its own answer: while it generates (few rows per step) and while it scores the finished text (all
rows at once). These are two batch shapes, so their difference is the arithmetic noise.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from statistics import NormalDist

from peagle_bench.results.records import CheckRecord
from peagle_bench.verify.answers import Scored

ALPHA = 1e-4  #: false alarm rate of each statistical test
POWER = 0.9  #: probability of detection in the stated power of a check
_NORMAL = NormalDist()


def quantile(values: Iterable[float], share: float) -> float:
    """Compute a quantile of ``values``, rounded up to the next value; 0.0 without values."""
    ordered = sorted(values)
    if not ordered:
        return 0.0
    return ordered[min(len(ordered) - 1, math.ceil(share * len(ordered)))]


@lru_cache(maxsize=4096)
def fisher_greater(hits: int, of: int, base_hits: int, base_of: int) -> float:
    """Compute the one-sided Fisher p-value of ``hits`` or more if both groups are equal."""
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
    """Compute the one-sided exact McNemar p-value of ``only_mine`` or more if both sides are equal.

    ``only_mine`` pairs show the event on one side alone, ``only_its`` on the other alone.
    """
    pairs = only_mine + only_its
    return min(1.0, _at_least(only_mine, pairs, 0.5)) if only_mine else 1.0


@lru_cache(maxsize=256)
def mcnemar_rate_found(of: int, base_hits: int) -> float | None:
    """Compute the smallest rate among ``of`` pairs that `mcnemar_greater` detects; None if none.

    The other side shows the event in ``base_hits`` pairs, independently.
    """
    base = base_hits / of if of else 0.0
    for percent in range(1, 101):
        rate = percent / 100
        mine, theirs = rate * (1 - base), base * (1 - rate)
        quiet = math.floor(of * theirs + _NORMAL.inv_cdf(POWER) * math.sqrt(of * theirs * (1 - theirs)))
        needed = next((k for k in range(of + 1) if mcnemar_greater(k, quiet) < ALPHA), None)
        if needed is not None and _at_least(needed, of, mine) >= POWER:
            return rate
    return None


def chi_square_z(statistic: float, freedom: int) -> float:
    """Convert a chi-square statistic to a standard normal (Wilson and Hilferty)."""
    if not freedom:
        return 0.0
    spread = 2 / (9 * freedom)
    return float(((statistic / freedom) ** (1 / 3) - (1 - spread)) / math.sqrt(spread))


def _log_choose(n: int, k: int) -> float:
    return math.lgamma(n + 1) - math.lgamma(k + 1) - math.lgamma(n - k + 1)


def self_normalised(differences: Sequence[float]) -> float:
    """Compute the sum over the root of the sum of squares.

    For independent differences that are symmetric about 0, it exceeds t with a probability of at most
    exp(-t^2 / 2), whatever their sizes (Hoeffding on the signs), so prompts may differ arbitrarily.
    """
    scale = math.sqrt(math.fsum(d * d for d in differences))
    return math.fsum(differences) / scale if scale else 0.0


def self_normalised_limit(alpha: float = ALPHA) -> float:
    """Return the bound that `self_normalised` exceeds with a probability of at most ``alpha``."""
    return math.sqrt(2 * math.log(1 / alpha))


def z_limit(alpha: float = ALPHA) -> float:
    """Return the two-sided bound of a standard normal."""
    return _NORMAL.inv_cdf(1 - alpha / 2)


def shift_found(variance: float, count: int, *, alpha: float = ALPHA, power: float = POWER) -> float:
    """Compute the smallest shift of a mean that a one-sample Z test detects with ``power``.

    ``variance`` is the sum of the ``count`` single variances. Infinite without data.
    """
    if count == 0:
        return math.inf
    return (z_limit(alpha) + _NORMAL.inv_cdf(power)) * math.sqrt(variance) / count


def rate_found(units: int, *, power: float = POWER) -> float:
    """Compute the smallest random fault rate that hits at least one of ``units`` with ``power``."""
    return 1.0 if units == 0 else 1 - (1 - power) ** (1 / units)


def _at_least(needed: int, of: int, rate: float) -> float:
    if rate >= 1:
        return 1.0
    return 1 - math.fsum(
        math.exp(_log_choose(of, k) + k * math.log(rate) + (of - k) * math.log1p(-rate))
        for k in range(needed)
    )


def excess_found(base: float) -> int:
    """Compute the smallest excess of wrong tokens over ``base`` that `self_normalised` detects.

    Each wrong token is in another prompt. Solves x = (t + z) sqrt(x + 2 base), with the variance of both
    counts.
    """
    reach = (self_normalised_limit() + _NORMAL.inv_cdf(POWER)) ** 2
    return math.ceil((reach + math.sqrt(reach * reach + 8 * reach * base)) / 2)


MOST_EXAMPLES = 5


@dataclass(frozen=True)
class CheckVerdict:
    """Result of a check; ``passed`` None: undecided or not ``applicable``, with the reason in ``summary``."""

    passed: bool | None
    summary: str
    power: str
    figures: Mapping[str, float] = field(default_factory=dict)
    examples: Sequence[str] = ()
    applicable: bool = True

    def record(self, name: str, arm: str, baseline: str) -> CheckRecord:
        """Make the record for the results file, with at most `MOST_EXAMPLES` examples."""
        return CheckRecord(
            name=name,
            arm=arm,
            baseline=baseline,
            passed=self.passed,
            summary=self.summary,
            power=self.power,
            figures={key: float(value) for key, value in self.figures.items()},
            examples=tuple(self.examples[:MOST_EXAMPLES]),
            applicable=self.applicable,
        )


def undecided(reason: str, figures: Mapping[str, float] | None = None) -> CheckVerdict:
    """Make the verdict of an undecided check; it is never a pass."""
    return CheckVerdict(None, f"could not be decided: {reason}", "none: nothing was tested", figures or {})


def not_applicable(reason: str) -> CheckVerdict:
    """Make the verdict of a check that neither engine supports; neither a pass nor a failure."""
    return CheckVerdict(None, reason, "none: nothing was tested", applicable=False)


def percent(share: float) -> str:
    """Format ``0.3%``, ``12%``: two significant digits."""
    return f"{100 * share:.2g}%" if share < 0.995 else "100%"


def counted(number: int, one: str, many: str | None = None) -> str:
    """Format ``1 prompt``, ``164 prompts``."""
    return f"{number:,} {one if number == 1 else many or one + 's'}"


LEAST_DELTA = 0.01  #: nats; smaller gaps are not faults if there is any noise
EXACT_NOISE = 1e-3  #: nats; below it the arithmetic counts as independent of the batch shape (float32)
CONTESTED = 1.0  #: nats; only tokens with a closer alternative can flip, so only they measure the noise
_SHARE = 0.999


@dataclass(frozen=True)
class NoiseFloor:
    """Noise floor of a baseline, in nats.

    ``exact``: the baseline repeats every answer, and its arithmetic does not depend on the batch shape.
    ``tie``: two tokens closer than this may still swap. ``delta``: the smallest gap that is a fault if the
    floor is not exact. ``diverging``: prompts with another answer in a repeat or another best token when
    scored. ``near``: share of tokens with an alternative within ``delta``.
    """

    prompts: int
    diverging: int
    tokens: int
    noise: float
    tie: float
    delta: float
    exact: bool
    near: float

    @property
    def words(self) -> str:
        """Describe the baseline's noise in one sentence."""
        if self.exact:
            precision = f"to {self.noise:.1g} nats" if self.noise else "exactly"
            return (
                f"the baseline repeats its answers to {self.prompts} of {self.prompts} prompts at two batch "
                f"shapes, and its margins agree {precision}: answers must be equal"
            )
        return (
            f"the baseline differs from itself in {self.diverging} of {self.prompts} prompts and in its "
            f"margins by up to {self.noise:.2g} nats: a gap above {self.delta:.2g} nats is a fault; "
            f"{percent(self.near)} of tokens have an alternative within that"
        )


def floor_of(first: Sequence[Scored], repeat: Sequence[Scored]) -> NoiseFloor:
    """Compute the floor from two runs of the same prompts on the baseline, in the same order.

    ``delta`` = max(0.01, 2 x the 99.9% quantile of the difference between the two readings of a margin, over
    contested tokens). The quantile of the gaps over all tokens would be far below the largest harmless gap of
    a run, since nearly all tokens have gap 0 (false alarms of that rule: docs/how-to/verify.md).
    """
    differences = [
        abs(written - target)
        for scored in first
        if scored.answer.logprobs
        for written, target in zip(scored.answer.margins, scored.margins, strict=True)
        if abs(target) < CONTESTED
    ]
    own = [gap for scored in (*first, *repeat) for gap in scored.gaps if gap > 0]
    noise = quantile([*differences, *own], _SHARE)
    largest = max([*differences, *own], default=0.0)
    diverging = sum(differs_from_itself(a, b) for a, b in zip(first, repeat, strict=True))
    equal = all(a.answer.ids == b.answer.ids for a, b in zip(first, repeat, strict=True))
    delta = max(LEAST_DELTA, 2 * noise)
    margins = [margin for scored in first for margin in scored.margins]
    return NoiseFloor(
        prompts=len(first),
        diverging=diverging,
        tokens=len(margins),
        noise=largest,
        tie=2 * largest,
        delta=delta,
        exact=bool(differences) and equal and largest <= EXACT_NOISE,
        near=sum(abs(margin) <= delta for margin in margins) / max(1, len(margins)),
    )


def largest_difference(scored: Scored) -> float:
    """Compute the largest difference (nats) of the two readings of a margin; 0 if only one is known."""
    if not scored.answer.logprobs:
        return 0.0
    pairs = zip(scored.answer.margins, scored.margins, strict=True)
    return max((abs(a - b) for a, b in pairs if math.isfinite(a) and math.isfinite(b)), default=0.0)


def differs_from_itself(first: Scored, repeat: Scored) -> bool:
    """Decide whether the baseline itself gives another answer at another batch shape."""
    return first.answer.ids != repeat.answer.ids or any(gap > 0 for gap in first.gaps)
