"""The verdict of a check, the statistical tests behind it, and the noise floor. Pure, standard library only.

The floor is how far the baseline agrees with itself: what no check may take for a fault. A margin is a
token's log-probability less that of the best other token. The baseline is read twice at each token of its own
answer, once while it wrote (few rows a step) and once when it scored the finished text (all rows at once):
two batch shapes, so their difference is the arithmetic's own noise.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from statistics import NormalDist

from peagle_sm.measure.results.records import CheckRecord
from peagle_sm.measure.verify.answers import Scored

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


MOST_EXAMPLES = 5


@dataclass(frozen=True)
class Verdict:
    """``passed`` None: not decided, or not ``applicable``; ``summary`` says why."""

    passed: bool | None
    summary: str
    power: str
    figures: Mapping[str, float] = field(default_factory=dict)
    examples: Sequence[str] = ()
    applicable: bool = True

    def record(self, name: str, arm: str, baseline: str) -> CheckRecord:
        """As a line of the results file, with at most `MOST_EXAMPLES` examples."""
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


def undecided(reason: str, figures: Mapping[str, float] | None = None) -> Verdict:
    """The verdict of a check that cannot tell; it is never a pass."""
    return Verdict(None, f"could not be decided: {reason}", "none: nothing was tested", figures or {})


def not_applicable(reason: str) -> Verdict:
    """The verdict of a check for which neither side is set up; it is neither a pass nor a failure."""
    return Verdict(None, reason, "none: nothing was tested", applicable=False)


def percent(share: float) -> str:
    """``0.3%``, ``12%``: two significant digits."""
    return f"{100 * share:.2g}%" if share < 0.995 else "100%"


def counted(number: int, one: str, many: str | None = None) -> str:
    """``1 prompt``, ``164 prompts``."""
    return f"{number:,} {one if number == 1 else many or one + 's'}"


LEAST_DELTA = 0.01  #: nats; no gap below it counts as a fault where there is any noise
EXACT_NOISE = 1e-3  #: nats; below it the arithmetic is taken to be the same in every batch shape (float32)
CONTESTED = 1.0  #: nats; only tokens with a nearer runner-up can flip, so only they are the noise's witnesses
_SHARE = 0.999


@dataclass(frozen=True)
class Floor:
    """The noise floor of a baseline, in nats.

    ``exact``: it equals itself in every repeat, and its arithmetic does not depend on the batch's shape.
    ``tie``: two tokens nearer than this may change places even then. ``delta``: the least gap that is a
    fault on its own where the floor is not exact. ``diverging``: prompts answered otherwise in a repeat or
    seen otherwise when scored. ``near``: share of tokens with a runner-up within ``delta``.
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
        """One sentence about the baseline."""
        if self.exact:
            precision = f"{self.noise:.1g} nats" if self.noise else "the last digit"
            return (
                f"the baseline equals itself in {self.prompts} of {self.prompts} prompts, at two batch "
                f"shapes, and reads its own margins alike to {precision}: equality is demanded"
            )
        return (
            f"the baseline differs from itself in {self.diverging} of {self.prompts} prompts and in its "
            f"margins by up to {self.noise:.2g} nats: a gap above {self.delta:.2g} nats is a fault, "
            f"and {percent(self.near)} of tokens have a runner-up within that"
        )


def floor_of(first: Sequence[Scored], repeat: Sequence[Scored]) -> Floor:
    """The floor from two runs of the same prompts on the baseline, in the same order.

    ``delta`` = max(0.01, 2 x the 99.9% quantile of the difference between the two readings of a margin, over
    contested tokens). The quantile of the gaps over all tokens, ties or not, would lie far below the largest
    harmless gap of a run: nearly all tokens have gap 0 (that rule's false alarms: docs/how-to/verify.md).
    """
    differences = [
        abs(written - scored)
        for one in first
        if one.answer.logprobs
        for written, scored in zip(one.answer.margins, one.margins, strict=True)
        if abs(scored) < CONTESTED
    ]
    own = [gap for one in (*first, *repeat) for gap in one.gaps if gap > 0]
    noise = quantile([*differences, *own], _SHARE)
    largest = max([*differences, *own], default=0.0)
    diverging = sum(differs_from_itself(a, b) for a, b in zip(first, repeat, strict=True))
    equal = all(a.answer.ids == b.answer.ids for a, b in zip(first, repeat, strict=True))
    delta = max(LEAST_DELTA, 2 * noise)
    margins = [margin for one in first for margin in one.margins]
    return Floor(
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
    """Nats by which the two readings of a margin differ at most in one answer; 0 where only one is known."""
    if not scored.answer.logprobs:
        return 0.0
    pairs = zip(scored.answer.margins, scored.margins, strict=True)
    return max((abs(a - b) for a, b in pairs if math.isfinite(a) and math.isfinite(b)), default=0.0)


def differs_from_itself(first: Scored, repeat: Scored) -> bool:
    """Whether another batch shape of the baseline itself would have written this answer otherwise."""
    return first.answer.ids != repeat.answer.ids or any(gap > 0 for gap in first.gaps)
