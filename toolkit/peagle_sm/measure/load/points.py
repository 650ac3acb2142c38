"""From the requests of one load to its point: rates over the window, percentiles, goodput. Pure.

Tokens are counted in the window, not by request: a request that straddles its edge gives the share of its
tokens that its chunks brought inside. That is what the server's own counter says, whatever the lengths of the
answers. Latencies are of the requests that were sent in the window, and of all of each.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from peagle_sm.measure.load.health import Limits, health
from peagle_sm.measure.load.work import LoadRun, Window
from peagle_sm.measure.ranks import quantile
from peagle_sm.measure.records import (
    Acceptance,
    Goodput,
    Percentiles,
    PointRecord,
    RequestRecord,
)


@dataclass(frozen=True)
class Objective:
    """Milliseconds that a request, or the 95th percentile of a point, is to stay within; None is no limit."""

    ttft_ms: float | None = None
    tpot_ms: float | None = None
    e2e_ms: float | None = None

    def met_by(self, record: RequestRecord) -> bool:
        """Whether a request succeeded and stayed within every limit (a figure that it lacks is within)."""
        if record.error is not None:
            return False
        pairs = (
            (self.ttft_ms, ttft_ms(record)),
            (self.tpot_ms, tpot_ms(record)),
            (self.e2e_ms, e2e_ms(record)),
        )
        return all(limit is None or value is None or value <= limit for limit, value in pairs)

    def misses(self, point: PointRecord) -> tuple[str, ...]:
        """What ``point`` misses, in words; a latency that was not measured is missed."""
        checks = (
            ("TTFT", self.ttft_ms, point.ttft_ms),
            ("TPOT", self.tpot_ms, point.tpot_ms),
            ("end to end", self.e2e_ms, point.e2e_ms),
        )
        return tuple(
            f"{name} p95 {_ms(found)}, asked {limit:g} ms"
            for name, limit, found in checks
            if limit is not None and (found is None or found.p95 > limit)
        )


def _ms(found: Percentiles | None) -> str:
    return "not measured" if found is None else f"{found.p95:.0f} ms"


def make_point(
    run: LoadRun,
    *,
    temperature: float | None = None,
    objective: Objective | None = None,
    acceptance: Acceptance | None = None,
    usd_per_hour: float | None = None,
    machine_load: float | None = None,
    limits: Limits | None = None,
) -> PointRecord:
    """Sum one load up. ``requests`` and ``errors`` count the measured ones, failures included."""
    measured = [record for record in run.records if record.phase == "measured"]
    good = [record for record in measured if record.error is None]
    window = run.window
    seconds = window.seconds
    tokens, chunks, ended = _inside(run.records, window)
    itl = percentiles(gap for record in good for gap in record.gaps_ms)
    inputs = [record.input_tokens for record in good if record.input_tokens is not None]
    own = [rate for record in good if (rate := _own_rate(record)) is not None]
    return PointRecord(
        arm=run.arm,
        load=run.load,
        seconds=seconds,
        requests=len(measured),
        errors=dict(Counter(record.error for record in measured if record.error is not None)),
        input_tokens=sum(inputs) if inputs else None,
        output_tokens=round(tokens),
        otps=tokens / seconds if seconds > 0 else 0.0,
        otps_per_request=sum(own) / len(own) if own else None,
        requests_per_s=ended / seconds if seconds > 0 else 0.0,
        ttft_ms=percentiles(map(ttft_ms, good)),
        tpot_ms=percentiles(map(tpot_ms, good)),
        itl_ms=itl,
        e2e_ms=percentiles(map(e2e_ms, good)),
        acceptance=acceptance,
        client=health(
            run.usage,
            seconds=window.end_s - window.start_s,
            chunks=chunks,
            itl_p99_ms=None if itl is None else itl.p99,
            late_share=_late_share(measured),
            limits=limits,
        ),
        temperature=temperature,
        goodput=None if objective is None else _goodput(measured, objective, seconds),
        usd=None if usd_per_hour is None else usd_per_hour * seconds / 3600,
        machine_load=machine_load,
    )


def began_s(record: RequestRecord) -> float:
    """When the user's waiting began: in an open loop the arrival, however late the client sent it."""
    return record.due_s if record.load.kind == "open" else record.sent_s


def ttft_ms(record: RequestRecord) -> float | None:
    """Milliseconds to the first content chunk; None without one."""
    return None if record.first_s is None else (record.first_s - began_s(record)) * 1000


def tpot_ms(record: RequestRecord) -> float | None:
    """Milliseconds a token after the first: (last - first) / (N - 1); None below two tokens."""
    if record.first_s is None or record.last_s is None or (record.output_tokens or 0) < 2:
        return None
    return (record.last_s - record.first_s) * 1000 / ((record.output_tokens or 0) - 1)


def e2e_ms(record: RequestRecord) -> float:
    """Milliseconds to the end of the stream."""
    return (record.done_s - began_s(record)) * 1000


def percentiles(values: Iterable[float | None]) -> Percentiles | None:
    """Of the values that are there, by linear interpolation between ranks (numpy's default); None of none."""
    ordered = sorted(value for value in values if value is not None)
    if not ordered:
        return None
    p50, p95, p99 = (quantile(ordered, share) for share in (0.5, 0.95, 0.99))
    return Percentiles(p50, p95, p99, sum(ordered) / len(ordered), len(ordered))


def _late_share(measured: Sequence[RequestRecord]) -> float:
    own = sum(record.done_s - record.sent_s for record in measured)
    late = sum(max(record.client_lag_ms or 0.0, 0.0) for record in measured) / 1000
    return late / own if own > 0 else 0.0


def _own_rate(record: RequestRecord) -> float | None:
    seconds = record.done_s - began_s(record)
    return record.output_tokens / seconds if record.output_tokens is not None and seconds > 0 else None


def _inside(records: Iterable[RequestRecord], window: Window) -> tuple[float, int, int]:
    """Tokens of successful requests, chunks of all, and successful requests that ended, in the window."""
    tokens, chunks, ended = 0.0, 0, 0
    for record in records:
        within = chunks_inside(record, window)
        chunks += within
        if record.error is None:
            ends_inside = window.start_s < record.done_s <= window.end_s
            ended += ends_inside
            if record.chunks:
                tokens += (record.output_tokens or 0) * within / record.chunks
            elif ends_inside:
                tokens += record.output_tokens or 0  # tokens that show as no text, such as a lone stop token
    return tokens, chunks, ended


def chunks_inside(record: RequestRecord, window: Window) -> int:
    """Chunks after the window's begin and up to its end; what arrived at its very begin belongs before it."""
    if record.first_s is None or record.last_s is None:
        return 0
    if window.start_s < record.first_s and record.last_s <= window.end_s:
        return record.chunks
    if record.last_s <= window.start_s or record.first_s > window.end_s:
        return 0
    at, count = record.first_s, 0
    for gap in (0.0, *record.gaps_ms):
        at += gap / 1000
        count += window.start_s < at <= window.end_s
    return count


def _goodput(measured: Sequence[RequestRecord], objective: Objective, seconds: float) -> Goodput:
    met = sum(objective.met_by(record) for record in measured)
    return Goodput(
        objective.ttft_ms,
        objective.tpot_ms,
        objective.e2e_ms,
        requests_per_s=met / seconds if seconds > 0 else 0.0,
        share=met / len(measured) if measured else 0.0,
    )
