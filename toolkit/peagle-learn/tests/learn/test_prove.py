"""`learn prove` over the local SageMaker: static refusals, leftovers of a kill, and limits of money."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from peagle_bench.benchmark.endpoint_arm import describe_endpoint as describe_arm
from peagle_bench.compare.measurement import Setup
from peagle_bench.results.records import Header
from peagle_bench.results.result_file import Results
from peagle_learn.arms import mark_of
from peagle_learn.core.spec import LearnSpec
from peagle_learn.evidence import SERVING
from peagle_learn.promote import promote
from peagle_learn.prove import (
    ProveDependencies,
    ProvePlan,
    greedy,
    other_requests,
    plan_prove,
    prove,
    refuse_the_price,
    stored_proof,
)
from peagle_learn.work_folder import only_one
from peagle_sm.aws.control import lifetime
from peagle_sm.aws.control.cloudwatch import invocations
from peagle_sm.aws.control.sagemaker import describe_endpoint
from peagle_sm.aws.session.local_server import stand_in_weights
from peagle_sm.aws.session.session import Session
from peagle_sm.aws.storage import s3
from peagle_sm.core.errors import EndpointFailed, NotFound, PeagleError, PlanRefused, ServiceFault, SpecError
from peagle_sm.core.plan.tags_and_schedules import schedule_name
from peagle_sm.core.spec.endpoint_spec import EndpointSpec, dump_spec
from peagle_sm.service import delete, deploy, leftovers, pause
from tests.bench.compare.simulating import request
from tests.learn.conftest import keep_only, keys_in, write_spec
from tests.learn.damaged_heads import Damage, make
from tests.learn.test_data import files_below, make_set, texts
from tests.local.serving import Server

NAME = "learn-prove"
HEAD = stand_in_weights() / "p-eagle"


@pytest.fixture(scope="module")
def endpoint(session: Session) -> Iterator[str]:
    deploy(served(), session=session, unguarded=True)
    yield NAME
    delete([NAME], session=session)


def served() -> EndpointSpec:
    return EndpointSpec(
        name=NAME,
        model="tiny-code",
        speculation={"mode": "p-eagle", "num_speculative_tokens": 7},
        serving={"env": {"SCRIPT_INVOKE": "openai"}},
    )


@pytest.fixture(scope="module")
def prepared(
    endpoint: str, session: Session, tmp_path_factory: pytest.TempPathFactory
) -> tuple[LearnSpec, set[str]]:
    """A spec whose data is made, and the data's keys: the same for all tests."""
    folder = tmp_path_factory.mktemp("prepared")
    session.client("s3").create_bucket(Bucket=NAME)
    spec = write_spec(folder, NAME, endpoint, texts(24), texts(10, seed=3))
    make_set(spec, session, folder / "work")
    return spec, keys_in(session, NAME)


@pytest.fixture
def spec(prepared: tuple[LearnSpec, set[str]], session: Session) -> Iterator[LearnSpec]:
    spec, keys = prepared
    yield spec
    keep_only(keys, session, NAME)


def never(*_: object, **__: object) -> Any:
    raise AssertionError("nothing may be deployed or measured")


def test_a_damaged_head_is_refused_before_anything_is_deployed(
    spec: LearnSpec, session: Session, tmp_path: Path
) -> None:
    head = make(tmp_path / "head", Damage(3, "truncated", "cut"), HEAD)
    plan = plan_prove(spec, served(), str(head), session, tmp_path / "work")
    nothing = ProveDependencies(fleet=never, measure=never)
    proof = prove(
        plan, session, tmp_path / "work", confirm=never, progress=lambda _: None, dependencies=nothing
    )
    assert not proof.decision.offered
    assert proof.decision.reasons[0].startswith("heads check: model.safetensors is cut short")
    assert stored_proof(spec, session, proof.bound.head).to_json() == proof.to_json()
    path = tmp_path / "peagle.yaml"
    path.write_text(dump_spec(served()))
    with pytest.raises(PlanRefused, match="is not promoted: the head was not offered: heads check"):
        promote(spec, path, session, progress=lambda _: None, unguarded=True)
    assert path.read_text() == dump_spec(served())


def stopped(plan: ProvePlan, session: Session, work: Path, measure: Callable[..., Any] | None = None) -> None:
    """Prove until the measurement, which ``measure`` replaces, and which ends with "enough"."""

    def enough(*_: object, **__: object) -> Any:
        raise ServiceFault("enough")

    with pytest.raises(ServiceFault, match="enough"):
        prove(
            plan,
            session,
            work,
            confirm=lambda _: True,
            progress=lambda _: None,
            unguarded=True,
            dependencies=ProveDependencies(measure=measure or enough),
        )


def test_a_failed_measurement_leaves_nothing_and_no_proof(
    spec: LearnSpec, session: Session, tmp_path: Path
) -> None:
    def broken(*_: object, **__: object) -> Any:
        assert len([row for row in leftovers(session) if "team-proof-" in row]) >= 2
        raise ServiceFault("the endpoint stopped answering")

    plan = plan_prove(spec, served(), str(HEAD), session, tmp_path / "work")
    assert plan.offer.deploys == ("team-proof-candidate", "team-proof-plain")
    assert plan.arms["candidate"].lifecycle.max_lifetime_hours <= 1.0
    with pytest.raises(ServiceFault, match="stopped answering"):
        prove(
            plan,
            session,
            tmp_path / "work",
            confirm=lambda _: True,
            progress=lambda _: None,
            unguarded=True,
            dependencies=ProveDependencies(measure=broken),
        )
    assert [row for row in leftovers(session) if "team-proof-" in row] == []
    with pytest.raises(NotFound, match="has no proof"):
        stored_proof(spec, session, plan.bound.head)


def test_a_candidate_whose_canary_found_a_fault_is_refused_with_that_reason(
    spec: LearnSpec, session: Session, tmp_path: Path
) -> None:
    logs = session.api("logs")
    group = {"logGroupName": "/aws/sagemaker/Endpoints/team-proof-candidate"}
    for line, said in (
        ("peagle_gate: canary: passed; 900 drafts in 2560 tokens", None),
        ("peagle_gate: canary: the canary got no answer: /metrics answered 500;  (1.0 s)", None),
        (
            "peagle_gate: canary: the head misses its own profile: acceptance length 1.20 on its canary"
            " prompts, 3.40 when it was made; 900 drafts in 2560 tokens",
            "canary: the head misses its own profile: acceptance length 1.20",
        ),
    ):

        def failing(*_: object, line: str = line, **__: object) -> Any:
            """Stand for a fleet whose candidate logged a line and did not come up."""
            with suppress(PeagleError):
                logs.create_log_group(**group)
            stream = {**group, "logStreamName": uuid4().hex}
            logs.create_log_stream(**stream)
            event = {"timestamp": int(session.now().timestamp() * 1000), "message": line}
            logs.put_log_events(**stream, logEvents=[event, {**event, "message": "GET /ping 503"}])
            raise EndpointFailed("the endpoint failed: no healthy /ping")

        plan = plan_prove(spec, served(), str(HEAD), session, tmp_path / "work")
        more: Any = {
            "confirm": lambda _: True,
            "progress": lambda _: None,
            "dependencies": ProveDependencies(fleet=failing),
        }
        if said is None:
            with pytest.raises(EndpointFailed, match="no healthy"):
                prove(plan, session, tmp_path / "work", **more)
            with pytest.raises(NotFound, match="has no proof"):
                stored_proof(spec, session, plan.bound.head)
            logs.delete_log_group(**group)
        else:
            proof = prove(plan, session, tmp_path / "work", **more)
            assert not proof.decision.offered
            assert proof.decision.reasons[0].startswith(said)
            assert stored_proof(spec, session, plan.bound.head).to_json() == proof.to_json()


KILLED = """
import os, sys
from pathlib import Path
from peagle_learn.work_folder import only_one
from peagle_sm.aws.session.local_server import session_for
from peagle_learn.core.spec import parse_learn_spec
from peagle_sm.core.spec.endpoint_spec import parse_spec
from peagle_learn.prove import ProveDependencies, plan_prove, prove
learn, served, head, work, port = sys.argv[1:]
session = session_for(os.environ, local=True, port=int(port))
plan = plan_prove(parse_learn_spec(learn), parse_spec(served), head, session, Path(work))
end = lambda *a, **b: os._exit(9)
prove(plan, session, Path(work), confirm=lambda o: True, progress=lambda e: None, unguarded=True,
      dependencies=ProveDependencies(measure=end))
"""


@pytest.mark.slow
def test_what_a_killed_proof_leaves_has_an_end_and_the_next_run_deletes_it(
    spec: LearnSpec, session: Session, tmp_path: Path, server: Server
) -> None:
    answer = json.dumps(spec.model_dump(mode="json", exclude_unset=True))
    arguments = [
        answer,
        dump_spec(served()),
        str(HEAD),
        str(tmp_path / "work"),
        server.url.rpartition(":")[2],
    ]
    killed = subprocess.run(
        [sys.executable, "-c", KILLED, *arguments], capture_output=True, text=True, timeout=120, check=False
    )
    assert killed.returncode == 9, killed.stderr
    for name in ("team-proof-plain", "team-proof-candidate"):
        limit = lifetime.get(session, schedule_name(name))
        assert limit is not None
        assert limit.guards(name, session.now())
    plan = plan_prove(spec, served(), str(HEAD), session, tmp_path / "work")
    assert plan.offer.leftovers == ("team-proof-candidate", "team-proof-plain")

    stopped(plan, session, tmp_path / "work")
    assert [row for row in leftovers(session) if "team-proof-" in row] == []


def test_a_proof_beyond_its_budget_and_a_spec_that_does_not_serve_are_refused(
    spec: LearnSpec, session: Session, tmp_path: Path
) -> None:
    refuse_the_price(2.0, 2.0)
    refuse_the_price(None, None)
    for most, said in ((2.01, "the proof could cost 2.01 USD"), (None, "the proof could cost unknown")):
        with pytest.raises(PlanRefused, match=said):
            refuse_the_price(most, 2.0)
    other = served().model_copy(update={"update": "off-update-on", "metrics": served().metrics})
    changed = other.model_copy(update={"startup_timeout_s": 60})
    with pytest.raises(SpecError, match="is not what serves"):
        plan_prove(spec, changed, str(HEAD), session, tmp_path / "work")
    with pytest.raises(NotFound, match="does not exist"):
        plan_prove(spec, served(), str(tmp_path / "no-head"), session, tmp_path / "work")


def test_a_proof_over_few_conversations_is_refused_before_anything_is_created(
    spec_of: Callable[..., LearnSpec], session: Session, tmp_path: Path
) -> None:
    of_seven = [{**line, "conversation": f"c{n % 7}"} for n, line in enumerate(texts(28, seed=3))]
    spec = spec_of(texts(24), general=of_seven)
    make_set(spec, session, tmp_path / "work")
    with pytest.raises(PlanRefused, match="at least 8 conversations") as refused:
        plan_prove(spec, served(), str(HEAD), session, tmp_path / "work")
    assert refused.value.details["found"] == {"general": 7}
    assert "data.general" in str(refused.value.next_step)
    assert [row for row in leftovers(session) if "team-proof-" in row] == []
    with pytest.raises(SpecError, match=r"prove\.prompts: found 7; allowed: 8 or more"):
        LearnSpec.model_validate({**spec.model_dump(mode="json"), "prove": {"prompts": 7}})


def test_acceptance_is_measured_with_the_requests_own_sampling_and_identity_greedily(
    spec_of: Callable[..., LearnSpec], session: Session, tmp_path: Path
) -> None:
    own = {"temperature": 0.8, "top_p": 0.9}
    spec = spec_of([{**line, **own} for line in texts(24)], general=[{**t, **own} for t in texts(10, seed=3)])
    make_set(spec, session, tmp_path / "work")
    plan = plan_prove(spec, served(), str(HEAD), session, tmp_path / "work")
    setups: list[Setup] = []

    def measure(_: object, setup: Setup, *__: object, **___: object) -> Any:
        setups.append(setup)
        raise ServiceFault("enough")

    stopped(plan, session, tmp_path / "work", measure)
    (setup,) = setups
    assert setup.temperature == 0.8
    assert all(own.items() <= item.body.items() for item in setup.items)
    assert {item.body["temperature"] for item in greedy(setup.items)} == {0.0}


def test_the_requests_of_others_to_the_serving_head_are_counted(endpoint: str, session: Session) -> None:
    def asked(times: int) -> None:
        for _ in range(times):
            body = json.dumps({"prompt": "def f():", "max_tokens": 4}).encode()
            session.client("sagemaker-runtime").invoke_endpoint(EndpointName=endpoint, Body=body)

    began, serving = session.now(), describe_arm(session, endpoint).arm
    asked(6)
    before = invocations(
        session, {"EndpointName": endpoint, "VariantName": "AllTraffic"}, began, session.now()
    )
    assert before >= 6
    own = tuple(request(SERVING, f"p{n}", seconds=1.0, tokens=4, drafts=2, accepted=2) for n in range(4))
    results = [Results(Header("r", "compare", {}, {}, True), (), own)]
    asked(2)
    result = other_requests(session, serving, results, began, session.now())
    assert result == pytest.approx((before + 2 - 4) / 4)
    many = [Results(Header("r", "compare", {}, {}, True), (), own * 1000)]
    assert other_requests(session, serving, many, began, session.now()) is None, "minutes are missing"


def arm(**tags: str) -> EndpointSpec:
    created = served().model_copy(update={"name": "team-proof-plain", "tags": tags})
    return created.model_copy(update={"serving": created.serving.model_copy(update={"env": {}})})


@pytest.mark.parametrize(
    ("tags", "off", "message"),
    [
        ({}, False, "its tag learn: none"),
        ({}, True, "its tag learn: none"),  # paused: its config is all that is left of it
        ({"learn": "team/0123456789ab"}, False, "its tag learn: team/0123456789ab"),
    ],
    ids=["foreign", "foreign and paused", "of another folder"],
)
def test_an_endpoint_with_an_arm_s_name_and_without_its_tag_is_not_deleted(
    spec: LearnSpec, session: Session, tmp_path: Path, tags: dict[str, str], off: bool, message: str
) -> None:
    deploy(arm(**tags), session=session, unguarded=True)
    try:
        if off:
            pause("team-proof-plain", session=session)
        before = [row for row in leftovers(session) if "team-proof-plain" in row]
        with pytest.raises(PlanRefused, match="no proof in this folder created it") as refused:
            plan_prove(spec, served(), str(HEAD), session, tmp_path / "work")
        assert message in refused.value.message
        assert "`peagle-sm delete team-proof-plain`" in str(refused.value.next_step)
        assert [row for row in leftovers(session) if "team-proof-plain" in row] == before
        assert any(row.startswith("endpoint-config/") for row in before)
    finally:
        delete(["team-proof-plain"], session=session)


def test_what_takes_an_arm_s_name_after_the_question_is_not_deleted(
    spec: LearnSpec, session: Session, tmp_path: Path
) -> None:
    work = tmp_path / "work"
    deploy(arm(learn=mark_of("team", work)), session=session, unguarded=True)
    plan = plan_prove(spec, served(), str(HEAD), session, work)
    assert plan.offer.leftovers == ("team-proof-plain",)
    delete(["team-proof-plain"], session=session)
    deploy(arm(), session=session, unguarded=True)
    try:
        with pytest.raises(PlanRefused, match="no proof in this folder created it"):
            prove(plan, session, work, confirm=lambda _: True, progress=lambda _: None, unguarded=True)
        assert describe_endpoint(session, "team-proof-plain") is not None
    finally:
        delete(["team-proof-plain"], session=session)


@pytest.mark.parametrize("marked", [True, False])
def test_a_dry_run_beside_another_command_changes_no_file_and_knows_the_folder_s_arms(
    spec: LearnSpec, session: Session, tmp_path: Path, server: Server, marked: bool
) -> None:
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    path, top = tmp_path / "learn.yaml", tmp_path / ".peagle-learn"
    path.write_text(json.dumps(spec.model_dump(mode="json", exclude_unset=True)))
    (tmp_path / "peagle.yaml").write_text(dump_spec(served()))
    head = f"{spec.folder}heads/candidate/"
    place, prefix = s3.split_uri(head)
    for file in HEAD.iterdir():
        session.client("s3").put_object(Bucket=place, Key=prefix + file.name, Body=file.read_bytes())
    words = ["learn", "prove", path, "--head", head, "--spec", tmp_path / "peagle.yaml", "--dry-run"]
    words += ["--format", "json", "--local-port", server.url.rpartition(":")[2]]

    def dry_run() -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "peagle_sm", *map(str, words)]
        environ = {**os.environ, "TMPDIR": str(temporary)}
        return subprocess.run(command, env=environ, capture_output=True, text=True, timeout=120, check=False)

    mark = mark_of("team", top / "team") if marked else "team/0123456789ab"
    deploy(arm(learn=mark), session=session, unguarded=True)
    try:
        with only_one(top / "team", "peagle-sm learn prove"):
            before = files_below(top)
            tried = dry_run()
            assert files_below(top) == before
    finally:
        delete(["team-proof-plain"], session=session)
    if marked:
        assert tried.returncode == 0, tried.stderr
        assert json.loads(tried.stdout)["leftovers"] == ["team-proof-plain"]
    else:
        assert "no proof in this folder created it" in tried.stderr
        shutil.rmtree(top)
        tried = dry_run()
        assert tried.returncode == 0, tried.stderr
        assert not top.exists()
    assert list(temporary.iterdir()) == []
