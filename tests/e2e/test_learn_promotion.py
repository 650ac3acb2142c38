"""Proof, promotion by canary and rollback with two instances and the real engine; damaged heads do not serve.

The local SageMaker runs one engine for the instances of a fleet, so two run during a promotion: the serving
head's, and that of the canary, which gets half of the traffic. The gate in both writes the acceptance; the
alarm is the promotion's own.
"""

from __future__ import annotations

import json
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from peagle_learn.core.proof import Proof
from peagle_learn.core.spec import LearnSpec
from peagle_learn.data import make_data, plan_data
from peagle_learn.promote import Promotion, promote, promotions, rollback
from peagle_learn.prove import plan_prove, prove
from peagle_sm.aws.session.local_server import stand_in_weights
from peagle_sm.aws.storage.uploads import put_bytes
from peagle_sm.core.errors import EndpointFailed, PlanRefused
from peagle_sm.core.heads.reading import parse_manifest
from peagle_sm.core.spec.endpoint_spec import EndpointSpec, dump_spec
from peagle_sm.service import status
from peagle_sm.service.progress import Event
from peagle_sm.service.spec_to_plan import load_spec
from sagemaker_local.process.client import advance_clock
from scripts.bench.local_stack import LocalStack
from tests.learn.damaged_heads import Damage, make, noisy, read, write

pytestmark = [pytest.mark.engine, pytest.mark.slow, pytest.mark.campaign]
NAME, BUCKET = "learned", "learn-loop"
PATIENCE_S = 540
WHOLE = stand_in_weights() / "p-eagle"


def tell(event: Event) -> None:
    print(event.phase, event.message, file=sys.stderr)


def until(condition: Callable[[], Any], what: str) -> Any:
    limit = time.monotonic() + PATIENCE_S
    while not (reached := condition()):
        assert time.monotonic() < limit, f"{what} was not reached"
        time.sleep(1)
    return reached


@dataclass
class World:
    stack: LocalStack
    spec: LearnSpec
    path: Path
    folder: Path

    @property
    def endpoint(self) -> EndpointSpec:
        return load_spec(self.path)

    def proved(self, head: Path, prompts: int | None = None) -> Proof:
        """Prove a head, with at most so many prompts of each set."""
        session, work = self.stack.session, self.folder / "work"
        prove_spec = self.spec.prove.model_copy(update={"prompts": prompts})
        spec = self.spec.model_copy(update={"prove": prove_spec})
        plan = plan_prove(spec, self.endpoint, str(head), session, work)
        return prove(plan, session, work, confirm=lambda offer: True, progress=tell, unguarded=True)

    def endpoints(self) -> list[str]:
        rows = self.stack.session.client("sagemaker").list_endpoints()["Endpoints"]
        return [row["EndpointName"] for row in rows]


def world_in(folder: Path, stack: LocalStack) -> World:
    """Deploy an endpoint whose head is damaged by noise, and write prompts for its own target."""
    weights, config = (WHOLE / "model.safetensors"), (WHOLE / "config.json").read_bytes()
    write(folder / "noisy.safetensors", noisy(read(weights), 0.6, 1))
    held_out = (stand_in_weights() / "held-out.jsonl").read_text().splitlines()
    known = [json.loads(line)["text"] for line in held_out]
    for name, part in (("prompts", known[:60]), ("general", known[60:84])):
        lines = [json.dumps({"prompt": text[:240], "max_tokens": 64, "temperature": 0}) for text in part]
        (folder / f"{name}.jsonl").write_text("\n".join(lines) + "\n")
    session = stack.session
    session.client("s3").create_bucket(Bucket=BUCKET)
    put_bytes(session, BUCKET, "noisy/config.json", config)
    put_bytes(session, BUCKET, "noisy/model.safetensors", (folder / "noisy.safetensors").read_bytes())
    endpoint = EndpointSpec(
        name=NAME,
        model="tiny-code",
        speculation={"mode": "p-eagle", "num_speculative_tokens": 7, "draft_head": "noisy"},
        head_uri=f"s3://{BUCKET}/noisy/",
        placement={"instance_count": 2},
        # A proof measures 60 long prompts up to the end of the context, which would be 8,192 tokens.
        serving={"max_model_len": 1024, "env": {"PEAGLE_GATE_SAMPLE_S": "2"}},
    )
    (folder / "peagle.yaml").write_text(dump_spec(endpoint))
    stack.deploy({NAME: endpoint})
    spec = LearnSpec(
        name="team",
        target={"model": "tiny-code"},
        endpoint=NAME,
        bucket=f"s3://{BUCKET}/x",
        data={
            "prompts": [str(folder / "prompts.jsonl")],
            "general": str(folder / "general.jsonl"),
            "held_out": 0.4,
            "max_tokens": 64,
        },
        prove={"max_tokens": 64},
        promote={"canary_minutes": 8, "least_acceptance": 0.9},
    )
    return World(stack, spec, folder / "peagle.yaml", folder)


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    with LocalStack(lambda line: print(line, file=sys.stderr)) as stack:
        world = world_in(tmp_path_factory.mktemp("learn"), stack)
        plan = plan_data(world.spec, stack.session, world.folder / "work")
        data = make_data(
            plan, stack.session, world.folder / "work", confirm=lambda offer: True, progress=tell
        )
        assert data.end.answered == len(plan.wanted)
        yield world
        assert stack.delete_all() == []


@pytest.fixture(scope="module")
def better(world: World) -> Proof:
    """The proof of the head without noise, which is offered."""
    proof = world.proved(WHOLE, prompts=12)  # the noise costs half of the acceptance: few prompts show it
    print(proof, file=sys.stderr)
    assert proof.decision.offered, proof.decision.reasons
    assert world.endpoints() == [NAME]
    # The alarm's threshold comes from the last hour of live traffic, which this endpoint did not have.
    session = world.stack.session
    now = session.now()
    session.client("cloudwatch").put_metric_data(
        Namespace=f"peagle-sm/{NAME}",
        MetricData=[
            {"MetricName": "AcceptanceLength", "Timestamp": now - timedelta(minutes=ago), "Value": 4.0}
            for ago in range(15, 25)
        ],
    )
    return proof


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
            self._end.wait(0.2)  # so that an engine that starts beside it has a core, too


def engines(world: World) -> Counter[str]:
    """Engines that serve, by model."""
    rows = world.stack.engines()
    return Counter(row["model"] for row in rows if row["endpoint"] == NAME and row["role"] == "serving")


def acceptance(world: World, since: datetime) -> list[float]:
    """What the gates of both fleets wrote, by minute."""
    points = world.stack.session.client("cloudwatch").get_metric_statistics(
        Namespace=f"peagle-sm/{NAME}",
        MetricName="AcceptanceLength",
        StartTime=since,
        EndTime=world.stack.session.now() + timedelta(minutes=1),
        Period=60,
        Statistics=["Average"],
    )["Datapoints"]
    return [round(point["Average"], 2) for point in sorted(points, key=lambda point: point["Timestamp"])]


def minute_passes(world: World, run: Future[Promotion]) -> None:
    """Let traffic come in this minute of the local clock, and move the clock to the next one."""
    minute = world.stack.session.now().replace(second=0, microsecond=0)
    until(lambda: run.done() or acceptance(world, minute), f"acceptance in the minute from {minute}")
    after = minute + timedelta(minutes=1) - world.stack.session.now()
    advance_clock(world.stack.port, max(0.0, after.total_seconds()))


def begun(world: World, threads: ThreadPoolExecutor) -> Future[Promotion]:
    """Start a promotion, and return once the canary serves beside the old fleet."""
    session = world.stack.session
    run = threads.submit(promote, world.spec, world.path, session, progress=tell, unguarded=True)
    until(lambda: run.done() or len(engines(world)) == 2, "a canary beside the old fleet")
    assert not run.done(), run.exception()
    (alarm,) = session.client("cloudwatch").describe_alarms(AlarmNames=[f"peagle-{NAME}-acceptance"])[
        "MetricAlarms"
    ]
    print(f"canary serves; alarm below {alarm['Threshold']}", file=sys.stderr)
    return run


def shown(world: World) -> tuple[str, str, str | None]:
    endpoint = status(NAME, session=world.stack.session)
    return endpoint.config_name, endpoint.summary.status, endpoint.summary.spec_hash


def test_an_alarm_takes_the_canary_back_and_the_spec_stays(world: World, better: Proof) -> None:
    before, text, since = shown(world), world.path.read_text(), world.stack.session.now()
    with ThreadPoolExecutor(1) as threads, Traffic(world, temperature=0.0) as traffic:
        run = begun(world, threads)
        traffic.temperature = 2.0  # hardly any draft is accepted then; sooner, no canary would come to serve
        while not run.done():
            minute_passes(world, run)
        with pytest.raises(EndpointFailed, match="SageMaker rolled back"):
            run.result()
        print(
            f"{traffic.answered} answered; acceptance by minute: {acceptance(world, since)}", file=sys.stderr
        )
    assert traffic.errors == []
    assert shown(world) == before
    assert world.path.read_text() == text
    (row,) = world.stack.engines()
    assert f"alarm peagle-{NAME}-acceptance is in state ALARM with " in row["last_update_failure"]
    print(row["last_update_failure"], file=sys.stderr)
    assert promotions(world.spec, world.stack.session)[-1].state == "begun"
    alarms = world.stack.session.client("cloudwatch").describe_alarms(AlarmNamePrefix=f"peagle-{NAME}")
    assert alarms["MetricAlarms"] == []


def finished(world: World, run: Future[Promotion]) -> Promotion:
    """Let the canary's time and the last baking period pass."""
    advance_clock(world.stack.port, 8 * 60)
    time.sleep(2)
    assert not run.done(), "the last baking period has its own time"
    advance_clock(world.stack.port, 5 * 60)
    return run.result(timeout=PATIENCE_S)


def test_without_an_alarm_the_canary_serves_until_the_rollback(world: World, better: Proof) -> None:
    session, before = world.stack.session, shown(world)
    with ThreadPoolExecutor(1) as threads, Traffic(world, temperature=0.0) as traffic:
        run = begun(world, threads)
        since = session.now()
        for _ in range(3):
            minute_passes(world, run)
        assert not run.done(), run.exception()
        assert len(acceptance(world, since)) >= 2
        assert shown(world)[0] == before[0]
        print(
            f"{traffic.answered} answered; acceptance by minute: {acceptance(world, since)}", file=sys.stderr
        )
        promoted = finished(world, run)
    assert traffic.errors == []
    assert promoted.state == "serves"
    after = shown(world)
    assert after[0] != before[0]
    assert after[1] == "InService"
    until(lambda: sum(engines(world).values()) == 1, "the old fleet's end")

    assert world.endpoint.head_uri == promoted.after["head_uri"]
    bucket, _, key = str(world.endpoint.head_uri).removeprefix("s3://").partition("/")
    assert key.startswith("x/team/heads/")
    manifest = session.client("s3").get_object(Bucket=bucket, Key=f"{key}manifest.json")["Body"].read()
    assert (parse_manifest(manifest).lineage or {})["data"] == better.bound.data
    again = promote(world.spec, world.path, session, progress=tell, unguarded=True)
    assert again.number == promoted.number

    with ThreadPoolExecutor(1) as threads:
        run = threads.submit(rollback, world.spec, world.path, session, progress=tell, unguarded=True)
        until(lambda: run.done() or len(engines(world)) == 2, "the earlier head beside the fleet")
        assert finished(world, run).state == "rolled-back"
    assert world.endpoint.head_uri == f"s3://{BUCKET}/noisy/"
    assert shown(world)[1] == "InService"


def test_a_head_that_ran_away_is_not_promoted(world: World) -> None:
    head = make(world.folder / "over-trained", Damage(5, "over-trained", "ran away"), WHOLE)
    proof = world.proved(head)
    print(proof.decision.reasons, file=sys.stderr)
    assert not proof.decision.offered
    with pytest.raises(PlanRefused, match="is not promoted: the head was not offered"):
        promote(
            world.spec,
            world.path,
            world.stack.session,
            head=proof.bound.head,
            progress=tell,
            unguarded=True,
        )
