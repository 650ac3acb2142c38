"""What one measured window shows the tuner about one K under one concurrency. Pure.

The inputs are the requests of the window and the engine's own counters before and after it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Literal

from peagle_sm.core.errors import ServiceFault
from peagle_sm.measure.benchmark.acceptance import Counters, from_counters, from_requests, read_counters
from peagle_sm.measure.results.records import Acceptance, Mode, RequestRecord, WindowRecord

StepSource = Literal["metrics", "drafts", "chunks", "simulated"]


@dataclass(frozen=True)
class Reading:
    """One mode at one K and one concurrency, over one measured window.

    ``survival[i]`` is the share of steps whose draft token i+1 was accepted (unconditional), empty without
    speculation. ``step_ms`` is the time of one verification step of one request. ``step_source`` says where
    it is from: the engine's own histogram of inter-token latency (``metrics``), stream time by verification
    steps (``drafts``), or the gaps between chunks as the client saw them (``chunks``).
    """

    k: int
    concurrency: int
    acceptance_length: float
    survival: tuple[float, ...]
    step_ms: float
    otps: float  #: output tokens a second as measured, first tokens included: for the record, not for the fit
    steps: int  #: verification steps that it rests on; 0 where they are not known
    step_source: StepSource = "drafts"
    block: int = 0  #: in which round it was taken

    @property
    def rate(self) -> float:
        """Tokens a second of all requests in flight, while they decode."""
        return self.concurrency * self.acceptance_length * 1000 / self.step_ms


def window_record(mode: Mode, reading: Reading, untrusted: str | None) -> WindowRecord:
    """The reading as a line of the results file."""
    return WindowRecord(mode=mode, untrusted=untrusted, **asdict(reading))


def reading_in(record: WindowRecord) -> Reading:
    """The reading that `window_record` wrote."""
    fields = asdict(record)
    return Reading(**{name: value for name, value in fields.items() if name not in ("mode", "untrusted")})


_GAPS = re.compile(
    r"^vllm:inter_token_latency_seconds_(sum|count)(?:\{[^}]*\})?\s+([0-9.eE+-]+)\s*$", re.MULTILINE
)


@dataclass(frozen=True)
class Scrape:
    """What the engine's ``/metrics`` said at one moment."""

    step_seconds: float  #: sum of ``vllm:inter_token_latency_seconds``: of the steps of every request
    step_count: float
    counters: Counters | None  #: None without speculation


def read_scrape(text: str) -> Scrape | None:
    """Read Prometheus text; None when it has no inter-token latencies (no answer was streamed yet: zeros)."""
    totals = {"sum": 0.0, "count": 0.0}
    found = False
    for name, value in _GAPS.findall(text):
        totals[name] += float(value)
        found = True
    return Scrape(totals["sum"], totals["count"], read_counters(text)) if found else None


def reading_of(
    records: Sequence[RequestRecord],
    *,
    k: int,
    concurrency: int,
    block: int,
    seconds: float,
    scrapes: tuple[Scrape, Scrape] | None = None,
) -> Reading:
    """Sum up the measured requests of one window.

    Args:
        records: of the whole load; only the measured ones without an error count.
        k: what the requests asked for, or what was deployed; 0 for the baseline.
        concurrency: of the closed loop.
        block: the round.
        seconds: how long the window lasted.
        scrapes: the engine's counters before and after the load, where they can be had. Its histogram of
            inter-token latencies then gives the step time: every step of a request is one observation.

    Raises:
        ServiceFault: no request went well, or nothing tells how the drafts fared.
    """
    good = [r for r in records if r.phase == "measured" and r.error is None and (r.output_tokens or 0) > 1]
    if not good:
        first = next((r for r in records if r.error), None)
        raise ServiceFault(
            f"no request was answered at K={k}, c={concurrency}"
            + (f": {first.error}: {first.error_message}" if first else ""),
            operation="tune",
            next_step="look at what the engine wrote: peagle-sm logs NAME",
        )
    acceptance = _acceptance(good, scrapes) if k else None
    if k and acceptance is None:
        acceptance = _from_chunks(good, k)
    length = acceptance.per_step or 1.0 if acceptance else 1.0
    step_ms, steps, source = _step(good, k, scrapes)
    if not step_ms > 0:
        raise _in_one_piece("how long a step takes")
    tokens = sum(r.output_tokens or 0 for r in good)
    return Reading(
        k=k,
        concurrency=concurrency,
        acceptance_length=length,
        survival=_padded(acceptance.survival, k) if acceptance else (),
        step_ms=step_ms,
        otps=tokens / seconds if seconds else 0.0,
        steps=acceptance.drafts if acceptance else steps,
        step_source=source,
        block=block,
    )


def _acceptance(good: Sequence[RequestRecord], scrapes: tuple[Scrape, Scrape] | None) -> Acceptance | None:
    told = from_requests(good)
    if told is not None and told.survival:
        return told
    if scrapes is not None and scrapes[0].counters is not None and scrapes[1].counters is not None:
        counted = from_counters(scrapes[1].counters - scrapes[0].counters, "metrics")
        if counted is not None and counted.survival:
            return counted
    return None


def _from_chunks(good: Sequence[RequestRecord], k: int) -> Acceptance:
    """Where the engine tells nothing: a chunk is a step, and survival is taken to fall by one ratio.

    That is what images before vLLM 0.32 leave: the tokens of a stream by its chunks.
    """
    steps = sum(r.chunks - 1 for r in good)
    tokens = sum((r.output_tokens or 0) - 1 for r in good)
    if steps < 1:
        raise _in_one_piece("how many drafts were accepted")
    length = min(max(tokens / steps, 1.0), 1.0 + k)
    ratio = geometric_ratio(length, k)
    survival = tuple(ratio**position for position in range(1, k + 1))
    return Acceptance("per-request", length, None, survival, steps, tokens - steps)


def _in_one_piece(unknown: str) -> ServiceFault:
    return ServiceFault(
        f"the answers came in one piece, so nothing tells {unknown}",
        operation="tune",
        next_step="use an image with vLLM 0.32 or later, whose answers carry their own acceptance",
    )


def geometric_ratio(acceptance_length: float, k: int) -> float:
    """The ratio a with 1 + a + a^2 + … + a^k = ``acceptance_length``, which lies between 1 and k + 1."""
    low, high = 0.0, 1.0
    for _ in range(60):
        middle = (low + high) / 2
        total = sum(middle**power for power in range(k + 1))
        low, high = (middle, high) if total < acceptance_length else (low, middle)
    return (low + high) / 2


def _step(
    good: Sequence[RequestRecord], k: int, scrapes: tuple[Scrape, Scrape] | None
) -> tuple[float, int, StepSource]:
    """Milliseconds a step, how many steps, and where from."""
    if scrapes is not None:
        count = scrapes[1].step_count - scrapes[0].step_count
        if count > 0:
            return (scrapes[1].step_seconds - scrapes[0].step_seconds) / count * 1000, round(count), "metrics"
    stream_ms = 1000 * sum((r.last_s or 0.0) - (r.first_s or 0.0) for r in good)
    tokens = sum((r.output_tokens or 0) - 1 for r in good)
    if not k:
        return stream_ms / tokens, tokens, "drafts"
    if all(r.drafts for r in good):
        # The step that brought the first token drafted nothing before it, and each later one had drafts.
        steps = sum(r.drafts or 0 for r in good)
        return stream_ms / steps, steps, "drafts"
    gaps = list(_flat(r.gaps_ms for r in good))
    return sum(gaps) / len(gaps), len(gaps), "chunks"


def _padded(survival: tuple[float, ...], k: int) -> tuple[float, ...]:
    """Exactly ``k`` rates: an engine started with a larger K reports zeros beyond the one that was asked."""
    return (survival + (0.0,) * k)[:k]


def _flat(rows: Iterable[tuple[float, ...]]) -> Iterable[float]:
    for row in rows:
        yield from row
