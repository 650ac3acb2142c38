"""Statistics of a comparison; pure, and every random choice comes from a seed.

Estimators: output tokens per second is a ratio of sums (all tokens by all seconds), so a long
answer weighs as much as it lasted. A speed-up is the ratio of two such ratios on the same prompts,
and its interval resamples prompts, never requests, since two requests of one prompt are not
independent.
"""

from __future__ import annotations

import math
import random
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import NormalDist

from peagle_sm.measure.sample import Sample

RESAMPLES = 4000
CONFIDENCE = 0.95


@dataclass(frozen=True)
class Ratio:
    """A paired ratio with its interval over prompts; ``shown`` when the interval excludes 1."""

    value: float
    low: float
    high: float
    prompts: int

    @property
    def shown(self) -> bool:
        """Whether the data tell the ratio from 1."""
        return not self.low <= 1.0 <= self.high


def otps(samples: Iterable[Sample]) -> float:
    """Output tokens per second of wall time, over all samples together.

    Raises:
        ValueError: there are no samples, or they took no time.
    """
    tokens, seconds = _sums(samples)
    if seconds <= 0:
        raise ValueError("no samples to take a rate of")
    return tokens / seconds


def _sums(samples: Iterable[Sample]) -> tuple[int, float]:
    tokens, seconds = 0, 0.0
    for sample in samples:
        tokens += sample.output.output_tokens
        seconds += sample.seconds
    return tokens, seconds


def paired_ratio(
    faster: Iterable[Sample], slower: Iterable[Sample], *, seed: int, resamples: int = RESAMPLES
) -> Ratio:
    """OTPS of ``faster`` over OTPS of ``slower``, with a 95% bootstrap interval over prompts.

    The percentile interval is widened for small samples (Hesterberg 2015, "expanded percentile"):
    the plain one covers too rarely with the 21 prompts of a third of 64.

    Raises:
        ValueError: the two do not hold the same prompts, or fewer than two.
    """
    first, second = _by_prompt(faster), _by_prompt(slower)
    if first.keys() != second.keys():
        odd = sorted(first.keys() ^ second.keys())[:3]
        raise ValueError(f"a paired ratio needs the same prompts on both sides; unpaired: {odd}")
    rows = [(*first[key], *second[key]) for key in sorted(first)]
    if len(rows) < 2:
        raise ValueError(f"an interval over prompts needs at least 2 prompts, found {len(rows)}")
    draws = random.Random(seed)
    resampled = sorted(_ratio(draws.choices(rows, k=len(rows))) for _ in range(resamples))
    tail = expanded_tail(len(rows))
    low, high = _quantile(resampled, tail), _quantile(resampled, 1 - tail)
    return Ratio(_ratio(rows), low, high, len(rows))


def _by_prompt(samples: Iterable[Sample]) -> dict[str, tuple[int, float]]:
    grouped: dict[str, tuple[int, float]] = {}
    for sample in samples:
        tokens, seconds = grouped.get(sample.prompt_id, (0, 0.0))
        grouped[sample.prompt_id] = (tokens + sample.output.output_tokens, seconds + sample.seconds)
    return grouped


def _ratio(rows: Sequence[tuple[int, float, int, float]]) -> float:
    tokens, seconds, other_tokens, other_seconds = (math.fsum(column) for column in zip(*rows, strict=True))
    return (tokens / seconds) / (other_tokens / other_seconds)


def expanded_tail(count: int, confidence: float = CONFIDENCE) -> float:
    """The share to cut from each end so that ``count`` resampled prompts cover as asked.

    Student's t comes from its Cornish-Fisher expansion (within 1% from 5 degrees of freedom on).
    """
    normal, freedom = NormalDist(), count - 1
    z = normal.inv_cdf((1 + confidence) / 2)
    t = z + (z**3 + z) / (4 * freedom) + (5 * z**5 + 16 * z**3 + 3 * z) / (96 * freedom**2)
    return normal.cdf(-t * math.sqrt(count / freedom))


def _quantile(ordered: Sequence[float], share: float) -> float:
    place = share * (len(ordered) - 1)
    below = math.floor(place)
    above = min(below + 1, len(ordered) - 1)
    return ordered[below] + (ordered[above] - ordered[below]) * (place - below)


def acceptance_length(samples: Iterable[Sample]) -> float | None:
    """Mean tokens per verification step, weighted by step: 1 + accepted / drafts.

    None where no sample reports a draft (no speculation, or the engine does not tell).
    """
    drafts = accepted = 0
    for sample in samples:
        drafts += sample.output.drafts or 0
        accepted += sample.output.accepted or 0
    return 1 + accepted / drafts if drafts else None


def acceptance_length_per_request(samples: Iterable[Sample]) -> float | None:
    """The mean over requests of each request's own acceptance length; None as above."""
    lengths = [1 + (s.output.accepted or 0) / s.output.drafts for s in samples if s.output.drafts]
    return math.fsum(lengths) / len(lengths) if lengths else None


def survival_rates(samples: Iterable[Sample]) -> tuple[float, ...]:
    """For each draft position, the share of drafts that were accepted up to and at it."""
    counts: Counter[int] = Counter()
    for sample in samples:
        counts.update(dict(enumerate(sample.output.histogram)))
    drafts = sum(counts.values())
    if not drafts:
        return ()
    return tuple(
        sum(n for j, n in counts.items() if j >= position) / drafts for position in range(1, max(counts) + 1)
    )


def steps_per_1000_tokens(samples: Iterable[Sample]) -> float:
    """Target forward passes per 1,000 output tokens.

    With speculation each request takes its prefill and one pass per verified draft; without, one
    pass per token.
    """
    tokens = steps = 0
    for sample in samples:
        written = sample.output.output_tokens
        tokens += written
        steps += written if sample.output.drafts is None else 1 + sample.output.drafts
    return 1000 * steps / tokens


def draft_passes_per_1000_tokens(samples: Iterable[Sample], passes_per_draft: int) -> float:
    """Draft-head forward passes per 1,000 output tokens, counting drafts that were verified.

    ``passes_per_draft`` is 1 for P-EAGLE, num_speculative_tokens for EAGLE-3 and 0 without.
    """
    tokens = drafts = 0
    for sample in samples:
        tokens += sample.output.output_tokens
        drafts += sample.output.drafts or 0
    return 1000 * drafts * passes_per_draft / tokens


def distinct_share(items: Sequence[object], n: int = 4) -> float:
    """Distinct n-grams by n-grams of one output: 1 repeats nothing, near 0 loops.

    1.0 for an output too short to repeat one.
    """
    grams = [tuple(items[start : start + n]) for start in range(len(items) - n + 1)]
    return len(set(grams)) / len(grams) if grams else 1.0


def mean_distinct_share(samples: Iterable[Sample], n: int = 4) -> float:
    """The mean over requests of :func:`distinct_share` of each output (of its words without ids)."""
    shares = [distinct_share(_items(sample), n) for sample in samples]
    return math.fsum(shares) / len(shares)


def _items(sample: Sample) -> Sequence[object]:
    ids = sample.output.token_ids
    return ids if ids is not None else sample.output.text.split()


def least_repetitive(samples: Iterable[Sample], share: float = 1 / 3) -> frozenset[str]:
    """Ids of the prompts whose outputs repeat least (at least two; ties go by id).

    Give it the outputs of the mode without speculation, so that the choice cannot favour a head.
    """
    shares: dict[str, float] = {}
    for sample in samples:
        shares[sample.prompt_id] = distinct_share(_items(sample))
    ranked = sorted(shares, key=lambda prompt: (-shares[prompt], prompt))
    return frozenset(ranked[: max(2, round(len(ranked) * share))])


def differing_prompts(by_arm: Mapping[str, Iterable[Sample]]) -> list[str]:
    """Ids of the prompts to which not every arm, every time, gave the very same output."""
    seen: dict[str, set[tuple[int, ...] | str]] = {}
    for samples in by_arm.values():
        for sample in samples:
            seen.setdefault(sample.prompt_id, set()).add(sample.output.identity)
    return sorted(prompt for prompt, outputs in seen.items() if len(outputs) > 1)
