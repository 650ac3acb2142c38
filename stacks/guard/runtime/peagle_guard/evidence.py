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
# A mark older than this is set again, with a new notice, instead of looking back ever further.
_LONGEST_LOOK_BACK = timedelta(hours=6)
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
    utilisation: Series | None
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


def idle_start(lifecycle: Lifecycle, now: datetime) -> datetime:
    """Return the first whole minute of the idle time that ends now."""
    start = now - lifecycle.idle
    return _floor(start) if start == _floor(start) else _floor(start) + _MINUTE


def window(lifecycle: Lifecycle, record: Record, now: datetime) -> Window:
    """Return the time range to read: the idle time, and the time without traffic before a mark.

    Not from the mark on: what CloudWatch had not yet shown when the mark was set is before it.
    """
    idle_from = start = idle_start(lifecycle, now)
    if record.quiet_since is not None:
        start = max(min(start, record.quiet_since), start - _LONGEST_LOOK_BACK)
    return Window(start, idle_from, now, lifecycle.publish)


def judge(subjects: Sequence[Subject], within: Window) -> Evidence:
    """Judge what the metrics show within a window.

    Traffic before the idle time was shown late and is an idle time ago: the quiet begins after it, so that
    the endpoint is marked again at once, and not a sweep later.
    """
    streams = _streams_shown(subjects)
    start = within.start
    for subject in subjects:
        for what, busy in _busy(subject, start - within.interval):
            if busy + within.interval > within.idle_from:
                detail = f"{what} of {subject.name} at {busy.isoformat(timespec='minutes')}"
                return Evidence(Kind.TRAFFIC, detail=detail, streams_shown=streams)
            start = max(start, busy + within.interval)
    until: list[datetime] = []
    for subject in subjects:
        doubt = _doubt(subject, start, within)
        if doubt:
            return Evidence(Kind.UNKNOWN, detail=f"{subject.name}: {doubt}", streams_shown=streams)
        if subject.utilisation is not None:
            until.append(max(subject.utilisation.points) + within.interval)
            until.append(_requests_known_until(subject, within))
    if not until:
        return Evidence(Kind.UNKNOWN, detail="no variant or component is known")
    return Evidence(Kind.QUIET, since=start, until=min(until), streams_shown=streams)


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


def _requests_known_until(subject: Subject, within: Window) -> datetime:
    """Return up to when every request would be shown: a later datapoint of theirs, or their longest delay."""
    known = _request_minutes(subject)
    settled = within.now - within.request_lag
    return max(settled, max(known) + _MINUTE) if known else settled


def _request_minutes(subject: Subject) -> set[datetime]:
    return {*subject.invocations.points, *subject.concurrency.points}


def _doubt(subject: Subject, start: datetime, within: Window) -> str | None:
    """Return why this subject's quiet is not proven; None where it is."""
    read = (subject.invocations, subject.concurrency, subject.utilisation, subject.gpu)
    if not all(series.whole for series in read if series is not None):
        return "CloudWatch returned an incomplete response"
    if subject.utilisation is None:
        return None
    counts, now = subject.utilisation.points, within.now
    last = max((at for at in counts if at <= now), default=None)
    if last is None:
        return "no utilisation data"
    if now - last > LATE + 2 * within.interval:
        return f"utilisation data is stale: the last is of {last.isoformat(timespec='minutes')}"
    lost = _first_lost(start, counts, last, within.interval)
    if lost is not None:
        return f"utilisation is missing at {lost.isoformat(timespec='minutes')}"
    return _lost_requests(subject, start, within)


def _lost_requests(subject: Subject, start: datetime, within: Window) -> str | None:
    """Return what is lost of request metrics that are written while there is no traffic.

    A series without a datapoint in the quiet writes no zeros: there only time tells (``REQUEST_LAG``).
    """
    known = sorted(_request_minutes(subject))
    if not known or known[-1] < start:
        return None if subject.sparse else "no metric shows whether it has requests"
    if within.now - known[-1] > within.request_lag + within.interval:
        return f"request metrics stopped at {known[-1].isoformat(timespec='minutes')}"
    # The interval is the endpoint's own only with enhanced metrics; otherwise it is a minute.
    step = min([within.interval, *(other - one for one, other in pairwise(known))])
    lost = _first_lost(start, dict.fromkeys(known, 1.0), known[-1], step)
    return None if lost is None else f"request metrics are missing at {lost.isoformat(timespec='minutes')}"


def _first_lost(
    start: datetime, counts: Mapping[datetime, float], last: datetime, step: timedelta
) -> datetime | None:
    """Return the first minute from ``start`` to ``last`` of which nothing is known; None where there is none.

    Publishers jitter: a datapoint may be a minute off, or its samples may be in the next or the previous one,
    which then has twice as many as those around. More instances do not look like that: their samples are in
    those around as well.
    """
    stamps = sorted(at for at in counts if at <= last)
    first = next((number for number, at in enumerate(stamps) if at >= start), len(stamps))
    if first == 0:
        # An interval is complete after its length.
        if stamps[0] - start >= step + _jitter(step) and stamps[0] > start:
            return start
        first = 1
    spent: set[int] = set()
    for number in range(first, len(stamps)):
        one, other = stamps[number - 1], stamps[number]
        gap = other - one - _jitter(step)
        if gap <= step or other - _MINUTE < start:
            continue
        both = next(
            (n for n in (number - 1, number) if _has_both(stamps, counts, n, number) and n not in spent), None
        )
        if gap > 2 * step or both is None:
            return max(start, one + step)
        spent.add(both)
    return None


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
    """The queries of one subject, by their place in the list of all queries."""

    name: str
    invocations: Query
    concurrency: Query
    utilisation: Query | None
    gpu: Query | None
    sparse: bool

    def queries(self) -> Iterator[Query]:
        yield self.invocations
        yield self.concurrency
        if self.utilisation is not None:
            yield self.utilisation
        if self.gpu is not None:
            yield self.gpu


def look(aws: Aws, looks: Sequence[Look]) -> tuple[dict[str, Evidence], list[str]]:
    """Return the evidence about each endpoint by name, and what failed, in words.

    A call that fails makes the evidence of its endpoints unknown, and of no others.
    """
    found: dict[str, Evidence] = {}
    faults: list[str] = []
    for batch in _batches(looks):
        start = min(each.window.read_from for each, _ in batch)
        end = max(each.window.now for each, _ in batch) + _AHEAD
        queries = [query for _, wanted in batch for one in wanted for query in one.queries()]
        results: dict[str, Result] = {}
        try:
            # An endpoint with very many components may need more than one call of its own.
            for first in range(0, len(queries), MOST_QUERIES):
                results |= _ask(aws, queries[first : first + MOST_QUERIES], start, end)
        except Exception as error:
            faults.append(f"GetMetricData: {type(error).__name__}: {error}")
            found |= {
                each.endpoint.name: Evidence(Kind.UNKNOWN, detail="the metrics could not be read")
                for each, _ in batch
            }
            continue
        for each, wanted in batch:
            subjects = [_subject(one, results) for one in wanted]
            found[each.endpoint.name] = judge(subjects, each.window)
    return found, faults


def _batches(looks: Sequence[Look]) -> Iterator[list[tuple[Look, list[_Wanted]]]]:
    """Fill calls with endpoints of similar windows, so that a long one does not widen the others'."""
    batch: list[tuple[Look, list[_Wanted]]] = []
    filled = 0
    most = MOST_QUERIES
    serial = 0
    for each in sorted(looks, key=lambda one: one.window.start):
        wanted = list(_wanted(each, serial))
        count = sum(1 for one in wanted for _ in one.queries())
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
    endpoint = look.endpoint
    for number, variant in enumerate(endpoint.variants, start=serial):
        under = (("EndpointName", endpoint.name), ("VariantName", variant))
        space = "/aws/sagemaker/Endpoints"
        # Where components serve, they carry the proof; their copies are what may be in flight.
        proves = not endpoint.components
        concurrency = Query(f"c{number}", _REQUESTS, "ConcurrentRequestsPerModel", under, "Maximum")
        if endpoint.is_async:
            # Asynchronous inference publishes no Invocations, and its backlog for the endpoint as a whole.
            concurrency = Query(f"c{number}", _REQUESTS, "ApproximateBacklogSize", under[:1], "Maximum")
        yield _Wanted(
            f"variant {variant}",
            Query(f"i{number}", _REQUESTS, "Invocations", under, "Sum"),
            concurrency,
            Query(f"u{number}", space, "CPUUtilization", under, "SampleCount") if proves else None,
            _gpu(look, number, space, "GPUUtilization", under) if proves else None,
            sparse=not endpoint.is_async,
        )
    for number, component in enumerate(endpoint.components, start=serial + len(endpoint.variants)):
        its_own = (("InferenceComponentName", component),)
        space = "/aws/sagemaker/InferenceComponents"
        yield _Wanted(
            f"component {component}",
            Query(f"i{number}", _REQUESTS, "Invocations", its_own, "Sum"),
            Query(f"c{number}", _REQUESTS, "ConcurrentRequestsPerCopy", its_own, "Maximum"),
            Query(f"u{number}", space, "CPUUtilizationNormalized", its_own, "SampleCount"),
            _gpu(look, number, space, "GPUUtilizationNormalized", its_own),
            sparse=True,
        )


def _gpu(
    look: Look, number: int, space: str, metric: str, under: tuple[tuple[str, str], ...]
) -> Query | None:
    return Query(f"g{number}", space, metric, under, "Maximum") if look.streams_hidden else None


def _ask(aws: Aws, queries: Sequence[Query], start: datetime, end: datetime) -> dict[str, Result]:
    found: dict[str, Result] = {}
    token: str | None = None
    while True:
        page = aws.metric_data(queries, start, end, token)
        for result in page.items:
            before = found.get(result.id, Result(result.id, {}))
            # A part is completed by the next page; only the last word counts.
            found[result.id] = Result(result.id, {**before.points, **result.points}, result.whole)
        token = page.token
        if token is None:
            return found


def _subject(wanted: _Wanted, results: Mapping[str, Result]) -> Subject:
    def series(query: Query) -> Series:
        result = results.get(query.id)
        return Series(whole=False) if result is None else Series(result.points, result.whole)

    return Subject(
        wanted.name,
        series(wanted.invocations),
        series(wanted.concurrency),
        None if wanted.utilisation is None else series(wanted.utilisation),
        None if wanted.gpu is None else series(wanted.gpu),
        wanted.sparse,
    )
