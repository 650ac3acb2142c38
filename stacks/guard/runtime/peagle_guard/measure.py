"""The metrics of many endpoints in few calls, and the evidence they give.

Names and dimensions are AWS's ("Amazon SageMaker AI metrics in Amazon CloudWatch"): a variant's stand under
EndpointName and VariantName, a component's under InferenceComponentName. EndpointName alone is always empty.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from peagle_guard.aws import Aws, Query, Result
from peagle_guard.evidence import Series, Subject, Window, judge
from peagle_guard.records import Endpoint, Evidence, Kind

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
