"""Sampled answers: does the target's best token come as often as the target says? Pure.

Were a sample at temperature 1 the target's own, Z = sum(1[best] - p1) / sqrt(sum p1 (1 - p1)) would be a
standard normal, whatever the texts: each term has mean 0 given what was written before it. The first token
is not speculated and is left out. Never condition on "accepted": that choice depends on the token.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from peagle_sm.measure.verify.answers import Scored
from peagle_sm.measure.verify.figures import shift_found, z_limit
from peagle_sm.measure.verify.greedy import shape_faults
from peagle_sm.measure.verify.verdict import Verdict, counted, percent, undecided

LEAST_TOKENS = 500  #: fewer say nothing: only a shift above some 10% would show


@dataclass(frozen=True)
class Shift:
    """How often the best token came, beside how often it should have."""

    count: int
    surplus: float
    variance: float

    @property
    def z(self) -> float:
        """The surplus in standard deviations."""
        return self.surplus / math.sqrt(self.variance) if self.variance > 0 else 0.0

    @property
    def share(self) -> float:
        """The surplus by the number of tokens."""
        return self.surplus / self.count if self.count else 0.0


def shift_of(samples: Sequence[Scored]) -> Shift:
    """Sum over all tokens but the first of each sample."""
    surplus = variance = 0.0
    count = 0
    for sample in samples:
        for logprob, other in list(zip(sample.logprobs, sample.others, strict=True))[1:]:
            best = min(1.0, math.exp(max(logprob, other)))
            surplus += (logprob >= other) - best
            variance += best * (1 - best)
            count += 1
    return Shift(count, surplus, variance)


def judge_sampled(
    candidate: Sequence[Scored],
    seeded: Sequence[Scored],
    baseline: Sequence[Scored],
    ends: frozenset[int],
    max_tokens: int,
) -> Verdict:
    """Whether the candidate samples as the target would at temperature 1, with a seed and without.

    ``baseline`` holds the baseline's own samples: where they fail the test themselves, something between
    sampling and scoring (a logits processor, a default of the server) makes it void.
    """
    shifts = {"unseeded": shift_of(candidate), "seeded": shift_of(seeded)}
    whole = shift_of([*candidate, *seeded])
    own, limit = shift_of(baseline), z_limit()
    figures: dict[str, float] = {
        "tokens": whole.count,
        "z": whole.z,
        "z_unseeded": shifts["unseeded"].z,
        "z_seeded": shifts["seeded"].z,
        "z_baseline": own.z,
        "shift": whole.share,
        "limit": limit,
    }
    answers = [sample.answer for sample in (*candidate, *seeded)]
    shape = [f"sample {n}: {f}" for n, a in enumerate(answers) for f in shape_faults(a, ends, max_tokens)]
    off = [name for name, shift in shifts.items() if abs(shift.z) > limit]
    found = shift_found(whole.variance, whole.count)
    power = (
        f"a shift of {percent(found)} in how often the best token comes is caught 9 times in 10 over "
        f"{whole.count:,} tokens (false alarm once in 10,000); smaller ones need more tokens"
    )
    said = (
        f"Z = {whole.z:.2f} over {whole.count:,} tokens (the baseline's own {own.z:.2f}, limit {limit:.2f})"
    )
    if abs(own.z) > limit:
        return undecided(
            f"the baseline's own samples do not fit its log-probabilities, Z = {own.z:.1f}", figures
        )
    if shape or off or abs(whole.z) > limit:
        faults = [*shape, *(f"{name} samples: Z = {shifts[name].z:.1f}" for name in off)]
        if shape:
            said += f"; {counted(len(shape), 'sample')} contradict themselves"
        return Verdict(False, said, power, figures, faults or [said])
    if whole.count < LEAST_TOKENS:
        return undecided(f"{whole.count} sampled tokens, at least {LEAST_TOKENS} are needed", figures)
    return Verdict(True, said, power, figures)
