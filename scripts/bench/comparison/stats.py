"""Statistics of a comparison in turns. Pure.

Estimators: output tokens per second is a ratio of sums (all tokens by all seconds), so a long
answer weighs as much as it lasted. A speed-up is the ratio of two such ratios on the same prompts,
and its interval is over prompts, never requests, since two requests of one prompt are not
independent (`compare.intervals`).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from peagle_sm.measure.benchmark.acceptance import from_requests
from peagle_sm.measure.compare.confidence_intervals import ratio
from peagle_sm.measure.results.records import Acceptance
from scripts.bench.comparison.sample import Sample

_TOKENS_BY_SECONDS = (1, -1, -1, 1)  #: columns: tokens and seconds of the faster arm, then of the slower


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


def paired_ratio(faster: Iterable[Sample], slower: Iterable[Sample]) -> Ratio:
    """OTPS of ``faster`` over OTPS of ``slower``, with the 95% interval over prompts that `compare` gives.

    Raises:
        ValueError: the two do not hold the same prompts, or fewer than two.
    """
    first, second = _by_prompt(faster), _by_prompt(slower)
    if first.keys() != second.keys():
        odd = sorted(first.keys() ^ second.keys())[:3]
        raise ValueError(f"a paired ratio needs the same prompts on both sides; unpaired: {odd}")
    if len(first) < 2:
        raise ValueError(f"an interval over prompts needs at least 2 prompts, found {len(first)}")
    found = ratio([{prompt: (*first[prompt], *second[prompt]) for prompt in first}], _TOKENS_BY_SECONDS)
    return Ratio(found.value, found.low, found.high, len(first))


def _by_prompt(samples: Iterable[Sample]) -> dict[str, tuple[int, float]]:
    grouped: dict[str, tuple[int, float]] = {}
    for sample in samples:
        tokens, seconds = grouped.get(sample.prompt_id, (0, 0.0))
        grouped[sample.prompt_id] = (tokens + sample.output.output_tokens, seconds + sample.seconds)
    return grouped


def acceptance_length(samples: Iterable[Sample]) -> float | None:
    """Tokens per verification step, each step weighing alike: 1 + accepted / drafts.

    None when the engine reported no drafts.
    """
    found = _acceptance(samples)
    return None if found is None else found.per_step


def acceptance_length_per_request(samples: Iterable[Sample]) -> float | None:
    """The mean over requests of each request's own length; None as above."""
    found = _acceptance(samples)
    return None if found is None else found.per_request


def survival_rates(samples: Iterable[Sample]) -> tuple[float, ...]:
    """For each draft position, the share of drafts that were accepted up to and at it."""
    found = _acceptance(samples)
    return () if found is None else found.survival


def _acceptance(samples: Iterable[Sample]) -> Acceptance | None:
    return from_requests(sample.output for sample in samples)


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
