"""CloudWatch metrics of endpoints, from the real traffic.

Names, units and dimensions are AWS's ("Amazon SageMaker AI metrics in Amazon CloudWatch").
Values carry the start of their minute on the local clock, as metrics at one-minute
resolution do. ``Invocations`` is sparse: a minute without traffic has no data point.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime, timedelta
from time import monotonic
from typing import Any

from sagemaker_local.engine.launching import Utilisation

INVOCATIONS = "AWS/SageMaker"
UTILISATION = "/aws/sagemaker/Endpoints"
COMPONENT_UTILISATION = "/aws/sagemaker/InferenceComponents"

# The most minutes filled after the local clock jumped: one week.
_MOST_MINUTES = 7 * 24 * 60

Sink = Callable[[str, list[dict[str, Any]]], None]
# Endpoint, variant, and the inference component when the endpoint hosts them.
Key = tuple[str, str, str | None]


@dataclass
class Invocation:
    """Progress of one request; times are seconds of a monotonic clock."""

    began: float
    model_began: float
    timer: Callable[[], float]
    status: int | None = None
    model_s: float = 0.0
    first_chunk_at: float | None = None
    broken: bool = False

    def model_done(self, status: int) -> None:
        """Note that the container has finished, with this HTTP status."""
        self.status = status
        self.model_s = self.timer() - self.model_began

    def chunk(self) -> None:
        """Note that a part of a streamed response has arrived."""
        if self.first_chunk_at is None:
            self.first_chunk_at = self.timer()

    def broken_off(self) -> None:
        """Note that a stream ended with an error after it had begun."""
        self.broken = True


class Recorder:
    """Converter of invocations and samples into CloudWatch data points."""

    def __init__(
        self, *, now: Callable[[], datetime], sink: Sink, timer: Callable[[], float] = monotonic
    ) -> None:
        self._now = now
        self._sink = sink
        self._timer = timer
        self._in_flight: Counter[Key] = Counter()
        self._copies: dict[Key, int] = {}
        self._minute = _minute_of(now())

    @contextmanager
    def invocation(
        self,
        endpoint: str,
        variant: str,
        began: float,
        instances: int = 1,
        *,
        component: str | None = None,
    ) -> Iterator[Invocation]:
        """Follow one request to the model from its arrival (``began``) to its end, and record it.

        ``instances`` serve the variant; for a component it is the number of its copies.
        """
        key = (endpoint, variant, component)
        self._copies[key] = instances
        self._in_flight[key] += 1
        self._concurrency(key, _minute_of(self._now()))
        current = Invocation(began=began, model_began=self._timer(), timer=self._timer)
        try:
            yield current
        finally:
            self._in_flight[key] -= 1
            self._record(key, current, instances)

    def no_capacity(self, component: str) -> None:
        """Record a request that found no copy of the component; scaling from zero uses this metric."""
        dimensions, at = [_component_dimension(component)], _minute_of(self._now())
        self._sink(INVOCATIONS, [_datum("NoCapacityInvocationFailures", 1, "None", dimensions, at)])

    def minutes_passed(self, sample: Callable[[], Sequence[Utilisation]]) -> int:
        """Record every minute that ended since the last call; return their number.

        After a jump of the local clock all of its minutes get the present sample: on this
        machine nothing happened in between.
        """
        minute = _minute_of(self._now())
        passed = min(int((minute - self._minute).total_seconds() // 60), _MOST_MINUTES)
        if passed <= 0:
            return 0
        used = sample()
        for back in range(passed - 1, -1, -1):
            at = minute - timedelta(minutes=back)
            for key, running in self._in_flight.items():
                if running:
                    self._concurrency(key, at)
            self._used(used, at)
        self._minute = minute
        return passed

    def _used(self, used: Sequence[Utilisation], at: datetime) -> None:
        """Return usage: for variants the sum of their engines, for components one value each."""
        variants: dict[tuple[str, str], tuple[float, float]] = {}
        for use in used:
            cpu, memory = variants.get((use.endpoint, use.variant), (0.0, 0.0))
            variants[use.endpoint, use.variant] = (cpu + use.cpu_percent, memory + use.memory_percent)
            if use.component is not None:
                shares = (
                    ("CPUUtilizationNormalized", use.cpu_normalised),
                    ("MemoryUtilizationNormalized", use.memory_normalised),
                )
                dimensions = [_component_dimension(use.component)]
                data = [_datum(name, value, "Percent", dimensions, at) for name, value in shares]
                self._sink(COMPONENT_UTILISATION, data)
        for (endpoint, variant), (cpu, memory) in variants.items():
            dimensions = _dimensions((endpoint, variant, None))
            self._sink(
                UTILISATION,
                [
                    _datum("CPUUtilization", cpu, "Percent", dimensions, at),
                    _datum("MemoryUtilization", memory, "Percent", dimensions, at),
                ],
            )

    def _concurrency(self, key: Key, at: datetime) -> None:
        running = float(self._in_flight[key])
        name = "ConcurrentRequestsPerModel"
        if key[2] is not None:
            name, running = "ConcurrentRequestsPerCopy", running / self._copies[key]
        self._sink(INVOCATIONS, [_datum(name, running, "None", _dimensions(key), at)])

    def _record(self, key: Key, done: Invocation, instances: int) -> None:
        ended = self._timer()
        model_s = done.model_s if done.status is not None else ended - done.model_began
        overhead_s = max(0.0, ended - done.began - model_s)
        status = done.status or 0
        values: list[tuple[str, float, str]] = [
            ("Invocations", 1, "None"),
            ("InvocationsPerCopy" if key[2] else "InvocationsPerInstance", 1 / instances, "None"),
            ("Invocation4XXErrors", float(400 <= status < 500), "None"),
            ("Invocation5XXErrors", float(status >= 500), "None"),
            ("InvocationModelErrors", float(status >= 400), "None"),
            ("ModelLatency", model_s * 1e6, "Microseconds"),
            ("OverheadLatency", overhead_s * 1e6, "Microseconds"),
        ]
        if done.first_chunk_at is not None:
            values.append(("FirstChunkLatency", (done.first_chunk_at - done.began) * 1e6, "Microseconds"))
            first = (done.first_chunk_at - done.model_began) * 1e6
            values.append(("FirstChunkModelLatency", first, "Microseconds"))
            values.append(("MidStreamErrors", float(done.broken), "None"))
        at, dimensions = _minute_of(self._now()), _dimensions(key)
        self._sink(INVOCATIONS, [_datum(name, value, unit, dimensions, at) for name, value, unit in values])


def _minute_of(moment: datetime) -> datetime:
    return moment.replace(second=0, microsecond=0)


def _component_dimension(name: str) -> dict[str, str]:
    return {"Name": "InferenceComponentName", "Value": name}


def _dimensions(key: Key) -> list[dict[str, str]]:
    if key[2] is not None:
        return [_component_dimension(key[2])]
    return [{"Name": "EndpointName", "Value": key[0]}, {"Name": "VariantName", "Value": key[1]}]


def _datum(
    name: str, value: float, unit: str, dimensions: list[dict[str, str]], at: datetime
) -> dict[str, Any]:
    return {"MetricName": name, "Value": value, "Unit": unit, "Dimensions": dimensions, "Timestamp": at}
