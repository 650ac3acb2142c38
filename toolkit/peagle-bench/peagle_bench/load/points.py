"""Point of one load from its requests: rates, percentiles, goodput, and withheld figures. Pure.

Tokens are counted in the window, not by request: a request across its edge contributes the tokens of the
chunks that arrived inside. The server's own counter agrees with this, whatever the lengths of the answers.
Latencies are those of the requests sent in the window, each in full.

One rule decides which figures are withheld or shown with a doubt:

* If the client was the bottleneck (its CPU, its connections, its late sends), the endpoint got less load
  than the user requested: the point is withheld, and so is every comparison that depends on it.
* If only the client's event loop was late, as when engines share its cores, it still counted every token:
  rates, acceptance and comparisons are valid. Measured latencies may be too long by that lag, so they are
  shown with a note.
* In a window of few requests or less than a second, the effects at its two ends may make the rates too
  high. They are shown with the reason; the latencies are valid.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace

from peagle_bench.dialogues import FEWEST_CONVERSATIONS
from peagle_bench.load.work import ClientUsage, LoadRun, Window
from peagle_bench.results.records import (
    Acceptance,
    ClientHealth,
    ComparisonRecord,
    Goodput,
    Load,
    Percentiles,
    PointRecord,
    RequestRecord,
)


def quantile(ordered: Sequence[float], share: float) -> float:
    """Compute a quantile of sorted values by linear interpolation (numpy's default).

    Args:
        ordered: sorted ascending, at least one value.
        share: 0 to 1.
    """
    place = share * (len(ordered) - 1)
    below = math.floor(place)
    above = min(below + 1, len(ordered) - 1)
    return ordered[below] + (ordered[above] - ordered[below]) * (place - below)


#: Limits above which the client is the bottleneck, or its latencies are doubtful.
CPU_SHARE = 0.9  #: of one core, since the client has one thread
#: Of the 99th percentile of the ITL. A lag shifts that percentile by about a quarter of itself (measured on a
#: busy machine: a late chunk makes one gap longer and the next one shorter), so 0.3 keeps it within 10%.
LAG_SHARE = 0.3
LAG_FLOOR_MS = 2.0  #: smaller lags do not matter
#: Of the requests' own time, between a free slot (or a due arrival) and the sending: the load was lower than
#: requested by this share.
LATE_SHARE = 0.03


def health(
    usage: ClientUsage,
    *,
    seconds: float,
    chunks: int,
    itl_p99_ms: float | None,
    late_share: float = 0.0,
) -> ClientHealth:
    """Judge a window of ``seconds`` in which ``chunks`` chunks arrived."""
    lag = quantile(sorted(usage.lags_ms), 0.99) if usage.lags_ms else None
    share = usage.cpu_s / seconds if seconds > 0 else 0.0
    allowed = max(LAG_FLOOR_MS, LAG_SHARE * (itl_p99_ms or 0.0))
    bottleneck, reason = True, None
    if share > CPU_SHARE:
        reason = f"the client was busy {share:.0%} of the time (allowed: {CPU_SHARE:.0%})"
    elif usage.connections_full:
        reason = "requests waited for a free connection of the client"
    elif late_share > LATE_SHARE:
        reason = f"requests were sent late by {late_share:.1%} of their duration (allowed: {LATE_SHARE:.0%})"
    else:
        bottleneck = False
        if lag is not None and lag > allowed:
            reason = f"the client's event loop was {lag:.1f} ms late at p99 (allowed: {allowed:.1f} ms)"
    per_chunk = usage.cpu_s / chunks * 1e6 if chunks else None
    return ClientHealth(reason is None, reason, lag, share, per_chunk, bottleneck)


FEWEST_REQUESTS = 8  #: with fewer requests a window is too short for a rate
SHORTEST_S = 1.0
MOST_FAILED = 0.01  #: largest share of failed requests at which a load counts as served


def is_withheld(client: ClientHealth) -> bool:
    """Decide whether the point's figures must be withheld.

    Older results files have no ``bottleneck``; there an untrusted client counts as one.
    """
    return not client.trusted if client.bottleneck is None else client.bottleneck


def is_late(client: ClientHealth) -> bool:
    """Decide whether the point's rates are valid but its latencies may be too long."""
    return not client.trusted and not is_withheld(client)


def is_short(point: PointRecord) -> bool:
    """Decide whether the point's latencies are valid but its rates are doubtful."""
    return point.requests < FEWEST_REQUESTS or point.seconds < SHORTEST_S


def has_failed(point: PointRecord) -> bool:
    """Decide whether so many requests failed that the two arms have answered different workloads.

    Failures are not random: an arm that loses the prompts on which it is slow looks faster. In 2,000
    simulated runs of 64 prompts whose ratios vary by 20%, an equal arm is called faster in 2.7%, in 5.7% if
    it loses the very worst prompt, in 15% if it loses the worst three.
    """
    return too_many(sum(point.errors.values()), point.requests)


def too_many(failed: int, requests: int) -> bool:
    """Decide whether more than one request failed, and more than 1% of them."""
    return failed > max(1, MOST_FAILED * requests)


@dataclass(frozen=True)
class Separated:
    """Points and comparisons, each either shown or withheld."""

    points: tuple[PointRecord, ...]
    comparisons: tuple[ComparisonRecord, ...]
    withheld_points: tuple[PointRecord, ...]
    withheld_comparisons: tuple[ComparisonRecord, ...]


def separate_withheld(points: Sequence[PointRecord], comparisons: Iterable[ComparisonRecord]) -> Separated:
    """Apply the rule; a comparison is withheld if all points of one of its arms are withheld.

    A reason to doubt a comparison becomes its ``doubt``: then it has no verdict.
    """
    rows = with_doubts(points, comparisons)
    shown = tuple(point for point in points if not is_withheld(point.client))
    hidden = tuple(point for point in points if is_withheld(point.client))
    lost = {(point.arm, point.load) for point in hidden} - {(point.arm, point.load) for point in shown}
    return Separated(
        points=shown,
        comparisons=tuple(row for row in rows if not _depends_on(row, lost)),
        withheld_points=hidden,
        withheld_comparisons=tuple(row for row in rows if _depends_on(row, lost)),
    )


def with_doubts(
    points: Sequence[PointRecord], comparisons: Iterable[ComparisonRecord]
) -> tuple[ComparisonRecord, ...]:
    """Return the comparisons, each with the reason if it has no verdict; the others are unchanged."""
    rows = tuple(comparisons)
    doubts = [_doubt_of(row, points, rows) for row in rows]
    return tuple(
        row if row.doubt == doubt else replace(row, doubt=doubt)
        for row, doubt in zip(rows, doubts, strict=True)
    )


def _doubt_of(
    row: ComparisonRecord, points: Sequence[PointRecord], rows: Sequence[ComparisonRecord]
) -> str | None:
    """Return why a comparison has no verdict: one rule for text, JSON and pages."""
    units = row.conversations if row.conversations is not None or row.over != "prompts" else row.units
    if units is not None and units < FEWEST_CONVERSATIONS:
        plural = "" if units == 1 else "s"
        return f"{units} conversation{plural}; a verdict needs {FEWEST_CONVERSATIONS}"
    own_points = [point for point in points if point.load == row.load and point.arm in row.measured_arms]
    if any(map(is_short, own_points)):
        return "the window is too short"
    failed = next((point for point in own_points if has_failed(point)), None)
    if failed is not None:
        count = sum(failed.errors.values())
        return f"{count} of {failed.requests} requests of {failed.arm} failed"
    controls = [other for other in rows if other.control and other.load == row.load]
    if not row.control and any(control.ratio.shown for control in controls):
        return "the A/A control failed"
    return None


def doubted_lines(comparisons: Iterable[ComparisonRecord]) -> list[str]:
    """Write the notes on comparisons of too few conversations; the other doubts have notes of their own."""
    loads_by_doubt: dict[str, dict[str, None]] = {}
    for row in comparisons:
        if row.doubt is not None and "conversation" in row.doubt:
            loads_by_doubt.setdefault(row.doubt, {})[row.load.label] = None
    return [
        f"{', '.join(loads)}: no verdict: {doubt}. Turns of one conversation are one unit"
        for doubt, loads in loads_by_doubt.items()
    ]


def _depends_on(row: ComparisonRecord, lost: set[tuple[str, Load]]) -> bool:
    return any((arm, row.load) in lost for arm in row.measured_arms)


def late_lines(points: Iterable[PointRecord]) -> list[str]:
    """Write the note on latencies, with the loads at which the client was late."""
    late = [point for point in points if is_late(point.client)]
    return _lines(late, "measured latencies may be too long; rates and ratios are valid", _client)


def short_lines(points: Iterable[PointRecord]) -> list[str]:
    """Write the note on rates, with the loads whose window was too short."""
    short = [point for point in points if is_short(point) and not is_withheld(point.client)]
    return _lines(short, "measured rates may be too high", _window)


def doubt_lines(points: Sequence[PointRecord]) -> list[str]:
    """Write the notes on figures that are shown but doubtful."""
    return [*short_lines(points), *late_lines(points)]


def withheld_lines(points: Iterable[PointRecord]) -> list[str]:
    """Write the note that replaces withheld figures, with its loads."""
    return _lines([point for point in points if is_withheld(point.client)], "withheld", _client)


def _client(point: PointRecord) -> str:
    return point.client.reason or "the client was the bottleneck"


def _window(point: PointRecord) -> str:
    plural = "" if point.requests == 1 else "s"
    return f"the window is too short: {point.requests} request{plural}, {point.seconds:.1f} seconds"


def _lines(points: Iterable[PointRecord], what: str, reason_of: Callable[[PointRecord], str]) -> list[str]:
    """Format a note as one line with all its loads.

    ``c=8: WHAT: the client was 9.1 ms late … (none, p-eagle)`` for one load;
    ``c=1, c=8: WHAT: the client was 9.1 ms late … (none at c=1, c=8)`` for several.
    """
    by_reason: dict[str, dict[Load, list[str]]] = {}
    for point in points:
        by_reason.setdefault(reason_of(point), {}).setdefault(point.load, []).append(point.arm)
    loads = list(dict.fromkeys(load for by_load in by_reason.values() for load in by_load))

    def arms(by_load: dict[Load, list[str]]) -> str:
        by_names: dict[str, list[str]] = {}
        for load, arm_names in by_load.items():
            by_names.setdefault(", ".join(dict.fromkeys(arm_names)), []).append(load.label)
        if len(loads) == 1:
            return next(iter(by_names))
        return "; ".join(f"{names} at {', '.join(labels)}" for names, labels in by_names.items())

    reasons = "; ".join(f"{reason} ({arms(by_load)})" for reason, by_load in by_reason.items())
    return [f"{', '.join(load.label for load in loads)}: {what}: {reasons}"] if loads else []


@dataclass(frozen=True)
class Objective:
    """Latency limits in ms for a request, or for a point's 95th percentile; None is no limit."""

    ttft_ms: float | None = None
    tpot_ms: float | None = None
    e2e_ms: float | None = None

    def met_by(self, record: RequestRecord) -> bool:
        """Decide whether a request succeeded within every limit (a missing figure counts as within)."""
        if record.error is not None:
            return False
        pairs = (
            (self.ttft_ms, ttft_ms(record)),
            (self.tpot_ms, tpot_ms(record)),
            (self.e2e_ms, e2e_ms(record)),
        )
        return all(limit is None or value is None or value <= limit for limit, value in pairs)

    def misses(self, point: PointRecord) -> tuple[str, ...]:
        """Describe each limit that ``point`` misses; a latency that was not measured counts as missed."""
        checks = (
            ("TTFT", self.ttft_ms, point.ttft_ms),
            ("TPOT", self.tpot_ms, point.tpot_ms),
            ("end to end", self.e2e_ms, point.e2e_ms),
        )
        return tuple(
            f"{name} p95 {_ms(latency)}, limit {limit:g} ms"
            for name, limit, latency in checks
            if limit is not None and (latency is None or latency.p95 > limit)
        )


def _ms(latency: Percentiles | None) -> str:
    return "not measured" if latency is None else f"{latency.p95:.0f} ms"


def make_point(
    run: LoadRun,
    *,
    temperature: float | None = None,
    objective: Objective | None = None,
    acceptance: Acceptance | None = None,
    usd_per_hour: float | None = None,
    machine_load: float | None = None,
) -> PointRecord:
    """Summarise one load; ``requests`` and ``errors`` count the measured ones, failures included."""
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
        ),
        temperature=temperature,
        goodput=None if objective is None else _goodput(measured, objective, seconds),
        usd=None if usd_per_hour is None else usd_per_hour * seconds / 3600,
        machine_load=machine_load,
    )


def began_s(record: RequestRecord) -> float:
    """Return when the user's waiting began: in an open loop at the arrival, even if sent later."""
    return record.due_s if record.load.kind == "open" else record.sent_s


def ttft_ms(record: RequestRecord) -> float | None:
    """Compute the milliseconds to the first content chunk; None without one."""
    return None if record.first_s is None else (record.first_s - began_s(record)) * 1000


def tpot_ms(record: RequestRecord) -> float | None:
    """Compute milliseconds per token after the first: (last - first) / (N - 1); None below two tokens."""
    if record.first_s is None or record.last_s is None or (record.output_tokens or 0) < 2:
        return None
    return (record.last_s - record.first_s) * 1000 / ((record.output_tokens or 0) - 1)


def e2e_ms(record: RequestRecord) -> float:
    """Compute the milliseconds to the end of the stream."""
    return (record.done_s - began_s(record)) * 1000


def percentiles(values: Iterable[float | None]) -> Percentiles | None:
    """Compute percentiles of the values that are not None, by linear interpolation; None without any."""
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
    """Count in the window: tokens of successful requests, all chunks, and ended successful requests."""
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
                tokens += record.output_tokens or 0  # tokens without text, such as a single stop token
    return tokens, chunks, ended


def chunks_inside(record: RequestRecord, window: Window) -> int:
    """Count the chunks after the window's start, up to and including its end."""
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
