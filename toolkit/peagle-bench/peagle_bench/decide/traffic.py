"""Tokens and rates of traffic: from files of requests, recordings, results files, or CloudWatch.

A file that is not a recording or a results file has JSON lines with the engine's counts: ``usage`` of an
OpenAI answer, beside the request or in ``response.body`` (OpenAI's batch output).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import timedelta
from itertools import accumulate
from pathlib import Path
from typing import Any

from peagle_bench.compare.confidence_intervals import ratio
from peagle_bench.decide.costs import TokenCosts
from peagle_bench.dialogues import FEWEST_CONVERSATIONS
from peagle_bench.report.formatting import number, plural
from peagle_bench.results.records import Interval
from peagle_bench.results.result_file import read as read_results
from peagle_bench.workloads.prompt_files import json_array, json_lines, read_bytes
from peagle_bench.workloads.recorded import begins_as_record
from peagle_sm.aws.control.cloudwatch import invocations_by_hour
from peagle_sm.aws.control.sagemaker import component_names, describe_endpoint, did_you_mean
from peagle_sm.aws.session.session import Session
from peagle_sm.core.errors import NotFound, SpecError
from peagle_sm.traffic.reading import first_line
from peagle_sm.traffic.reading import read as read_recording

_HOUR_S, _DAY_S = 3600.0, 86_400.0
_LATEST = 1e11  #: seconds since 1970; a larger time, and one that is no number, is an error of the file
_MOST_TOKENS = 10**9  #: of one request; a larger count is an error of the file


@dataclass(frozen=True)
class RequestTokens:
    """Tokens of one request; ``unit`` is its conversation. ``weight``: a recording may be a sample.

    Without counts of its own it has the mean that the user gave, which need not be a whole number.
    """

    unit: str
    input: float
    output: float
    cached: int = 0
    weight: float = 1.0


@dataclass(frozen=True)
class Observed:
    """What traffic shows: its tokens, and its rates if it has times.

    ``otps`` and ``busiest`` (the busiest hour over the mean) are None if the traffic has no times, or covers
    less than an hour, or for ``busiest`` less than a day. ``rate_source`` is what the rate is of.
    """

    origin: str
    requests: tuple[RequestTokens, ...]
    otps: float | None = None
    busiest: float | None = None
    rate_source: str | None = None
    notes: tuple[str, ...] = ()

    @property
    def input_per_output(self) -> float:
        """Input tokens for each output token."""
        return self._sum("input") / self._sum("output")

    @property
    def cached_per_output(self) -> float:
        """Input tokens that were found in the prompt cache, for each output token."""
        return self._sum("cached") / self._sum("output")

    @property
    def output_per_request(self) -> float:
        """Output tokens of a request."""
        return self._sum("output") / sum(each.weight for each in self.requests)

    def usd_per_token(self, tokens: TokenCosts) -> Interval | None:
        """Return USD for each output token, with its interval over conversations; None with too few.

        No weights of these conversations leave the range of their own costs, so the interval does not either:
        one conversation with most of the tokens would make it wider than any price.
        """
        units: dict[str, tuple[float, float]] = defaultdict(lambda: (0.0, 0.0))
        for each in self.requests:
            usd, output = units[each.unit]
            cost = tokens.usd(each.input, each.output, each.cached)
            units[each.unit] = usd + cost * each.weight, output + each.output * each.weight
        if len(units) < FEWEST_CONVERSATIONS:
            return None
        try:
            mean = ratio([units], (1, -1))
        except ValueError:  # one conversation has all tokens
            return None
        own = [usd / output for usd, output in units.values() if output]
        return Interval(mean.value, max(mean.low, min(own)), max(mean.value, min(mean.high, max(own))))

    def _sum(self, name: str) -> float:
        return sum(float(getattr(each, name)) * each.weight for each in self.requests)


Tokens = tuple[float, float]
"""Mean input and output tokens of a request, as the user gave them."""


def read_traffic(target: str, session: Callable[[], Session], given: Tokens | None = None) -> Observed:
    """Read a file of requests, a recording (also a folder, or ``s3://…``), or a results file.

    ``session`` opens the session, if it is in S3. ``given`` are the tokens of requests that have no counts.

    Raises:
        SpecError: it cannot be read; no request has token counts, and none are given; or all have them, so
            that those given would not count.
        NotFound, CredentialsError, ServiceFault: S3 refuses, or does not answer.
    """
    path = Path(target)
    if target.startswith("s3://") or path.is_dir() or begins_as_record(path):
        return _recording(target, session, given)
    first = first_line(path)
    if first is not None and first.value.get("kind") == "header":
        return _results(path, given)
    return _requests(path, given)


@dataclass(frozen=True)
class _Request:
    """One request as a file has it: ``counts`` are input, output and cached tokens; None if not known."""

    unit: str
    counts: tuple[int, int, int] | None
    time: float | None = None
    weight: float = 1.0


def _recording(target: str, session: Callable[[], Session], given: Tokens | None) -> Observed:
    traffic = read_recording(target, session)
    answered = [
        _Request(
            record.conversation or record.id,
            None if record.usage is None else _counts_of(asdict(record.usage)),
            record.time,
            1 / record.sample,
        )
        for record in traffic.records
        if record.outcome != "failed"
    ]
    return _observed(target, answered, given, traffic.notes)


def _results(path: Path, given: Tokens | None) -> Observed:
    results = read_results(path)
    measured = [
        _Request(row.unit, _counts_of({name: getattr(row, name) for name in _OF_RESULTS}))
        for row in results.requests
        if row.phase == "measured" and row.error is None
    ]
    return _observed(str(path), measured, given, results.warnings)


def _requests(path: Path, given: Tokens | None) -> Observed:
    content = read_bytes(path)
    array = json_array(content, str(path))
    lines = [line for _, line in json_lines(content, str(path))] if array is None else array
    return _observed(str(path), [_line(line, str(number)) for number, line in enumerate(lines)], given)


_OF_RESULTS = ("input_tokens", "output_tokens", "cached_tokens")
_INPUT, _OUTPUT = ("prompt_tokens", "input_tokens"), ("completion_tokens", "output_tokens")


def _line(line: Mapping[str, Any], number: str) -> _Request:
    """Return the request of a line; its counts are in ``usage``, or in the line itself."""
    body = _object(_object(line, "response"), "body")
    usage = next((each for each in (_object(line, "usage"), _object(body, "usage")) if each), line)
    details = _object(usage, "prompt_tokens_details") or _object(usage, "input_tokens_details")
    time = line.get("time")
    is_time = isinstance(time, int | float) and not isinstance(time, bool) and abs(time) < _LATEST
    return _Request(
        str(line.get("conversation") or number),
        _counts_of({**usage, **details}),
        float(time or 0) if is_time else None,
    )


def _counts_of(usage: Mapping[str, Any]) -> tuple[int, int, int] | None:
    """Return input, output and cached tokens; None if one of the first two is missing."""
    read, written = _count(usage, _INPUT), _count(usage, _OUTPUT)
    if read is None or written is None:
        return None
    return read, written, min(_count(usage, ("cached_tokens",)) or 0, read)


def _object(line: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    value = line.get(name)
    return value if isinstance(value, dict) else {}


def _count(usage: Mapping[str, Any], names: Sequence[str]) -> int | None:
    value = next((usage[name] for name in names if usage.get(name) is not None), None)
    return value if type(value) is int and 0 <= value <= _MOST_TOKENS else None


def _observed(
    origin: str, requests: Sequence[_Request], given: Tokens | None, notes: Iterable[str] = ()
) -> Observed:
    missing = [each for each in requests if each.counts is None]
    _refuse_useless(origin, requests, missing, given)
    default = None if given is None else (given[0], given[1], 0)
    counted = [
        RequestTokens(each.unit, counts[0], counts[1], counts[2], each.weight)
        for each in requests
        if (counts := each.counts or default) is not None
    ]
    if missing:
        several = f"{len(missing):,} of {len(requests):,} requests have no token counts"
        taken = "those of --tokens are used" if given else "the mean of the others is used"
        notes = (*notes, f"{several}: {taken}")
    observed = Observed(origin, tuple(counted), notes=tuple(notes))
    mean = given[1] if given else observed.output_per_request
    return _with_rates(observed, requests, mean)


def _refuse_useless(
    origin: str, requests: Sequence[_Request], missing: Sequence[_Request], given: Tokens | None
) -> None:
    """Refuse requests without tokens, and tokens that are given for requests that have them."""
    details = {"requests": len(requests), "counted": len(requests) - len(missing)}
    step = (
        "record some with `peagle-sm serve NAME --record FILE`, or give the mean of a request with"
        " --tokens IN/OUT"
    )
    if not requests:
        raise SpecError(f"{origin} has no requests", next_step=step, details=details)
    if not missing and given is not None:
        raise SpecError(
            f"--tokens is for requests without token counts, and all {len(requests):,} requests of {origin}"
            " have them",
            next_step="give only one of --traffic and --tokens",
            details=details,
        )
    if given is None and len(missing) == len(requests):
        raise SpecError(
            f"{origin}: none of its {len(requests):,} requests has token counts; allowed: usage with"
            " prompt_tokens and completion_tokens, whole numbers, as in an OpenAI answer",
            next_step=step,
            details=details,
        )
    if given is None and not any(each.counts and each.counts[1] for each in requests):
        raise SpecError(f"{origin}: its requests have no output tokens", next_step=step, details=details)


def _with_rates(observed: Observed, requests: Sequence[_Request], mean: float) -> Observed:
    """Add the mean output tokens/s and the busiest hour over it, as far as the times allow.

    ``mean`` are the output tokens of a request without counts.
    """
    timed = sorted(
        (each.time, (each.counts[1] if each.counts else mean) * each.weight)
        for each in requests
        if each.time is not None
    )
    if len(timed) < len(requests) or timed[-1][0] - timed[0][0] < _HOUR_S:
        return observed
    span = timed[-1][0] - timed[0][0]
    otps = sum(tokens for _, tokens in timed) / span
    return replace(
        observed,
        otps=otps,
        busiest=_busiest(_by_hour(timed), otps, span),
        rate_source=f"{plural(len(timed), 'request')} in {number(span / _HOUR_S)} hours",
    )


def _by_hour(timed: Sequence[tuple[float, float]]) -> Iterator[float]:
    """Yield the tokens of the hour after each request. Hours of a clock would divide a peak among two."""
    sums = list(accumulate((tokens for _, tokens in timed), initial=0.0))
    end = 0
    for begin, (time, _) in enumerate(timed):
        while end < len(timed) and timed[end][0] < time + _HOUR_S:
            end += 1
        yield sums[end] - sums[begin]


def _busiest(tokens_by_hour: Iterable[float], mean: float, span_s: float) -> float | None:
    return max(1.0, max(tokens_by_hour) / _HOUR_S / mean) if span_s >= _DAY_S - _HOUR_S else None


@dataclass(frozen=True)
class Invocations:
    """Requests of an endpoint in its last day, or since its creation."""

    requests: float
    seconds: float
    busiest: float | None

    @property
    def rate_source(self) -> str:
        """What the rate is of."""
        hours = number(self.seconds / _HOUR_S)
        return f"{plural(round(self.requests), 'request')} in {hours} hours (CloudWatch)"


def last_day(session: Session, endpoint: str) -> Invocations:
    """Read the requests of an endpoint's last day from CloudWatch.

    Raises:
        NotFound: there is no such endpoint.
        SpecError: it had no requests, or is not an hour old.
        CredentialsError, ServiceFault: AWS refuses, or does not answer.
    """
    facts = describe_endpoint(session, endpoint)
    if facts is None:
        raise NotFound(
            f"no endpoint {endpoint!r} in {session.region}.{did_you_mean(session, endpoint)}",
            next_step="Run `peagle-sm list` to see existing endpoints.",
        )
    now = session.now()
    since = max(now - timedelta(days=1), facts.created_at or now - timedelta(days=1))
    variants = [variant["VariantName"] for variant in facts.raw.get("ProductionVariants") or []]
    served_by = [{"EndpointName": endpoint, "VariantName": name} for name in variants]
    served_by += [{"InferenceComponentName": name} for name in component_names(session, endpoint)]
    by_hour: dict[Any, float] = defaultdict(float)
    for dimensions in served_by:
        for hour, count in invocations_by_hour(session, dimensions, since, now).items():
            by_hour[hour] += count
    requests = sum(by_hour.values())
    if not requests:
        raise SpecError(
            f"endpoint {endpoint!r}: CloudWatch has no requests of it since {since:%Y-%m-%d %H:%M} UTC",
            next_step="Give the rate with --otps or --requests-per-s in place of --endpoint.",
        )
    seconds = (now - since).total_seconds()
    if seconds < _HOUR_S:
        raise SpecError(
            f"endpoint {endpoint!r} has no rate: it is {plural(max(1, round(seconds / 60)), 'minute')} old;"
            " allowed: at least an hour",
            next_step="Give the rate with --otps or --requests-per-s in place of --endpoint.",
            details={"seconds": seconds},
        )
    return Invocations(requests, seconds, _busiest(by_hour.values(), requests / seconds, seconds))
