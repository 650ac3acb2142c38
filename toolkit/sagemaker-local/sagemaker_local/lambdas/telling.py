"""Metrics (AWS/Lambda) and logs of invocations."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from sagemaker_local.clock import LocalClock
from sagemaker_local.lambdas.records import Function
from sagemaker_local.lambdas.runner import Outcome
from sagemaker_local.other_services.moto import Moto

_NAMESPACE = "AWS/Lambda"
# CloudWatch cuts events at 256 KB.
_LONGEST_EVENT = 262_118


class Teller:
    """Writes on the local clock."""

    def __init__(self, moto: Moto, clock: LocalClock) -> None:
        self._moto = moto
        self._clock = clock

    def throttled(self, function: Function) -> None:
        """Note that an invocation was refused."""
        self._put(function, self._clock.now(), [("Throttles", 1.0, "Count")])

    def ended(self, function: Function, began: datetime, outcome: Outcome) -> None:
        """Note an invocation's end: its metrics at the minute in which it began, its output in its log."""
        values = [
            ("Invocations", 1.0, "Count"),
            ("Errors", 0.0 if outcome.error is None else 1.0, "Count"),
            ("Throttles", 0.0, "Count"),
            ("Duration", outcome.duration_ms, "Milliseconds"),
        ]
        self._put(function, began, values)
        at = int(self._clock.now().timestamp() * 1000)
        lines = [line[:_LONGEST_EVENT] for line in report(function, outcome) if line.strip()]
        stream = f"{began:%Y/%m/%d}/[$LATEST]{outcome.request_id.replace('-', '')}"
        self._moto.put_log_events(function.log_group, stream, [(at, line) for line in lines], function.role)

    def _put(self, function: Function, at: datetime, values: list[tuple[str, float, str]]) -> None:
        minute = at.replace(second=0, microsecond=0)
        for dimensions in ([], [("FunctionName", function.name)]):
            named = [{"Name": name, "Value": value} for name, value in dimensions]
            self._moto.put_metrics(_NAMESPACE, [_datum(*value, named, minute) for value in values])


def report(function: Function, outcome: Outcome) -> list[str]:
    """Return an invocation's log as Lambda writes it (the plain text format)."""
    request = f"RequestId: {outcome.request_id}"
    return [
        f"START {request} Version: $LATEST",
        *outcome.output,
        f"END {request}",
        f"REPORT {request}\tDuration: {outcome.duration_ms:.2f} ms\tMemory Size: {function.memory_mb} MB",
    ]


def _datum(
    name: str, value: float, unit: str, dimensions: list[dict[str, str]], at: datetime
) -> dict[str, Any]:
    return {"MetricName": name, "Value": value, "Unit": unit, "Dimensions": dimensions, "Timestamp": at}
