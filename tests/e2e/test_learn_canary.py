"""A promotion by canary with two instances and the real engine: an alarm takes it back, or it serves.

The local SageMaker runs one engine for the instances of a fleet, so two run: the serving head's, and that of
the canary, which gets half of the traffic. The gate in both writes the acceptance; the alarm is the
promotion's own.
"""

from __future__ import annotations

import json
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from datetime import timedelta

import pytest

from peagle_learn.core.spec import LearnSpec
from peagle_learn.data import make_data, plan_data
from peagle_learn.promote import Promotion, promote, promotions
from peagle_sm.aws.session.local_server import stand_in_weights
from peagle_sm.core.errors import EndpointFailed
from peagle_sm.service import status
from sagemaker_local.process.client import advance_clock
from scripts.bench.local_stack import LocalStack
from tests.e2e.test_learn_loop import NAME, PATIENCE_S, World, proved, tell, until, world_in

pytestmark = [pytest.mark.engine, pytest.mark.slow, pytest.mark.campaign]


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    served = {
        "placement": {"instance_count": 2},
        "serving": {"env": {"PEAGLE_GATE_SAMPLE_S": "10"}},
    }
    with LocalStack(lambda line: print(line, file=sys.stderr)) as stack:
        made = world_in(
            tmp_path_factory.mktemp("canary"), stack, served, {"promote": {"canary_minutes": 8}}, texts=40
        )
        work = made.folder / "work"
        make_data(plan_data(made.spec, stack.session, work), stack.session, work,
                  confirm=lambda offer: True, progress=tell)  # fmt: skip
        proof = proved(made, stand_in_weights() / "p-eagle")
        assert proof.decision.offered, proof.decision.reasons  # type: ignore[attr-defined]
        # The alarm's threshold comes from the last hour of live traffic, which this endpoint did not have.
        now = stack.session.now()
        stack.session.client("cloudwatch").put_metric_data(
            Namespace=f"peagle-sm/{NAME}",
            MetricData=[
                {"MetricName": "AcceptanceLength", "Timestamp": now - timedelta(minutes=ago), "Value": 4.0}
                for ago in range(5, 15)
            ],
        )
        yield made
        assert stack.delete_all() == []


class Traffic:
    """Requests one after the other until the end of the block; counts which model answered."""

    def __init__(self, world: World, temperature: float) -> None:
        self._runtime = world.stack.session.client("sagemaker-runtime")
        self.temperature = temperature
        self._prompts = [
            json.loads(line)["prompt"] for line in (world.folder / "general.jsonl").read_text().splitlines()
        ]
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._send)
        self.answered = 0
        self.errors: list[Exception] = []

    def __enter__(self) -> Traffic:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._end.set()
        self._thread.join()

    def _send(self) -> None:
        while not self._end.is_set():
            prompt = self._prompts[self.answered % len(self._prompts)]
            body = {"prompt": prompt, "max_tokens": 64, "temperature": self.temperature, "ignore_eos": True}
            try:
                answer = self._runtime.invoke_endpoint(
                    EndpointName=NAME, ContentType="application/json", Body=json.dumps(body)
                )
                answer["Body"].read()
            except Exception as error:  # every one counts: the endpoint serves all the time
                self.errors.append(error)
            self.answered += 1


def engines(world: World) -> Counter[str]:
    """Engines that serve, by model."""
    rows = world.stack.engines()
    return Counter(row["model"] for row in rows if row["endpoint"] == NAME and row["role"] == "serving")


def acceptance(world: World) -> list[float]:
    """What the gates of both fleets wrote in the last minutes, by minute."""
    now = world.stack.session.now()
    found = world.stack.session.client("cloudwatch").get_metric_statistics(
        Namespace=f"peagle-sm/{NAME}",
        MetricName="AcceptanceLength",
        StartTime=now - timedelta(minutes=10),
        EndTime=now + timedelta(minutes=1),
        Period=60,
        Statistics=["Average"],
    )["Datapoints"]
    return [round(point["Average"], 2) for point in sorted(found, key=lambda point: point["Timestamp"])]


def begun(world: World, least_acceptance: float, threads: ThreadPoolExecutor) -> Future[Promotion]:
    """Start a promotion, and return once the canary serves beside the old fleet."""
    asked = world.spec.promote.model_copy(update={"least_acceptance": least_acceptance})
    spec: LearnSpec = world.spec.model_copy(update={"promote": asked})
    session = world.stack.session
    run = threads.submit(promote, spec, world.path, session, progress=tell, unguarded=True)
    until(lambda: run.done() or len(engines(world)) == 2, "a canary beside the old fleet")
    assert not run.done(), run.exception()
    (alarm,) = session.client("cloudwatch").describe_alarms(AlarmNames=[f"peagle-{NAME}-acceptance"])[
        "MetricAlarms"
    ]
    print(f"canary serves; alarm below {alarm['Threshold']}", file=sys.stderr)
    return run


def shown(world: World) -> tuple[str, str, str | None]:
    found = status(NAME, session=world.stack.session)
    return found.config_name, found.summary.status, found.summary.spec_hash


def test_an_alarm_takes_the_canary_back_and_the_spec_stays(world: World) -> None:
    before, text = shown(world), world.path.read_text()
    with ThreadPoolExecutor(1) as threads, Traffic(world, temperature=0.0) as traffic:
        run = begun(world, 0.9, threads)
        traffic.temperature = 2.0  # hardly any draft is accepted then; sooner, no canary would come to serve
        with pytest.raises(EndpointFailed, match="SageMaker rolled back"):
            run.result(timeout=PATIENCE_S)
        print(f"{traffic.answered} answered; acceptance by minute: {acceptance(world)}", file=sys.stderr)
    assert traffic.errors == []
    assert shown(world) == before
    assert world.path.read_text() == text
    (row,) = world.stack.engines()
    assert f"alarm peagle-{NAME}-acceptance is in state ALARM with " in row["last_update_failure"]
    print(row["last_update_failure"], file=sys.stderr)
    assert promotions(world.spec, world.stack.session)[-1].state == "begun"
    alarms = world.stack.session.client("cloudwatch").describe_alarms(AlarmNamePrefix=f"peagle-{NAME}")
    assert alarms["MetricAlarms"] == []


def test_without_an_alarm_the_canary_becomes_the_fleet(world: World) -> None:
    before = shown(world)
    with ThreadPoolExecutor(1) as threads, Traffic(world, temperature=0.0) as traffic:
        run = begun(world, 0.9, threads)
        began = time.monotonic()
        # Three minutes are what the alarm looks at; the rest of the canary's time is the clock's.
        until(lambda: time.monotonic() > began + 200, "three minutes of traffic")
        seen = acceptance(world)
        assert not run.done(), run.exception()
        assert shown(world)[0] == before[0]
        print(f"{traffic.answered} answered; acceptance by minute: {seen}", file=sys.stderr)
        assert len(seen) >= 3
        advance_clock(world.stack.port, 8 * 60)
        time.sleep(2)
        assert not run.done(), "the last baking period has its own time"
        advance_clock(world.stack.port, 5 * 60)
        promoted = run.result(timeout=PATIENCE_S)
    assert traffic.errors == []
    assert promoted.state == "serves"
    assert world.endpoint.head_uri == promoted.after["head_uri"]
    after = shown(world)
    assert after[0] != before[0]
    assert after[1] == "InService"
    until(lambda: sum(engines(world).values()) == 1, "the old fleet's end")
