"""Reading of one measured window: acceptance and step time of one K at one concurrency. Pure.

The inputs are the requests of the window and the engine's own counters before and after it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

from peagle_bench.benchmark.acceptance import Counters, from_counters, from_requests, read_counters
from peagle_bench.results.records import Acceptance, Reading, RequestRecord
from peagle_sm.core.errors import ServiceFault

_GAPS = re.compile(
    r"^vllm:inter_token_latency_seconds_(sum|count)(?:\{[^}]*\})?\s+([0-9.eE+-]+)\s*$", re.MULTILINE
)


@dataclass(frozen=True)
class Scrape:
    """Counters of the engine's ``/metrics`` at one moment."""

    step_seconds: float  #: sum of ``vllm:inter_token_latency_seconds`` over the steps of all requests
    step_count: float
    counters: Counters | None  #: None without speculation


def read_scrape(text: str) -> Scrape | None:
    """Read Prometheus text; None without inter-token latencies (zeros before the first stream)."""
    totals = {"sum": 0.0, "count": 0.0}
    has_gaps = False
    for name, value in _GAPS.findall(text):
        totals[name] += float(value)
        has_gaps = True
    return Scrape(totals["sum"], totals["count"], read_counters(text)) if has_gaps else None


def reading_of(
    records: Sequence[RequestRecord],
    *,
    k: int,
    concurrency: int,
    block: int,
    seconds: float,
    scrapes: tuple[Scrape, Scrape] | None = None,
) -> Reading:
    """Compute the reading of one window from its requests.

    Args:
        records: of the whole load; only the measured ones without an error count.
        k: the requested or deployed K; 0 for the baseline.
        concurrency: of the closed loop.
        block: the round.
        seconds: length of the window.
        scrapes: the engine's counters before and after the load, if available. Its histogram of inter-token
            latencies then gives the step time: every step of a request is one observation.

    Raises:
        ServiceFault: every request failed, or acceptance or step time cannot be computed.
    """
    good = [r for r in records if r.phase == "measured" and r.error is None and (r.output_tokens or 0) > 1]
    if not good:
        first = next((r for r in records if r.error), None)
        raise ServiceFault(
            f"every request failed at K={k}, c={concurrency}"
            + (f": {first.error}: {first.error_message}" if first else ""),
            operation="tune",
            next_step="read the engine's log with peagle-sm logs NAME",
        )
    acceptance = _acceptance(good, scrapes) if k else None
    if k and acceptance is None:
        acceptance = _from_chunks(good, k)
    length = acceptance.per_step or 1.0 if acceptance else 1.0
    step_ms, steps, source = _step(good, k, scrapes)
    if not step_ms > 0:
        raise _in_one_piece("the step time")
    tokens = sum(r.output_tokens or 0 for r in good)
    return Reading(
        k=k,
        concurrency=concurrency,
        acceptance_length=length,
        # An engine with a larger K reports zeros beyond the requested one.
        survival=(acceptance.survival + (0.0,) * k)[:k] if acceptance else (),
        step_ms=step_ms,
        otps=tokens / seconds if seconds else 0.0,
        steps=acceptance.drafts if acceptance else steps,
        step_source=source,
        block=block,
    )


def _acceptance(good: Sequence[RequestRecord], scrapes: tuple[Scrape, Scrape] | None) -> Acceptance | None:
    reported = from_requests(good)
    if reported is not None and reported.survival:
        return reported
    if scrapes is not None and scrapes[0].counters is not None and scrapes[1].counters is not None:
        counted = from_counters(scrapes[1].counters - scrapes[0].counters, "metrics")
        if counted is not None and counted.survival:
            return counted
    return None


def _from_chunks(good: Sequence[RequestRecord], k: int) -> Acceptance:
    """Estimate acceptance from chunks: a chunk is a step, and survival falls by a constant ratio.

    For images before vLLM 0.29, whose answers do not report their acceptance.
    """
    steps = sum(r.chunks - 1 for r in good)
    tokens = sum((r.output_tokens or 0) - 1 for r in good)
    if steps < 1:
        raise _in_one_piece("the number of accepted drafts")
    length = min(max(tokens / steps, 1.0), 1.0 + k)
    ratio = geometric_ratio(length, k)
    survival = tuple(ratio**position for position in range(1, k + 1))
    return Acceptance("per-request", length, None, survival, steps, tokens - steps)


def _in_one_piece(unknown: str) -> ServiceFault:
    return ServiceFault(
        f"each answer came in one chunk, so {unknown} is unknown",
        operation="tune",
        next_step="use an image with vLLM 0.29 or later, whose answers report their acceptance",
    )


def geometric_ratio(acceptance_length: float, k: int) -> float:
    """Solve 1 + a + a^2 + … + a^k = ``acceptance_length`` (between 1 and k + 1) for a."""
    low, high = 0.0, 1.0
    for _ in range(60):
        middle = (low + high) / 2
        total = sum(middle**power for power in range(k + 1))
        low, high = (middle, high) if total < acceptance_length else (low, middle)
    return (low + high) / 2


def _step(
    good: Sequence[RequestRecord], k: int, scrapes: tuple[Scrape, Scrape] | None
) -> tuple[float, int, Literal["metrics", "drafts", "chunks"]]:
    """Compute milliseconds per step, the number of steps, and their source."""
    if scrapes is not None:
        count = scrapes[1].step_count - scrapes[0].step_count
        if count > 0:
            return (scrapes[1].step_seconds - scrapes[0].step_seconds) / count * 1000, round(count), "metrics"
    stream_ms = 1000 * sum((r.last_s or 0.0) - (r.first_s or 0.0) for r in good)
    tokens = sum((r.output_tokens or 0) - 1 for r in good)
    if not k:
        return stream_ms / tokens, tokens, "drafts"
    if all(r.drafts for r in good):
        # The step of the first token has no drafts; each later step has.
        steps = sum(r.drafts or 0 for r in good)
        return stream_ms / steps, steps, "drafts"
    gaps = list(_flat(r.gaps_ms for r in good))
    return sum(gaps) / len(gaps), len(gaps), "chunks"


def _flat(rows: Iterable[tuple[float, ...]]) -> Iterable[float]:
    for row in rows:
        yield from row
