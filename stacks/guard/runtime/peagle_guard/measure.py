"""The metrics of many endpoints in few calls, and the evidence they give.

Names and dimensions are AWS's ("Amazon SageMaker AI metrics in Amazon CloudWatch"): a variant's stand under
EndpointName and VariantName, a component's under InferenceComponentName. EndpointName alone is always empty.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from peagle_guard.aws import Aws, Query, Result
from peagle_guard.evidence import Series, Subject, judge
from peagle_guard.records import Endpoint, Evidence, Kind

MOST_QUERIES = 500
_REQUESTS = "AWS/SageMaker"


@dataclass(frozen=True)
class Look:
    """One endpoint to be looked at, the start of its window, and of the idle time within it."""

    endpoint: Endpoint
    start: datetime
    idle_from: datetime


@dataclass(frozen=True)
class _Wanted:
    """The queries of one subject, by their place in the list of all queries."""

    name: str
    invocations: Query
    concurrency: Query
    utilisation: Query | None

    def queries(self) -> Iterator[Query]:
        yield self.invocations
        yield self.concurrency
        if self.utilisation is not None:
            yield self.utilisation


def look(aws: Aws, looks: Sequence[Look], now: datetime) -> tuple[dict[str, Evidence], list[str]]:
    """Return the evidence about each endpoint by name, and what failed, in words.

    A call that fails makes the evidence of its endpoints unknown, and of no others.
    """
    found: dict[str, Evidence] = {}
    faults: list[str] = []
    for batch in _batches(looks):
        start = min(each.start for each, _ in batch)
        queries = [query for _, wanted in batch for one in wanted for query in one.queries()]
        results: dict[str, Result] = {}
        try:
            # An endpoint with very many components may need more than one call of its own.
            for first in range(0, len(queries), MOST_QUERIES):
                results |= _ask(aws, queries[first : first + MOST_QUERIES], start, now)
        except Exception as error:
            faults.append(f"GetMetricData: {type(error).__name__}: {error}")
            found |= {
                each.endpoint.name: Evidence(Kind.UNKNOWN, detail="the metrics could not be read")
                for each, _ in batch
            }
            continue
        for each, wanted in batch:
            subjects = [_subject(one, results) for one in wanted]
            found[each.endpoint.name] = judge(subjects, each.start, now, each.idle_from)
    return found, faults


def _batches(looks: Sequence[Look]) -> Iterator[list[tuple[Look, list[_Wanted]]]]:
    """Fill calls with endpoints of like windows, so that a long one does not widen the others'."""
    batch: list[tuple[Look, list[_Wanted]]] = []
    filled = 0
    serial = 0
    for each in sorted(looks, key=lambda one: one.start):
        wanted = list(_wanted(each.endpoint, serial))
        count = sum(1 for one in wanted for _ in one.queries())
        serial += len(wanted)
        if batch and filled + count > MOST_QUERIES:
            yield batch
            batch, filled = [], 0
        batch.append((each, wanted))
        filled += count
    if batch:
        yield batch


def _wanted(endpoint: Endpoint, serial: int) -> Iterator[_Wanted]:
    # Where components serve, they carry the proof; their copies are what may be in flight.
    proof = "" if endpoint.components else "CPUUtilization"
    for number, variant in enumerate(endpoint.variants, start=serial):
        under = (("EndpointName", endpoint.name), ("VariantName", variant))
        metrics = ("ConcurrentRequestsPerModel", "/aws/sagemaker/Endpoints", proof)
        yield _three(f"variant {variant}", number, under, *metrics)
    for number, component in enumerate(endpoint.components, start=serial + len(endpoint.variants)):
        metrics = (
            "ConcurrentRequestsPerCopy",
            "/aws/sagemaker/InferenceComponents",
            "CPUUtilizationNormalized",
        )
        yield _three(f"component {component}", number, (("InferenceComponentName", component),), *metrics)


def _three(
    name: str, number: int, under: tuple[tuple[str, str], ...], concurrency: str, space: str, proof: str
) -> _Wanted:
    return _Wanted(
        name,
        Query(f"i{number}", _REQUESTS, "Invocations", under, "Sum"),
        Query(f"c{number}", _REQUESTS, concurrency, under, "Maximum"),
        Query(f"u{number}", space, proof, under, "SampleCount") if proof else None,
    )


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
    )
