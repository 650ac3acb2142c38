"""From CloudWatch metrics to traffic, quiet or unknown.

Instances publish utilisation, SageMaker's front end publishes requests. Each publisher must prove that its
data is fresh. Utilisation has a datapoint for every interval. ``Invocations`` may be sparse: its absence
proves nothing until ``REQUEST_LAG`` has passed. Traffic anywhere is traffic. `judge` is pure.

`look` reads the metrics of many endpoints in few calls. Names and dimensions are AWS's ("Amazon SageMaker
AI metrics in Amazon CloudWatch"): a variant's metrics have EndpointName and VariantName, a component's have
InferenceComponentName. EndpointName alone is always empty.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from itertools import pairwise

from peagle_guard.aws import Aws, Query, Result
from peagle_guard.records import Endpoint, Evidence, Kind, Lifecycle, Record

_MINUTE = timedelta(minutes=1)
# CloudWatch shows a datapoint up to five minutes after the end of its interval, and the next one an interval
# later. What is later still is stale.
LATE = timedelta(minutes=5)
# The longest delay of request metrics that is waited for, from the start of a minute: the minute itself, the
# usual two minutes, and 24 in which their publisher is late.
REQUEST_LAG = timedelta(minutes=27)
# A GPU that answers nobody is at 0; one that decodes a single stream is far above this.
IDLE_GPU_PERCENT = 5.0
# An older mark is set again, instead of looking back ever further.
LONGEST_MARK = timedelta(hours=6)
# How far around a lost minute its samples are compared.
_AROUND = 3


@dataclass(frozen=True)
class Series:
    """One metric by minute; ``whole`` is False when CloudWatch failed or gave a part."""

    points: Mapping[datetime, float] = field(default_factory=dict)
    whole: bool = True


@dataclass(frozen=True)
class Subject:
    """One variant or inference component: its requests, and the utilisation that shows its instances write.

    ``utilisation`` counts samples; it is None for a variant whose components carry the proof. ``gpu`` is read
    only where requests in flight are not shown. ``sparse``: without requests there may be no datapoint.
    """

    name: str
    invocations: Series
    concurrency: Series
    utilisation: Series | None = None
    gpu: Series | None = None
    sparse: bool = True


@dataclass(frozen=True)
class Window:
    """What is judged: from ``start`` (a whole minute) to ``now``; the idle time begins at ``idle_from``.

    ``every`` is the interval at which the endpoint's instances publish utilisation; with enhanced metrics its
    requests too.
    """

    start: datetime
    idle_from: datetime
    now: datetime
    every: timedelta = _MINUTE

    @property
    def interval(self) -> timedelta:
        """The time that one datapoint covers: CloudWatch is read by the minute."""
        return max(self.every, _MINUTE)

    @property
    def read_from(self) -> datetime:
        """The first minute to read: what came before the window shows whether a series writes zeros."""
        return self.start - self.request_lag

    @property
    def request_lag(self) -> timedelta:
        """The longest delay of a datapoint of requests, from the start of its interval."""
        return REQUEST_LAG + self.interval - _MINUTE


@dataclass(frozen=True)
class _Doubt:
    """Why quiet is not proven up to ``until``; None: at no time."""

    detail: str
    until: datetime | None = None


def idle_start(lifecycle: Lifecycle, now: datetime) -> datetime:
    """Return the first whole minute of the idle time that ends now."""
    start = now - lifecycle.idle
    return _floor(start) if start == _floor(start) else _floor(start) + _MINUTE


def window(lifecycle: Lifecycle, record: Record, now: datetime) -> Window:
    """Return the time range to read: the idle time, and the idle time before a mark.

    Not from the mark on: what CloudWatch had not yet shown when the mark was set is before it.
    """
    idle_from = start = idle_start(lifecycle, now)
    if record.marked_at is not None and now - record.marked_at <= LONGEST_MARK:
        start = min(start, idle_start(lifecycle, record.marked_at))
    return Window(start, idle_from, now, lifecycle.publish)


def judge(subjects: Sequence[Subject], within: Window) -> Evidence:
    """Judge what the metrics show within a window.

    A request before the idle time was shown late; a minute that was lost before the idle time may hide one.
    Both are an idle time ago, and the quiet begins after them. So a lost minute costs what a request in it
    would have cost, and no more.
    """
    streams = _streams_shown(subjects)
    start, used_at = within.start, None
    for subject in subjects:
        for what, busy in _busy(subject, start - within.interval):
            if busy + within.interval > within.idle_from:
                detail = f"{what} of {subject.name} at {busy.isoformat(timespec='minutes')}"
                return Evidence(Kind.TRAFFIC, detail=detail, streams_shown=streams)
            start = max(start, busy + within.interval)
            used_at = start - within.interval
    since, until = start, list[datetime]()
    for subject in subjects:
        for doubt in _doubts(subject, start, within):
            if doubt.until is None or doubt.until > within.idle_from:
                detail = f"{subject.name}: {doubt.detail}"
                return Evidence(Kind.UNKNOWN, detail=detail, streams_shown=streams)
            since = max(since, doubt.until)
        until += _proven_until(subject, within)
    if not until:
        return Evidence(Kind.UNKNOWN, detail="no variant or component is known")
    return Evidence(Kind.QUIET, since=since, until=min(until), streams_shown=streams, used_at=used_at)


def _busy(subject: Subject, after: datetime) -> Iterator[tuple[str, datetime]]:
    """Yield for each metric that shows traffic its name and its last such minute."""
    for what, series, most in (
        ("Invocations", subject.invocations, 0.0),
        ("concurrent requests", subject.concurrency, 0.0),
        ("GPU utilisation", subject.gpu or Series(), IDLE_GPU_PERCENT),
    ):
        busy = [at for at, value in series.points.items() if value > most and at > after]
        if busy:
            yield what, max(busy)


def _streams_shown(subjects: Sequence[Subject]) -> bool | None:
    """Return whether requests in flight are shown; None without traffic by which to tell."""
    served = [
        each
        for each in subjects
        if each.utilisation is not None and any(value > 0 for value in each.invocations.points.values())
    ]
    return all(each.concurrency.points for each in served) if served else None


def _proven_until(subject: Subject, within: Window) -> Iterator[datetime]:
    """Yield for each publisher of a subject up to when its data reaches.

    A request would be shown by a later datapoint of its publisher, or after the longest delay.
    """
    if subject.utilisation is None:
        return
    yield max(subject.utilisation.points) + within.interval
    if subject.gpu is not None and subject.gpu.points:
        yield max(subject.gpu.points) + within.interval
    known = _request_minutes(subject)
    settled = within.now - within.request_lag
    yield max(settled, max(known) + _MINUTE) if known else settled


def _request_minutes(subject: Subject) -> set[datetime]:
    return {*subject.invocations.points, *subject.concurrency.points}


def _doubts(subject: Subject, start: datetime, within: Window) -> Iterator[_Doubt]:
    """Yield why this subject's quiet is not proven from ``start`` on."""
    read = (subject.invocations, subject.concurrency, subject.utilisation, subject.gpu)
    if not all(series.whole for series in read if series is not None):
        yield _Doubt("CloudWatch returned an incomplete response")
        return
    if subject.utilisation is None:
        return
    counts = subject.utilisation.points
    last = max((at for at in counts if at <= within.now), default=None)
    if last is None:
        yield _Doubt("no utilisation data")
    elif _is_stale(last, within.now, within):
        yield _Doubt(f"utilisation data is stale: the last is of {last.isoformat(timespec='minutes')}")
    else:
        yield from _lost_utilisation(subject, start, last, within)
        yield from _lost_requests(subject, start, within)


def _is_stale(last: datetime, now: datetime, within: Window) -> bool:
    return now - last > LATE + 2 * within.interval


def _lost_utilisation(subject: Subject, start: datetime, last: datetime, within: Window) -> Iterator[_Doubt]:
    """Yield the gaps in what the instances write, except where each minute's requests are written.

    Only the datapoint after the newest shows whether the newest holds the samples of a gap before it.
    Where requests in flight are not shown, only the GPUs show them, so each of their minutes is needed.
    """
    counts = {} if subject.utilisation is None else subject.utilisation.points
    requests = set() if subject.gpu is not None else _request_minutes(subject)
    for begin, end in _gaps(start, counts, last, within.interval):
        minutes = (begin + number * _MINUTE for number in range((end - begin) // _MINUTE))
        if not all(minute in requests for minute in minutes):
            detail = f"utilisation is missing at {begin.isoformat(timespec='minutes')}"
            yield _Doubt(detail, None if end == last else end)
    gpu = {} if subject.gpu is None else subject.gpu.points
    if not gpu:
        return
    newest = max(gpu)
    if _is_stale(newest, last, within):
        yield _Doubt(f"GPU utilisation is stale: the last is of {newest.isoformat(timespec='minutes')}")
    for at in counts:
        if start <= at <= newest and at not in gpu:
            detail = f"GPU utilisation is missing at {at.isoformat(timespec='minutes')}"
            yield _Doubt(detail, at + within.interval)


def _lost_requests(subject: Subject, start: datetime, within: Window) -> Iterator[_Doubt]:
    """Yield what is lost of request metrics that are written while there is no traffic.

    A series without a datapoint in the quiet writes no zeros: there only time tells (``REQUEST_LAG``). A
    series whose zeros stopped before the idle time writes none any more.
    """
    known = sorted(_request_minutes(subject))
    if not known or known[-1] < start:
        if not subject.sparse:
            yield _Doubt("no metric shows whether it has requests")
        return
    last = known[-1]
    if within.now - last > within.request_lag + within.interval:
        after = last + within.interval if subject.sparse else None
        yield _Doubt(f"request metrics stopped at {last.isoformat(timespec='minutes')}", after)
        return
    # The interval is the endpoint's own only with enhanced metrics; otherwise it is a minute.
    step = min([within.interval, *(later - earlier for earlier, later in pairwise(known))])
    for begin, end in _gaps(start, dict.fromkeys(known, 1.0), last, step):
        yield _Doubt(f"request metrics are missing at {begin.isoformat(timespec='minutes')}", end)


def _gaps(
    start: datetime, counts: Mapping[datetime, float], last: datetime, step: timedelta
) -> Iterator[tuple[datetime, datetime]]:
    """Yield the gaps between ``start`` and ``last``: their first minute, and the datapoint that ends them.

    Publishers jitter: a datapoint may be a minute off, or its samples may be in the next or the previous one,
    which then has twice as many as those around. More instances do not look like that: their samples are in
    those around as well.
    """
    stamps = sorted(at for at in counts if at <= last)
    first = next((number for number, at in enumerate(stamps) if at >= start), len(stamps))
    if first == 0:
        # An interval is complete after its length.
        if stamps[0] - start >= step + _jitter(step) and stamps[0] > start:
            yield start, stamps[0]
        first = 1
    spent: set[int] = set()
    for number in range(first, len(stamps)):
        earlier, later = stamps[number - 1], stamps[number]
        gap = later - earlier - _jitter(step)
        if gap <= step or later - _MINUTE < start:
            continue
        both = next(
            (n for n in (number - 1, number) if _has_both(stamps, counts, n, number) and n not in spent), None
        )
        if gap > 2 * step or both is None:
            yield max(start, earlier + step), later
        else:
            spent.add(both)


def _jitter(step: timedelta) -> timedelta:
    """Return how far from its interval a datapoint may be: below CloudWatch's minute nothing shows."""
    return timedelta() if step <= _MINUTE else _MINUTE


def _has_both(stamps: Sequence[datetime], counts: Mapping[datetime, float], number: int, gap: int) -> bool:
    """Return whether a datapoint beside the gap before stamp ``gap`` holds the lost samples too."""
    before = [counts[at] for at in stamps[max(0, min(number, gap) - _AROUND) : min(number, gap)]]
    after = [counts[at] for at in stamps[max(number + 1, gap) :][:_AROUND]]
    if not before or not after:
        return False
    usual = max(*before, *after)
    return 0 < 2 * usual <= counts[stamps[number]]


def _floor(moment: datetime) -> datetime:
    return moment.replace(second=0, microsecond=0)


MOST_QUERIES = 500
# The datapoints of a batch of endpoints, which are held at once: those that one page of GetMetricData may
# hold. A week of many endpoints would not fit in the Lambda's memory.
MOST_POINTS = 100_800
# A sweep may last this long, and what CloudWatch shows meanwhile counts too.
_AHEAD = timedelta(minutes=5)
_REQUESTS = "AWS/SageMaker"


@dataclass(frozen=True)
class Look:
    """One endpoint, and the window in which its metrics are judged."""

    endpoint: Endpoint
    window: Window
    # CloudWatch does not show its requests in flight, so its GPUs are read too.
    streams_hidden: bool = False


@dataclass(frozen=True)
class _Wanted:
    """The queries of one subject, by the fields of `Subject` that they fill."""

    name: str
    queries: Mapping[str, Query]
    sparse: bool = True


def look(aws: Aws, looks: Sequence[Look]) -> tuple[dict[str, Evidence], list[str]]:
    """Return the evidence about each endpoint by name, and what failed, in words.

    A call that fails makes the evidence of its endpoints unknown, and of no others.
    """
    by_name: dict[str, Evidence] = {}
    faults: list[str] = []
    for batch in _batches(looks):
        start = min(each.window.read_from for each, _ in batch)
        end = max(each.window.now for each, _ in batch) + _AHEAD
        queries = [query for _, wanted in batch for subject in wanted for query in subject.queries.values()]
        results: dict[str, Result] = {}
        try:
            # An endpoint with very many components may need more than one call of its own.
            for first in range(0, len(queries), MOST_QUERIES):
                results |= _ask(aws, queries[first : first + MOST_QUERIES], start, end)
        except Exception as error:
            faults.append(f"GetMetricData: {type(error).__name__}: {error}")
            by_name |= {
                each.endpoint.name: Evidence(Kind.UNKNOWN, detail="the metrics could not be read")
                for each, _ in batch
            }
            continue
        for each, wanted in batch:
            by_name[each.endpoint.name] = judge(
                [_subject(subject, results) for subject in wanted], each.window
            )
    return by_name, faults


def _batches(looks: Sequence[Look]) -> Iterator[list[tuple[Look, list[_Wanted]]]]:
    """Fill calls with endpoints of similar windows, so that a long one does not widen the others'."""
    batch: list[tuple[Look, list[_Wanted]]] = []
    filled = 0
    most = MOST_QUERIES
    serial = 0
    for each in sorted(looks, key=lambda each: each.window.start):
        wanted = list(_wanted(each, serial))
        count = sum(len(subject.queries) for subject in wanted)
        serial += len(wanted)
        if batch and filled + count > most:
            yield batch
            batch, filled = [], 0
        if not batch:
            # The first has the longest window.
            minutes = (each.window.now + _AHEAD - each.window.read_from) // timedelta(minutes=1)
            most = min(MOST_QUERIES, MOST_POINTS // minutes)
        batch.append((each, wanted))
        filled += count
    if batch:
        yield batch


def _wanted(look: Look, serial: int) -> Iterator[_Wanted]:
    """Yield the queries of each variant and component; ``serial`` makes their ids unique within a batch."""
    endpoint = look.endpoint
    for number, variant in enumerate(endpoint.variants, start=serial):
        under = (("EndpointName", endpoint.name), ("VariantName", variant))
        space = "/aws/sagemaker/Endpoints"
        concurrency = Query(f"c{number}", _REQUESTS, "ConcurrentRequestsPerModel", under, "Maximum")
        if endpoint.is_async:
            # Asynchronous inference publishes no Invocations, and its backlog for the endpoint as a whole.
            concurrency = Query(f"c{number}", _REQUESTS, "ApproximateBacklogSize", under[:1], "Maximum")
        queries = {
            "invocations": Query(f"i{number}", _REQUESTS, "Invocations", under, "Sum"),
            "concurrency": concurrency,
        }
        if not endpoint.components:  # else they carry the proof: their copies are what may be in flight
            queries |= _of_instances(look, number, space, "", under)
        yield _Wanted(f"variant {variant}", queries, sparse=not endpoint.is_async)
    for number, component in enumerate(endpoint.components, start=serial + len(endpoint.variants)):
        by_component = (("InferenceComponentName", component),)
        space = "/aws/sagemaker/InferenceComponents"
        queries = {
            "invocations": Query(f"i{number}", _REQUESTS, "Invocations", by_component, "Sum"),
            "concurrency": Query(
                f"c{number}", _REQUESTS, "ConcurrentRequestsPerCopy", by_component, "Maximum"
            ),
            **_of_instances(look, number, space, "Normalized", by_component),
        }
        yield _Wanted(f"component {component}", queries)


def _of_instances(
    look: Look, number: int, space: str, suffix: str, under: tuple[tuple[str, str], ...]
) -> dict[str, Query]:
    queries = {"utilisation": Query(f"u{number}", space, f"CPUUtilization{suffix}", under, "SampleCount")}
    if look.streams_hidden:
        queries["gpu"] = Query(f"g{number}", space, f"GPUUtilization{suffix}", under, "Maximum")
    return queries


def _ask(aws: Aws, queries: Sequence[Query], start: datetime, end: datetime) -> dict[str, Result]:
    results: dict[str, Result] = {}
    token: str | None = None
    while True:
        page = aws.metric_data(queries, start, end, token)
        for result in page.items:
            before = results.get(result.id, Result(result.id, {}))
            # A part is completed by the next page; only the last word counts.
            results[result.id] = Result(result.id, {**before.points, **result.points}, result.whole)
        token = page.token
        if token is None:
            return results


def _subject(wanted: _Wanted, results: Mapping[str, Result]) -> Subject:
    def series(query: Query) -> Series:
        result = results.get(query.id)
        return Series(whole=False) if result is None else Series(result.points, result.whole)

    filled = {field: series(query) for field, query in wanted.queries.items()}
    return Subject(name=wanted.name, sparse=wanted.sparse, **filled)
