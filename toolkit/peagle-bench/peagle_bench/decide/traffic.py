"""Tokens and rates of traffic: from files of requests, recordings, results files, or CloudWatch.

A file that is not a recording or a results file has JSON lines with the engine's counts: ``usage`` of an
OpenAI answer, beside the request or in ``response.body`` (OpenAI's batch output).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

from peagle_bench.compare.confidence_intervals import ratio
from peagle_bench.decide.costs import TokenCosts
from peagle_bench.dialogues import FEWEST_CONVERSATIONS
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


@dataclass(frozen=True)
class RequestTokens:
    """Tokens of one request; ``unit`` is its conversation. ``weight``: a recording may be a sample."""

    unit: str
    input: int
    output: int
    cached: int = 0
    time: float | None = None
    weight: float = 1.0


@dataclass(frozen=True)
class Observed:
    """What traffic shows: its tokens, and its rates if it has times.

    ``otps`` and ``busiest`` (the busiest hour over the mean) are None if the traffic has no times, or covers
    less than an hour, or for ``busiest`` less than a day.
    """

    origin: str
    requests: tuple[RequestTokens, ...]
    otps: float | None = None
    busiest: float | None = None
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
        """Return USD for each output token, with its interval over conversations; None with too few."""
        units: dict[str, tuple[float, float]] = defaultdict(lambda: (0.0, 0.0))
        for each in self.requests:
            usd, output = units[each.unit]
            cost = tokens.usd(each.input, each.output, each.cached)
            units[each.unit] = usd + cost * each.weight, output + each.output * each.weight
        try:
            return ratio([units], (1, -1)) if len(units) >= FEWEST_CONVERSATIONS else None
        except ValueError:  # one conversation has all tokens
            return None

    def _sum(self, name: str) -> float:
        return sum(float(getattr(each, name)) * each.weight for each in self.requests)


def read_traffic(target: str, session: Callable[[], Session]) -> Observed:
    """Read a file of requests, a recording (also a folder, or ``s3://…``), or a results file.

    ``session`` opens the session, if it is in S3.

    Raises:
        SpecError: it cannot be read, or no request has its token counts.
        NotFound, CredentialsError, ServiceFault: S3 refuses, or does not answer.
    """
    path = Path(target)
    if target.startswith("s3://") or path.is_dir() or begins_as_record(path):
        return _recording(target, session)
    first = first_line(path)
    if first is not None and first.value.get("kind") == "header":
        return _results(path)
    return _requests(path)


def _recording(target: str, session: Callable[[], Session]) -> Observed:
    traffic = read_recording(target, session)
    answered = [record for record in traffic.records if record.outcome != "failed"]
    counted = [
        RequestTokens(
            record.conversation or record.id,
            record.usage.prompt_tokens,
            record.usage.completion_tokens,
            record.usage.cached_tokens or 0,
            record.time,
            1 / record.sample,
        )
        for record in answered
        if record.usage is not None
        and record.usage.prompt_tokens is not None
        and record.usage.completion_tokens is not None
    ]
    return _observed(target, counted, len(answered), traffic.notes)


def _results(path: Path) -> Observed:
    results = read_results(path)
    measured = [row for row in results.requests if row.phase == "measured" and row.error is None]
    counted = [
        RequestTokens(row.unit, row.input_tokens, row.output_tokens, row.cached_tokens or 0)
        for row in measured
        if row.input_tokens is not None and row.output_tokens is not None
    ]
    return _observed(str(path), counted, len(measured), results.warnings)


def _requests(path: Path) -> Observed:
    content = read_bytes(path)
    array = json_array(content, str(path))
    lines = [line for _, line in json_lines(content, str(path))] if array is None else array
    counted = [
        tokens for number, line in enumerate(lines) if (tokens := _counts(line, str(number))) is not None
    ]
    return _observed(str(path), counted, len(lines))


_INPUT, _OUTPUT = ("prompt_tokens", "input_tokens"), ("completion_tokens", "output_tokens")


def _counts(line: Mapping[str, Any], number: str) -> RequestTokens | None:
    """Return the counts of a line: of ``usage``, or of the line itself."""
    body = _object(_object(line, "response"), "body")
    usage = next((each for each in (_object(line, "usage"), _object(body, "usage")) if each), line)
    read, written = _count(usage, _INPUT), _count(usage, _OUTPUT)
    if read is None or written is None:
        return None
    details = _object(usage, "prompt_tokens_details") or _object(usage, "input_tokens_details")
    cached = _count({**usage, **details}, ("cached_tokens",)) or 0
    time = line.get("time")
    return RequestTokens(
        str(line.get("conversation") or number),
        read,
        written,
        min(cached, read),
        float(time) if isinstance(time, int | float) and not isinstance(time, bool) else None,
    )


def _object(line: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    value = line.get(name)
    return value if isinstance(value, dict) else {}


def _count(usage: Mapping[str, Any], names: Sequence[str]) -> int | None:
    value = next((usage[name] for name in names if usage.get(name) is not None), None)
    return value if type(value) is int and value >= 0 else None


def _observed(
    origin: str, counted: Sequence[RequestTokens], requests: int, notes: Iterable[str] = ()
) -> Observed:
    if not sum(each.output for each in counted):
        raise SpecError(
            f"{origin}: none of its {requests:,} requests has token counts; allowed: usage with prompt_tokens"
            " and completion_tokens, as in an OpenAI answer",
            next_step="record some with `peagle-sm serve NAME --record FILE`, or give the mean of a"
            " request with --tokens IN/OUT in place of --traffic",
            details={"requests": requests, "counted": len(counted)},
        )
    left = requests - len(counted)
    missing = [f"{left:,} of {requests:,} requests have no token counts and are left out"] if left else []
    otps, busiest = _rates(counted)
    return Observed(origin, tuple(counted), otps, busiest, (*notes, *missing))


def _rates(requests: Sequence[RequestTokens]) -> tuple[float | None, float | None]:
    """Return the mean output tokens/s and the busiest hour over it, as far as the times allow."""
    times = [each.time for each in requests if each.time is not None]
    if len(times) < len(requests) or max(times) - min(times) < _HOUR_S:
        return None, None
    first, span = min(times), max(times) - min(times)
    by_hour: dict[int, float] = defaultdict(float)
    for each in requests:
        by_hour[int(((each.time or first) - first) // _HOUR_S)] += each.output * each.weight
    otps = sum(by_hour.values()) / span
    return otps, _busiest(by_hour.values(), otps, span)


def _busiest(tokens_by_hour: Iterable[float], mean: float, span_s: float) -> float | None:
    return max(1.0, max(tokens_by_hour) / _HOUR_S / mean) if span_s >= _DAY_S - _HOUR_S else None


@dataclass(frozen=True)
class Invocations:
    """Requests of an endpoint in its last day, or since its creation."""

    requests: float
    seconds: float
    busiest: float | None


def last_day(session: Session, endpoint: str) -> Invocations:
    """Read the requests of an endpoint's last day from CloudWatch.

    Raises:
        NotFound: there is no such endpoint.
        SpecError: it had no requests.
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
    seconds = max(60.0, (now - since).total_seconds())
    return Invocations(requests, seconds, _busiest(by_hour.values(), requests / seconds, seconds))
