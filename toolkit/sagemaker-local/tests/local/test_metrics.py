"""What is recorded of requests and of minutes, before it goes to CloudWatch."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from sagemaker_local.engine.launching import Utilisation
from sagemaker_local.runtime.metrics import (
    COMPONENT_UTILISATION,
    INVOCATIONS,
    UTILISATION,
    Recorder,
)

DIMENSIONS = [{"Name": "EndpointName", "Value": "e"}, {"Name": "VariantName", "Value": "v"}]


class Bench:
    """A recorder whose clock and timer are set by the test."""

    def __init__(self) -> None:
        self.now = datetime(2026, 11, 20, 12, 0, 30, tzinfo=UTC)
        self.seconds = 100.0
        self.data: list[tuple[str, dict[str, Any]]] = []
        self.recorder = Recorder(now=lambda: self.now, sink=self._sink, timer=lambda: self.seconds)

    def _sink(self, namespace: str, data: list[dict[str, Any]]) -> None:
        self.data += [(namespace, datum) for datum in data]

    def values(self, name: str) -> list[float]:
        return [datum["Value"] for _, datum in self.data if datum["MetricName"] == name]

    def pass_minutes(self, minutes: int, *used: Utilisation) -> int:
        self.now += timedelta(minutes=minutes)
        return self.recorder.minutes_passed(lambda: used)


@pytest.fixture
def bench() -> Bench:
    return Bench()


def test_a_request_gives_aws_s_metrics_with_its_units_and_dimensions(bench: Bench) -> None:
    with bench.recorder.invocation("e", "v", began=99.5, instances=2) as invocation:
        bench.seconds += 2
        invocation.model_done(200)
        bench.seconds += 0.25
    units = {datum["MetricName"]: (datum["Value"], datum["Unit"]) for _, datum in bench.data}
    assert units == {
        "ConcurrentRequestsPerModel": (1, "None"),
        "Invocations": (1, "None"),
        "InvocationsPerInstance": (0.5, "None"),
        "Invocation4XXErrors": (0, "None"),
        "Invocation5XXErrors": (0, "None"),
        "InvocationModelErrors": (0, "None"),
        "ModelLatency": (2e6, "Microseconds"),
        "OverheadLatency": (0.75e6, "Microseconds"),
    }
    assert {namespace for namespace, _ in bench.data} == {INVOCATIONS}
    assert all(datum["Dimensions"] == DIMENSIONS for _, datum in bench.data)
    assert all(datum["Timestamp"] == datetime(2026, 11, 20, 12, 0, tzinfo=UTC) for _, datum in bench.data)


def test_a_stream_also_tells_its_first_chunk_and_whether_it_broke(bench: Bench) -> None:
    with bench.recorder.invocation("e", "v", began=99) as invocation:
        bench.seconds += 0.5
        invocation.chunk()
        bench.seconds += 1
        invocation.chunk()
        invocation.broken_off()
        invocation.model_done(200)
    assert bench.values("FirstChunkLatency") == [1.5e6]
    assert bench.values("FirstChunkModelLatency") == [0.5e6]
    assert bench.values("MidStreamErrors") == [1]


def test_a_client_that_left_still_counts_as_an_invocation(bench: Bench) -> None:
    with pytest.raises(KeyboardInterrupt), bench.recorder.invocation("e", "v", began=100):
        raise KeyboardInterrupt
    assert bench.values("Invocations") == [1]


def test_a_quiet_minute_has_utilisation_and_no_invocations(bench: Bench) -> None:
    assert bench.pass_minutes(0) == 0
    assert bench.pass_minutes(1, Utilisation("e", "v", 150.0, 12.5)) == 1
    assert {(n, d["MetricName"], d["Value"], d["Unit"]) for n, d in bench.data} == {
        (UTILISATION, "CPUUtilization", 150.0, "Percent"),
        (UTILISATION, "MemoryUtilization", 12.5, "Percent"),
    }


def test_a_jump_of_the_clock_fills_every_minute(bench: Bench) -> None:
    assert bench.pass_minutes(120, Utilisation("e", "v", 1.0, 1.0)) == 120
    stamps = [datum["Timestamp"] for _, datum in bench.data if datum["MetricName"] == "CPUUtilization"]
    assert len(set(stamps)) == 120
    assert stamps[-1] == datetime(2026, 11, 20, 14, 0, tzinfo=UTC)


def test_a_long_request_is_seen_in_every_minute_that_it_lasts(bench: Bench) -> None:
    with bench.recorder.invocation("e", "v", began=100):
        bench.pass_minutes(3)
    bench.pass_minutes(2)
    assert bench.values("ConcurrentRequestsPerModel") == [1, 1, 1, 1]


def test_a_component_s_request_counts_for_the_component_by_copy(bench: Bench) -> None:
    with bench.recorder.invocation("e", "v", began=100, instances=2, component="ic") as invocation:
        invocation.model_done(200)
    values = {datum["MetricName"]: datum["Value"] for _, datum in bench.data}
    assert (values["Invocations"], values["InvocationsPerCopy"]) == (1, 0.5)
    assert values["ConcurrentRequestsPerCopy"] == 0.5
    assert not values.keys() & {"InvocationsPerInstance", "ConcurrentRequestsPerModel"}
    named = [{"Name": "InferenceComponentName", "Value": "ic"}]
    assert all(datum["Dimensions"] == named for _, datum in bench.data)


def test_a_variant_uses_what_its_components_use_together(bench: Bench) -> None:
    first = Utilisation("e", "v", 50.0, 10.0, "a", 25.0, 80.0)
    second = Utilisation("e", "v", 30.0, 5.0, "b", 15.0, 40.0)
    bench.pass_minutes(1, first, second)
    by_name = {
        (namespace, datum["Dimensions"][0]["Value"], datum["MetricName"]): datum["Value"]
        for namespace, datum in bench.data
    }
    assert by_name == {
        (COMPONENT_UTILISATION, "a", "CPUUtilizationNormalized"): 25.0,
        (COMPONENT_UTILISATION, "a", "MemoryUtilizationNormalized"): 80.0,
        (COMPONENT_UTILISATION, "b", "CPUUtilizationNormalized"): 15.0,
        (COMPONENT_UTILISATION, "b", "MemoryUtilizationNormalized"): 40.0,
        (UTILISATION, "e", "CPUUtilization"): 80.0,
        (UTILISATION, "e", "MemoryUtilization"): 15.0,
    }
