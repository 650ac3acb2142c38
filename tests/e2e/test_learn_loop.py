"""Data, proof, promotion and rollback with the real engine: a better head serves, damaged ones do not."""

from __future__ import annotations

import json
import shutil
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from peagle_learn.core.spec import LearnSpec
from peagle_learn.data import make_data, plan_data
from peagle_learn.evidence import CANDIDATE
from peagle_learn.heads import canary_fault
from peagle_learn.promote import promote, promotions, rollback
from peagle_learn.prove import plan_prove, prove
from peagle_sm.aws.session.local_server import stand_in_weights
from peagle_sm.aws.storage.uploads import put_bytes
from peagle_sm.core.errors import PlanRefused
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


def tell(event: Event) -> None:
    print(event.phase, event.message, file=sys.stderr)


def until(condition: Callable[[], Any], what: str) -> Any:
    limit = time.monotonic() + PATIENCE_S
    while not (found := condition()):
        assert time.monotonic() < limit, f"{what} was not reached"
        time.sleep(1)
    return found


@dataclass
class World:
    stack: LocalStack
    spec: LearnSpec
    path: Path
    folder: Path
    data: str = ""  #: the hash of its data, once that is made

    @property
    def endpoint(self) -> EndpointSpec:
        return load_spec(self.path)


def world_in(
    folder: Path,
    stack: LocalStack,
    served: dict[str, Any],
    learn: dict[str, Any],
    texts: int = 60,
    **data: Any,
) -> World:
    """Deploy an endpoint whose head is damaged by noise, and write prompts for its own target."""
    shipped = stand_in_weights()
    config = (shipped / "p-eagle" / "config.json").read_bytes()
    write(folder / "noisy.safetensors", noisy(read(shipped / "p-eagle" / "model.safetensors"), 0.6, 1))
    known = [json.loads(line)["text"] for line in (shipped / "held-out.jsonl").read_text().splitlines()]
    for name, part in (("prompts", known[:texts]), ("general", known[60:84])):
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
        **served,
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
            **data,
        },
        prove={"max_tokens": 64},
        **learn,
    )
    return World(stack, spec, folder / "peagle.yaml", folder)


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    with LocalStack(lambda line: print(line, file=sys.stderr)) as stack:
        made = world_in(tmp_path_factory.mktemp("learn"), stack, {}, {})
        plan = plan_data(made.spec, stack.session, made.folder / "work")
        data = make_data(plan, stack.session, made.folder / "work", confirm=lambda offer: True, progress=tell)
        assert data.end.answered == len(plan.wanted)
        yield replace(made, data=data.data)
        assert stack.delete_all() == []


def proved(world: World, head: Path) -> object:
    session, work = world.stack.session, world.folder / "work"
    plan = plan_prove(world.spec, world.endpoint, str(head), session, work)
    return prove(plan, session, work, confirm=lambda offer: True, progress=tell, unguarded=True)


def test_a_better_head_is_proved_promoted_and_rolled_back(world: World) -> None:
    session = world.stack.session
    proof = proved(world, stand_in_weights() / "p-eagle")
    print(proof, file=sys.stderr)
    assert proof.decision.offered, proof.decision.reasons  # type: ignore[attr-defined]
    names = [row["EndpointName"] for row in session.client("sagemaker").list_endpoints()["Endpoints"]]
    assert names == [NAME]
    before = world.path.read_text()
    first = promote(world.spec, world.path, session, progress=tell, unguarded=True)
    assert first.state == "serves"
    assert "x/team/heads/" in str(world.endpoint.head_uri)
    again = promote(world.spec, world.path, session, progress=tell, unguarded=True)
    assert (again.number, len(promotions(world.spec, session))) == (1, 1)
    manifest = world.endpoint.head_uri
    bucket, _, key = str(manifest).removeprefix("s3://").partition("/")
    text = session.client("s3").get_object(Bucket=bucket, Key=f"{key}manifest.json")["Body"].read()
    assert (parse_manifest(text).lineage or {})["data"] == world.data
    back = rollback(world.spec, world.path, session, progress=tell, unguarded=True)
    assert back.state == "rolled-back"
    assert world.endpoint.head_uri == f"s3://{BUCKET}/noisy/"
    assert EndpointSpec(**world.endpoint.model_dump(exclude_unset=True)).name in before
    assert status(NAME, session=session).summary.status == "InService"


@pytest.mark.parametrize("what", [Damage(0, "truncated", "cut"), Damage(5, "over-trained", "ran away")])
def test_a_damaged_head_is_not_promoted(world: World, what: Damage) -> None:
    head = make(world.folder / what.kind, what, stand_in_weights() / "p-eagle")
    proof = proved(world, head)
    assert not proof.decision.offered  # type: ignore[attr-defined]
    print(what, proof.decision.reasons, file=sys.stderr)  # type: ignore[attr-defined]
    with pytest.raises(PlanRefused, match="is not promoted: the head was not offered"):
        promote(
            world.spec,
            world.path,
            world.stack.session,
            head=proof.bound.head,  # type: ignore[attr-defined]
            progress=tell,
            unguarded=True,
        )


def test_a_head_that_misses_its_own_profile_is_refused_by_the_canary(world: World) -> None:
    head, session, work = world.folder / "noisy", world.stack.session, world.folder / "work"
    head.mkdir()
    for name in ("config.json", "canary.json"):
        shutil.copy(stand_in_weights() / "p-eagle" / name, head / name)
    tensors = read(stand_in_weights() / "p-eagle" / "model.safetensors")
    write(head / "model.safetensors", noisy(tensors, 0.6, 2))
    plan = plan_prove(world.spec, world.endpoint, str(head), session, work)
    began, timeout_s = session.now(), PATIENCE_S
    arms = {name: arm.model_copy(update={"startup_timeout_s": timeout_s}) for name, arm in plan.arms.items()}

    def started() -> bool:
        """Only the candidate is not in service, and its canary has said why."""
        rest = {arm.name for name, arm in arms.items() if name != CANDIDATE}
        rows = session.client("sagemaker").list_endpoints(StatusEquals="InService")["Endpoints"]
        waits = rest - {row["EndpointName"] for row in rows}
        return not waits and canary_fault(session, arms[CANDIDATE].name, began) is not None

    with ThreadPoolExecutor(1) as threads:
        run = threads.submit(
            prove,
            replace(plan, arms=arms),
            session,
            work,
            confirm=lambda _: True,
            progress=tell,
            unguarded=True,
        )
        until(lambda: run.done() or started(), "a candidate whose canary has spoken")
        advance_clock(world.stack.port, timeout_s)  # it would be unhealthy until its time is over
        proof = run.result(timeout=PATIENCE_S)
    assert not proof.decision.offered
    assert proof.decision.reasons[0].startswith("canary: the head misses its own profile")
    names = [row["EndpointName"] for row in session.client("sagemaker").list_endpoints()["Endpoints"]]
    assert names == [NAME]
