"""How far the baseline agrees with itself: what no check may take for a fault. Pure.

A margin is a token's log-probability less that of the best other token. The baseline is read twice at each
token of its own answer, once while it wrote (few rows a step) and once when it scored the finished text (all
rows at once): two batch shapes, so their difference is the arithmetic's own noise.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from peagle_sm.measure.verify.answers import Scored
from peagle_sm.measure.verify.figures import quantile
from peagle_sm.measure.verify.verdict import percent

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
