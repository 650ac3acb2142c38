"""One place sampled again and again: does each token come as often as the target says? Pure.

Samples of many texts show a shift that has the same sign everywhere. A sampler that is wrong in one direction
here and in the other there (the residual of a rejected draft replaced by the target's distribution, say)
shows only where one place is sampled often: the draft is the same each time, so the shift is too.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from peagle_sm.measure.verify.answers import Answer, Scored, Top
from peagle_sm.measure.verify.figures import chi_square_z

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
