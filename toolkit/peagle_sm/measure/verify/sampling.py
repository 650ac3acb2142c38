"""Sampled answers: does each token come as often as the target says, and does a seed repeat? Pure.

Were a sample at temperature 1 the target's own, Z = sum(1[best] - p1) / sqrt(sum p1 (1 - p1)) would be a
standard normal, whatever the texts: each term has mean 0 given what was written before it. The same holds
for the second best token, the third, and so on. The first token is not speculated and is left out. Never
condition on "accepted": that choice depends on the token.

Samples of many texts show a shift that has the same sign everywhere. A sampler that is wrong in one direction
here and in the other there (the residual of a rejected draft replaced by the target's distribution, say)
shows only where one place is sampled often: the draft is the same each time, so the shift is too.

The same seed must give the same answer again, another seed another one.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

from peagle_sm.measure.verify.answers import SCORED_RANKS, Answer, Scored, Top
from peagle_sm.measure.verify.greedy import shape_faults
from peagle_sm.measure.verify.statistics import (
    ALPHA,
    Verdict,
    chi_square_z,
    counted,
    fisher_greater,
    fisher_rate_found,
    percent,
    shift_found,
    undecided,
    z_limit,
)

SURE = 0.9  #: least probability of the token before the place: it comes from the target, without a draft
OPEN = (0.15, 0.85)  #: probability of the best token at the place
LEAST_EXPECTED = 8.0  #: tokens that are expected less often are counted together


@dataclass(frozen=True)
class Place:
    """``before``: the ids of the answer up to it; ``sure``: the next token; ``top``: those after it."""

    prompt_id: str
    before: tuple[int, ...]
    sure: int
    top: Top


def find_places(prompt_id: str, scored: Scored, most: int = 1) -> list[Place]:
    """Places of a greedy answer with a sure token and then several likely ones; not at its beginning."""
    found: list[Place] = []
    for at in range(1, len(scored.tops) - 1):
        chosen, after = scored.answer.ids[at], scored.tops[at + 1]
        if math.exp(scored.logprobs[at]) < SURE or not after:
            continue
        if not OPEN[0] <= math.exp(after[0][1]) <= OPEN[1]:
            continue
        found.append(Place(prompt_id, scored.answer.ids[:at], chosen, after))
        if len(found) == most:
            break
    return found


@dataclass(frozen=True)
class Fit:
    """How well the samples of all places fit: ``z`` is a standard normal where they do."""

    z: float
    samples: int
    freedom: int


def fit_places(places: Sequence[Place], answers: Sequence[Sequence[Answer]]) -> Fit:
    """Pearson's chi-square over places; samples whose first token was another are left out."""
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
        elif len(cells) > 1:  # too small a rest: it joins the rarest of the tokens
            last = cells.pop()
            cells.append((size - sum(count for count, _ in cells), last[1] + size * rest))
        if len(cells) < 2:
            continue
        statistic += sum((count - expected) ** 2 / expected for count, expected in cells)
        freedom, total = freedom + len(cells) - 1, total + size
    return Fit(chi_square_z(statistic, freedom), total, freedom)


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


def rank_shift(samples: Sequence[Scored], rank: int) -> Shift:
    """How often the token of this rank (2 is the second best) came.

    Sums over all tokens but the first of each sample. Nothing where the ranks are not known.
    """
    surplus = variance = 0.0
    count = 0
    for sample in samples:
        for token, top in list(zip(sample.answer.ids, sample.tops, strict=False))[1:]:
            if len(top) < rank:
                continue
            share = math.exp(top[rank - 1][1])
            surplus += (token == top[rank - 1][0]) - share
            variance += share * (1 - share)
            count += 1
    return Shift(count, surplus, variance)


def rest_shift(samples: Sequence[Scored]) -> Shift:
    """How often a token beyond the known ranks came, as `rank_shift`."""
    surplus = variance = 0.0
    count = 0
    for sample in samples:
        for token, top in list(zip(sample.answer.ids, sample.tops, strict=False))[1:]:
            if not top:
                continue
            share = min(1.0, max(0.0, 1 - sum(math.exp(logprob) for _, logprob in top)))
            surplus += (token not in [one for one, _ in top]) - share
            variance += share * (1 - share)
            count += 1
    return Shift(count, surplus, variance)


@dataclass(frozen=True)
class Repeated:
    """Places sampled again and again, on both sides (`peagle_sm.measure.verify.sampling`)."""

    candidate: Fit
    baseline: Fit
    places: int


def judge_sampled(
    candidate: Sequence[Scored],
    seeded: Sequence[Scored],
    baseline: Sequence[Scored],
    ends: frozenset[int],
    max_tokens: int,
    repeated: Repeated | None = None,
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
    tests: dict[str, Callable[[Sequence[Scored]], Shift]] = {
        f"rank {rank}": partial(rank_shift, rank=rank) for rank in range(2, SCORED_RANKS + 1)
    }
    tests[f"ranks above {SCORED_RANKS}"] = rest_shift
    rank_limit = z_limit(ALPHA / len(tests))
    both = [*candidate, *seeded]
    seen = {name: test(both) for name, test in tests.items()}
    its_own = {name: test(baseline) for name, test in tests.items()}
    for name, shift in seen.items():
        figures[f"z_{name.replace(' ', '_')}"] = shift.z
    found = shift_found(whole.variance, whole.count)
    power = (
        f"a shift of {percent(found)} in how often the best token comes is caught 9 times in 10 over "
        f"{whole.count:,} tokens (false alarm once in 10,000); smaller ones need more tokens"
    )
    second = seen["rank 2"]
    if second.count:
        least = shift_found(second.variance, second.count, alpha=ALPHA / len(tests))
        power += f"; of the second best, one of {percent(least)}"
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
            void.append("the places")
        elif repeated.candidate.z > place_limit:
            odd.append("places")
        power += (
            f"; {repeated.candidate.samples:,} samples at {counted(repeated.places, 'place')} show tokens "
            "that come too often in one text and too rarely in another"
            if repeated.candidate.freedom
            else "; no place was found to sample again and again"
        )
    said = (
        f"Z = {whole.z:.2f} over {whole.count:,} tokens (the baseline's own {own.z:.2f}, limit {limit:.2f})"
    )
    if abs(own.z) > limit:
        return undecided(
            f"the baseline's own samples do not fit its log-probabilities, Z = {own.z:.1f}", figures
        )
    if void:
        return undecided(
            f"the baseline's own samples do not fit its log-probabilities: {', '.join(void)}", figures
        )
    if shape or off or odd or abs(whole.z) > limit:
        faults = [*shape, *(f"{name} samples: Z = {shifts[name].z:.1f}" for name in off)]
        for name in odd:
            z = figures[f"z_{name.replace(' ', '_')}"]
            faults.append(f"{name}: Z = {z:.1f}")
            said += f"; {name}: Z = {z:.1f}"
        if shape:
            said += f"; {counted(len(shape), 'sample')} contradict themselves"
        return Verdict(False, said, power, figures, faults or [said])
    if whole.count < LEAST_TOKENS:
        return undecided(f"{whole.count} sampled tokens, at least {LEAST_TOKENS} are needed", figures)
    return Verdict(True, said, power, figures)


@dataclass(frozen=True)
class SeedCase:
    """One prompt, sampled at temperature 1: twice with a seed on each side, once with another seed."""

    prompt_id: str
    baseline: tuple[Answer, Answer]
    candidate: tuple[Answer, Answer]
    other: Answer  #: of the candidate


def judge_seeds(cases: Sequence[SeedCase], exact: bool) -> Verdict:
    """Whether the candidate repeats itself under a seed as the baseline does.

    Its answers need not be the baseline's: speculation uses the random numbers otherwise.
    """
    if not cases:
        return undecided("no prompt was answered by both")
    own = sum(not _same(*case.baseline) for case in cases)
    broken = [case.prompt_id for case in cases if not _same(*case.candidate)]
    constant = all(_same(case.candidate[0], case.other) for case in cases)
    p = fisher_greater(len(broken), len(cases), own, len(cases))
    figures = {
        "prompts": len(cases),
        "not_repeated": len(broken),
        "baseline_not_repeated": own,
        "fisher_p": p,
    }
    repeated = f"{len(cases) - len(broken)} of {len(cases)} prompts repeat"
    said = f"{repeated} under their seed (baseline {len(cases) - own})"
    if constant:
        return Verdict(False, f"{said}; another seed changes nothing", _power(cases, exact, own), figures)
    if own == len(cases):
        return undecided("the baseline itself repeats no answer under a seed", figures)
    if not broken:
        return Verdict(True, said, _power(cases, exact, own), figures)
    if (exact and own == 0) or p < ALPHA:
        faults = [f"{prompt}: two answers to one seed" for prompt in broken]
        return Verdict(False, said, _power(cases, exact, own), figures, faults)
    return undecided(f"{said}, which the arithmetic's noise may explain", figures)


def _same(one: Answer, other: Answer) -> bool:
    return (one.ids, one.text) == (other.ids, other.text)


def _power(cases: Sequence[SeedCase], exact: bool, own: int) -> str:
    if exact and own == 0:
        return "one answer that its seed does not bring back is caught, of those tested"
    rate = fisher_rate_found(len(cases), own, len(cases))
    if rate is None:
        return "none by number: too few prompts for the noise of the baseline"
    return f"a seed that is lost in {percent(rate)} of answers is caught 9 times in 10"
