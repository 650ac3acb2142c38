"""Check of sampled answers: token frequencies against the target. Pure.

If samples at temperature 1 are the target's own, Z = sum(1[best] - p1) / sqrt(sum p1 (1 - p1)) is a standard
normal, whatever the texts: each term has mean 0 given the preceding tokens. The same is true for the second
best token, the third, and so on. The first token is not speculated and is left out. Never condition on
"accepted": acceptance depends on the token.

Samples of many texts show a shift that has the same sign everywhere. A fault with changing signs (for example
if the residual of a rejected draft is replaced by the target's distribution) is visible only if one position
is sampled repeatedly: there the draft, and so the shift, is always the same.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

from peagle_bench.verify.answers import SCORED_RANKS, Scored, TokenAnswer, Top
from peagle_bench.verify.greedy import shape_faults
from peagle_bench.verify.statistics import (
    ALPHA,
    CheckVerdict,
    chi_square_z,
    counted,
    percent,
    shift_found,
    undecided,
    z_limit,
)

SURE = 0.9  #: least probability of the first sampled token, which is not speculated
OPEN = (0.15, 0.85)  #: range of the best token's probability at the position
LEAST_EXPECTED = 8.0  #: tokens with smaller expected counts are counted together


@dataclass(frozen=True)
class SamplingPosition:
    """Position to sample: answer ids ``before`` it, its ``sure`` token, and the ``top`` tokens after."""

    prompt_id: str
    before: tuple[int, ...]
    sure: int
    top: Top


def find_positions(prompt_id: str, scored: Scored, most: int = 1) -> list[SamplingPosition]:
    """Find positions in a greedy answer with a sure token followed by several likely ones."""
    positions: list[SamplingPosition] = []
    for at in range(1, len(scored.tops) - 1):
        chosen, after = scored.answer.ids[at], scored.tops[at + 1]
        if math.exp(scored.logprobs[at]) < SURE or not after:
            continue
        if not OPEN[0] <= math.exp(after[0][1]) <= OPEN[1]:
            continue
        positions.append(SamplingPosition(prompt_id, scored.answer.ids[:at], chosen, after))
        if len(positions) == most:
            break
    return positions


@dataclass(frozen=True)
class SampleFit:
    """Goodness of fit of the samples at all positions; ``z`` is a standard normal if they fit."""

    z: float
    samples: int
    freedom: int


def fit_places(places: Sequence[SamplingPosition], answers: Sequence[Sequence[TokenAnswer]]) -> SampleFit:
    """Compute Pearson's chi-square over positions; samples with another first token are left out."""
    statistic, freedom, total = 0.0, 0, 0
    for place, drawn in zip(places, answers, strict=True):
        seconds = [a.ids[1] for a in drawn if len(a.ids) > 1 and a.ids[0] == place.sure]
        counts, size = Counter(seconds), len(seconds)
        shares = [(token, math.exp(logprob)) for token, logprob in place.top]
        kept = [(token, share) for token, share in shares if size * share >= LEAST_EXPECTED]
        rest = 1 - sum(share for _, share in kept)
        cells = [(counts[token], size * share) for token, share in kept]
        if size * rest >= LEAST_EXPECTED:
            cells.append((size - sum(count for count, _ in cells), size * rest))
        elif len(cells) > 1:  # the rest is too small: count it with the rarest token
            last = cells.pop()
            cells.append((size - sum(count for count, _ in cells), last[1] + size * rest))
        if len(cells) < 2:
            continue
        statistic += sum((count - expected) ** 2 / expected for count, expected in cells)
        freedom, total = freedom + len(cells) - 1, total + size
    return SampleFit(chi_square_z(statistic, freedom), total, freedom)


LEAST_TOKENS = 500  #: with fewer only shifts above some 10% are detectable


@dataclass(frozen=True)
class FrequencyShift:
    """Frequency of a token rank minus its expected frequency, summed over tokens."""

    count: int
    surplus: float
    variance: float

    @property
    def z(self) -> float:
        """Surplus in standard deviations."""
        return self.surplus / math.sqrt(self.variance) if self.variance > 0 else 0.0

    @property
    def share(self) -> float:
        """Surplus per token."""
        return self.surplus / self.count if self.count else 0.0


Term = Callable[[Scored, int], tuple[bool, float] | None]
"""Function of a sample and a position: whether a token of a rank was drawn, and its probability; or None."""


def shift_of(samples: Sequence[Scored], term: Term | None = None) -> FrequencyShift:
    """Compute the shift of a rank (the best token) over all tokens but the first of each sample."""
    surplus = variance = 0.0
    count = 0
    for sample in samples:
        for at in range(1, min(len(sample.answer.ids), len(sample.logprobs))):
            pair = (term or _best)(sample, at)
            if pair is not None:
                hit, share = pair
                surplus += hit - share
                variance += share * (1 - share)
                count += 1
    return FrequencyShift(count, surplus, variance)


def _best(sample: Scored, at: int) -> tuple[bool, float]:
    logprob, other = sample.logprobs[at], sample.others[at]
    return logprob >= other, min(1.0, math.exp(max(logprob, other)))


def _rank(sample: Scored, at: int, rank: int) -> tuple[bool, float] | None:
    """The token of this rank (2 is the second best)."""
    top = sample.tops[at] if at < len(sample.tops) else ()
    if len(top) < rank:
        return None
    return sample.answer.ids[at] == top[rank - 1][0], math.exp(top[rank - 1][1])


def _rest(sample: Scored, at: int) -> tuple[bool, float] | None:
    """All tokens beyond the known ranks."""
    top = sample.tops[at] if at < len(sample.tops) else ()
    if not top:
        return None
    share = min(1.0, max(0.0, 1 - sum(math.exp(logprob) for _, logprob in top)))
    return sample.answer.ids[at] not in [likely for likely, _ in top], share


@dataclass(frozen=True)
class Repeated:
    """Goodness of fit of repeated samples at ``places`` positions, for both engines."""

    candidate: SampleFit
    baseline: SampleFit
    places: int


def judge_sampled(
    candidate: Sequence[Scored],
    seeded: Sequence[Scored],
    baseline: Sequence[Scored],
    ends: frozenset[int],
    max_tokens: int,
    repeated: Repeated | None = None,
) -> CheckVerdict:
    """Judge whether the candidate samples like the target at temperature 1, with and without a seed.

    ``baseline`` are the baseline's own samples. If they fail the test, it is void: something between sampling
    and scoring differs (a logits processor, a server default).
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
    tests: dict[str, Term] = {
        f"rank {rank}": partial(_rank, rank=rank) for rank in range(2, SCORED_RANKS + 1)
    }
    tests[f"ranks above {SCORED_RANKS}"] = _rest
    rank_limit = z_limit(ALPHA / len(tests))
    both = [*candidate, *seeded]
    seen = {name: shift_of(both, term) for name, term in tests.items()}
    its_own = {name: shift_of(baseline, term) for name, term in tests.items()}
    for name, shift in seen.items():
        figures[f"z_{name.replace(' ', '_')}"] = shift.z
    least = shift_found(whole.variance, whole.count)
    power = (
        f"detects a shift of {percent(least)} in the frequency of the best token with 90% probability over "
        f"{whole.count:,} tokens (false alarm rate 1 in 10,000); smaller shifts need more tokens"
    )
    second = seen["rank 2"]
    if second.count:
        least = shift_found(second.variance, second.count, alpha=ALPHA / len(tests))
        power += f"; for the second best token a shift of {percent(least)}"
    void = [name for name, shift in its_own.items() if abs(shift.z) > rank_limit]
    odd = [name for name, shift in seen.items() if abs(shift.z) > rank_limit and name not in void]
    place_limit = z_limit(2 * ALPHA)
    if repeated is not None:
        figures |= {
            "z_places": repeated.candidate.z,
            "z_places_baseline": repeated.baseline.z,
            "place_samples": repeated.candidate.samples,
        }
        if repeated.baseline.z > place_limit:
            void.append("repeated positions")
        elif repeated.candidate.z > place_limit:
            odd.append("places")
        power += (
            f"; {repeated.candidate.samples:,} samples at {counted(repeated.places, 'position')} detect "
            "tokens that are too frequent in one text and too rare in another"
            if repeated.candidate.freedom
            else "; no position was suitable for repeated samples"
        )
    summary = f"Z = {whole.z:.2f} over {whole.count:,} tokens (baseline: {own.z:.2f}, limit {limit:.2f})"
    if abs(own.z) > limit:
        return undecided(
            f"the baseline's own samples do not fit its log-probabilities: Z = {own.z:.1f}", figures
        )
    if void:
        return undecided(
            f"the baseline's own samples do not fit its log-probabilities: {', '.join(void)}", figures
        )
    if shape or off or odd or abs(whole.z) > limit:
        faults = [*shape, *(f"{name} samples: Z = {shifts[name].z:.1f}" for name in off)]
        for name in odd:
            z = figures[f"z_{name.replace(' ', '_')}"]
            shown = "repeated positions" if name == "places" else name
            faults.append(f"{shown}: Z = {z:.1f}")
            summary += f"; {shown}: Z = {z:.1f}"
        if shape:
            summary += f"; {counted(len(shape), 'inconsistent sample')}"
        return CheckVerdict(False, summary, power, figures, faults or [summary])
    if whole.count < LEAST_TOKENS:
        return undecided(
            f"only {whole.count} tokens were sampled; at least {LEAST_TOKENS} are needed", figures
        )
    return CheckVerdict(True, summary, power, figures)
