"""`learn data --processing` over the local SageMaker with 3 instances: split, secrets, refusals."""

from __future__ import annotations

import gzip
import itertools
import json
import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from peagle_learn import jobs
from peagle_learn.aws.jobs import describe_job, job_names
from peagle_learn.core.conversations import NEAR, shingles, similarity, user_text
from peagle_learn.core.jobs import PROCESSING_JOB
from peagle_learn.core.spec import LearnSpec
from peagle_learn.data import make_data, plan_data
from peagle_learn.processing.prepare import PreparationOffer, plan_preparation, send_settings
from peagle_learn.processing.prepare import prepare as run_preparation
from peagle_learn.processing.prepared import read_prepared
from peagle_learn.stored_data import TRAINING, VALIDATION, delete_data, find_data
from peagle_sm.aws.session.session import LocalTarget, Session, make_session
from peagle_sm.core.errors import (
    Declined,
    Interrupted,
    NotFound,
    PlanRefused,
    ServiceFault,
    SpecError,
    TrainingFailed,
)
from peagle_sm.core.spec.endpoint_spec import EndpointSpec
from peagle_sm.service import Endpoint, delete, deploy
from peagle_sm.service.progress import Event, Pacing
from tests.cli.running import run
from tests.learn.byte_engine import ByteEngine
from tests.learn.core.test_conversations import words
from tests.local.serving import Server, eventually
from tests.traffic.planted import pieces, planted

_numbers = itertools.count(1)
EVENT = {
    "choices": [{"text": "ok", "token_ids": [5, 6], "prompt_token_ids": [1, 2, 3], "finish_reason": "stop"}]
}


@pytest.fixture(scope="module")
def session(server: Server) -> Session:
    return make_session(local=LocalTarget.from_status(server.status.to_dict()))


@pytest.fixture
def bucket(session: Session) -> str:
    name = f"prepare-{next(_numbers)}"
    session.client("s3").create_bucket(Bucket=name)
    return name


Make = Callable[..., LearnSpec]


def put(session: Session, bucket: str, key: str, bodies: list[dict[str, Any]] | bytes) -> None:
    content = (
        bodies if isinstance(bodies, bytes) else "".join(json.dumps(each) + "\n" for each in bodies).encode()
    )
    session.client("s3").put_object(Bucket=bucket, Key=key, Body=content)


@pytest.fixture
def spec_of(bucket: str) -> Make:
    def make(**processing: Any) -> LearnSpec:
        data = {
            "prompts": [f"s3://{bucket}/traffic"],
            "held_out": 0.3,
            "max_tokens": 32,
            "processing": {"instance_count": 3, **processing},
        }
        return LearnSpec(name="team", target={"model": "tiny-code"}, bucket=f"s3://{bucket}/x", data=data)

    return make


def prepare(spec: LearnSpec, session: Session, **more: Any) -> str:
    plan = plan_preparation(spec, session)
    return run_preparation(plan, session, **{"confirm": lambda _: True, "unguarded": True, **more})


def never(_: PreparationOffer) -> bool:
    raise AssertionError("it asked")


def objects(session: Session, bucket: str, prefix: str) -> dict[str, bytes]:
    s3 = session.client("s3")
    rows = s3.list_objects_v2(Bucket=bucket, Prefix=prefix).get("Contents", [])
    return {row["Key"]: s3.get_object(Bucket=bucket, Key=row["Key"])["Body"].read() for row in rows}


def test_three_instances_prepare_and_the_same_spec_finds_the_jobs_again(
    session: Session, bucket: str, spec_of: Make
) -> None:
    rng, secrets = random.Random(3), planted()
    for shard in range(3):
        own = [{"prompt": words(rng, 40)} for _ in range(6)]
        near = [{"prompt": f"{words(random.Random(100 + number), 40)} v{shard}"} for number in range(6)]
        put(session, bucket, f"traffic/{shard}.jsonl", own + near)
    lines = [{"prompt": f"{words(rng, 12)} {each.text} {words(rng, 12)}"} for each in secrets]
    put(session, bucket, "traffic/secrets.jsonl", lines)
    put(session, bucket, "traffic-2/not-mine.jsonl", [{"prompt": "of another prefix"}])
    offers: list[PreparationOffer] = []
    events: list[Event] = []

    def ask(offer: PreparationOffer) -> bool:
        offers.append(offer)
        assert objects(session, bucket, "x/") == {}, "nothing is sent before it is confirmed"
        assert list(job_names(session, PROCESSING_JOB, "team-")) == []
        return True

    spec = spec_of()
    name = prepare(spec, session, confirm=ask, progress=events.append)
    read, split = read_prepared(spec, session, name)
    train, held_out = (
        [prompt for each in groups for prompt in each.prompts] for groups in (split.train, split.held_out)
    )
    assert len(offers) == 1
    assert split.near_repeats >= 12, "the variants of the other two shards"
    for one in train:
        for other in held_out:
            assert similarity(shingles(user_text(one.body)), shingles(user_text(other.body))) < NEAR
    assert {each.id for each in (*train, *held_out)} == set(read.items)
    assert not any("another prefix" in user_text(each.body) for each in (*train, *held_out))
    left = b"".join(objects(session, bucket, "x/").values()).decode()
    assert [piece for secret in secrets for piece in pieces(secret.core) if piece in left] == []
    assert sum(read.redacted.values()) >= len(secrets)
    done = [event for event in events if event.done]
    assert (done[-1].done, done[-1].total) == (4, 4)
    job = describe_job(session, PROCESSING_JOB, offers[0].plan.bases["read"])
    assert job is not None
    assert job.instances == 3
    assert prepare(spec, session, confirm=never) == name
    assert len(list(job_names(session, PROCESSING_JOB, "team-"))) == 2
    # What was deleted is made again, in further jobs.
    delete_data(find_data(spec, session), session)
    again = prepare(spec, session)
    assert again == f"{name}-2"
    assert read_prepared(spec, session, again)[1] == split


def test_another_seed_reads_nothing_again(session: Session, bucket: str, spec_of: Make) -> None:
    put(session, bucket, "traffic/a.jsonl", [{"prompt": words(random.Random(n), 30)} for n in range(8)])
    spec = spec_of()
    first = prepare(spec, session)
    other = spec.model_copy(update={"data": spec.data.model_copy(update={"seed": 5})})
    second = prepare(other, session)
    assert first != second
    read = plan_preparation(other, session).bases["read"]
    assert list(job_names(session, PROCESSING_JOB, read)) == [read]


def test_it_is_not_confirmed(session: Session, bucket: str, spec_of: Make) -> None:
    put(session, bucket, "traffic/a.jsonl", FEW)
    with pytest.raises(Declined):
        prepare(spec_of(), session, confirm=lambda _: False)
    assert objects(session, bucket, "x/") == {}


FEW = [{"prompt": words(random.Random(number), 30)} for number in range(8)]


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("a.jsonl", b'{"prompt": "fine"}\n{"prompt": "cut\n', "traffic/a.jsonl, line 2: not JSON"),
        ("a.jsonl", b'{"prompt": "fine"}\n{"messages": "hi"}', "line 2: messages: found 'hi'"),
        # Without a time: the test's name has these bytes, and must be the same in each process of pytest.
        ("a.jsonl.gz", gzip.compress(b'{"prompt": "cut\n', mtime=0), "traffic/a.jsonl.gz, line 1: not JSON"),
        ("a.jsonl", b"\n", "data.prompts has no prompts"),
        ("a.jsonl", b'{"prompt": "one alone"}\n', "1 conversation without repeats; allowed: at least 4"),
        ("a.jsonl", b'{"prompt": [1, 2]}\n' * 5, "all 5 prompts are token ids"),
        ("a.jsonl", b'{"prompt": "<|im_start|>user"}\n' * 9, "another model's chat template"),
        ("a.jsonl", b'{"prompt": "<|im_start|>a"}\n' * 60_000, "another model's chat template"),
    ],
)
def test_bad_prompts_are_refused_before_a_job_is_created(
    session: Session, bucket: str, spec_of: Make, name: str, content: bytes, said: str
) -> None:
    put(session, bucket, f"traffic/{name}", content)
    with pytest.raises(PlanRefused) as caught:
        prepare(spec_of(), session, confirm=never)
    assert said in caught.value.message
    (fault,) = [one for one in caught.value.details["findings"] if one["check"] == "data"]
    assert fault["next_step"]
    assert list(job_names(session, PROCESSING_JOB, plan_preparation(spec_of(), session).bases["read"])) == []


def test_prompts_of_no_bytes_are_refused(session: Session, bucket: str, spec_of: Make) -> None:
    for name in ("a.jsonl", "b.jsonl"):
        put(session, bucket, f"traffic/{name}", b"")
    with pytest.raises(SpecError, match=rf"all 2 files below s3://{bucket}/traffic are empty"):
        prepare(spec_of(), session, confirm=never)


def test_a_plan_says_how_much_of_the_prompts_it_checked(session: Session, bucket: str, spec_of: Make) -> None:
    put(session, bucket, "traffic/a.jsonl", FEW)
    put(session, bucket, "traffic/b.jsonl", b"")
    assert "checked: 8 prompts at the beginning of 2 of 2 files" in plan_notes(spec_of(), session)
    rng = random.Random(1)
    packed = b"".join(b'{"prompt": "%x"}\n' % rng.getrandbits(4000) for _ in range(3000))
    put(session, bucket, "traffic/c.jsonl.gz", gzip.compress(packed + b'{"prompt": "cut'))
    assert "at the beginning of 3 of 3 files" in plan_notes(spec_of(), session)
    for number in range(20):
        put(session, bucket, f"traffic/d{number:02}.jsonl", [{"prompt": f"file {number}"}])
    assert "16 of 23 files; the jobs check the rest" in plan_notes(spec_of(), session)


def plan_notes(spec: LearnSpec, session: Session) -> str:
    plan = plan_preparation(spec, session)
    assert plan.errors == []
    return plan.facts.notes[-1]


def test_what_the_plan_did_not_see_fails_with_its_place_and_a_further_attempt_follows(
    session: Session, bucket: str, spec_of: Make
) -> None:
    long = json.dumps({"prompt": "word " * 250_000}).encode()
    put(session, bucket, "traffic/a.jsonl", long + b'\n{"prompt": "cut\n')
    with pytest.raises(TrainingFailed) as caught:
        prepare(spec_of(), session)
    assert "a.jsonl, line 2: not JSON" in caught.value.message
    assert "--lines" in (caught.value.next_step or "")
    with pytest.raises(TrainingFailed) as caught:
        prepare(spec_of(), session)
    assert str(caught.value.details["job"]).endswith("-2")


def test_what_cannot_be_planned_is_refused(
    session: Session, bucket: str, spec_of: Make, tmp_path: Path
) -> None:
    with pytest.raises(SpecError, match=r"no objects ending with \.jsonl or \.jsonl\.gz exist below"):
        prepare(spec_of(), session)
    put(session, bucket, "traffic/a.jsonl", FEW)
    spec = spec_of()
    here = spec.model_copy(update={"data": spec.data.model_copy(update={"prompts": (str(tmp_path),)})})
    with pytest.raises(SpecError, match="allowed with --processing: s3:// prefixes"):
        prepare(here, session)
    gone = spec.model_copy(update={"bucket": "s3://prepare-none/x/"})
    with pytest.raises(PlanRefused, match="prepare-none cannot be used: it does not exist"):
        prepare(gone, session)


def test_a_role_without_the_right_creates_nothing_and_says_so(
    session: Session, server: Server, bucket: str, spec_of: Make
) -> None:
    put(session, bucket, "traffic/a.jsonl", FEW)
    trust = {
        "Effect": "Allow",
        "Principal": {"Service": "sagemaker.amazonaws.com"},
        "Action": "sts:AssumeRole",
    }
    role = server.client("iam").create_role(
        RoleName=f"none-{next(_numbers)}",
        AssumeRolePolicyDocument=json.dumps({"Version": "2012-10-17", "Statement": [trust]}),
    )["Role"]["Arn"]
    spec = spec_of()
    spec = spec.model_copy(update={"train": spec.train.model_copy(update={"execution_role_arn": role})})
    with pytest.raises(ServiceFault) as caught:
        prepare(spec, session)
    assert "This job was not created, and no instance is billed" in caught.value.message
    assert list(job_names(session, PROCESSING_JOB, plan_preparation(spec, session).bases["read"])) == []


def test_ctrl_c_leaves_the_job_and_it_is_found_again_and_stopped(
    session: Session, bucket: str, spec_of: Make
) -> None:
    put(session, bucket, "traffic/a.jsonl", [{"prompt": words(random.Random(n), 30)} for n in range(8)])
    spec = spec_of()
    plan = plan_preparation(spec, session)
    sent = plan.requests["read"].parameters
    held = {**sent, "AppSpecification": {**sent["AppSpecification"], "ContainerEntrypoint": ["sleep", "600"]}}
    held["AppSpecification"].pop("ContainerArguments")
    send_settings(plan, session)
    jobs.start(session, PROCESSING_JOB, held)
    jobs.start(session, PROCESSING_JOB, held)  # another run of the same spec: taken, not started twice

    def interrupted(_: float) -> None:
        raise KeyboardInterrupt

    name = plan.bases["read"]
    with pytest.raises(Interrupted) as caught:
        prepare(spec, session, pacing=Pacing(clock=session.now, sleep=interrupted))
    assert f"peagle-sm learn stop {name}" in (caught.value.next_step or "")
    assert "for at most 4" in caught.value.message
    assert [each.job.name for each in jobs.jobs_of(session, PROCESSING_JOB)] == [name]
    with pytest.raises(NotFound):
        jobs.job_state(session, PROCESSING_JOB, "none")
    flags = session.command_flags().split()
    assert name in run("learn", "status", *flags).output
    stopped = run("learn", "stop", name, *flags)
    assert stopped.exit_code == 0, stopped.output
    eventually(lambda: not jobs.job_state(session, PROCESSING_JOB, name).job.running)
    with pytest.raises(TrainingFailed, match="somebody, or the guard, stopped it"):
        jobs.follow(session, PROCESSING_JOB, name)
    assert prepare(spec, session), "a further attempt"
    assert jobs.find_job(session, PROCESSING_JOB, name).name == f"{name}-2"  # type: ignore[union-attr]


def test_ctrl_c_while_a_job_is_created_names_it_and_what_stops_it(
    session: Session, bucket: str, spec_of: Make
) -> None:
    def interrupted(**_: Any) -> None:
        raise KeyboardInterrupt

    put(session, bucket, "traffic/a.jsonl", FEW)
    events = session.creating_client("sagemaker").meta.events
    events.register("after-call.sagemaker.CreateProcessingJob", interrupted)
    try:
        with pytest.raises(Interrupted) as caught:
            prepare(spec_of(), session)
    finally:  # sessions share the client
        events.unregister("after-call.sagemaker.CreateProcessingJob", interrupted)
    name = str(caught.value.details["job"])
    assert describe_job(session, PROCESSING_JOB, name) is not None
    assert f"If the job {name} was created, it runs on, for at most 4h00m" in caught.value.message
    assert f"peagle-sm learn stop {name}" in (caught.value.next_step or "")
    jobs.stop(session, PROCESSING_JOB, name)


def test_the_command_shows_the_plan_and_ends_after_the_jobs_without_an_endpoint(
    session: Session, bucket: str, spec_of: Make, tmp_path: Path
) -> None:
    put(session, bucket, "traffic/a.jsonl", [{"prompt": words(random.Random(n), 30)} for n in range(8)])
    path = tmp_path / "learn.yaml"
    path.write_text(json.dumps(spec_of().model_dump(mode="json", exclude_defaults=True)))
    flags = [*session.command_flags().split(), "--format", "json"]
    shown = run("learn", "data", str(path), "--processing", "--dry-run", *flags)
    assert shown.exit_code == 0, shown.output
    told = json.loads(shown.stdout)
    assert (
        told["requests"]["read"]["ProcessingInputs"][1]["S3Input"]["S3DataDistributionType"]
        == "ShardedByS3Key"
    )
    assert list(job_names(session, PROCESSING_JOB, told["jobs"]["read"])) == []
    done = run("learn", "data", str(path), "--processing", "--yes", "--unguarded", *flags)
    assert done.exit_code == 0, done.output
    assert json.loads(done.stdout)["job"] == told["jobs"]["split"]


@pytest.fixture(scope="module")
def endpoint(session: Session) -> Iterator[str]:
    said = f"data: {json.dumps(EVENT)}\n\ndata: [DONE]\n\n"
    found: Endpoint = deploy(
        EndpointSpec(
            name=f"prepare-{next(_numbers)}",
            model="tiny-code",
            serving={"env": {"SCRIPT_INVOKE": "say", "SCRIPT_BODY": said}},
        ),
        session=session,
        unguarded=True,
    )
    yield found.name
    delete([found.name], session=session)


def test_the_answers_follow_as_without_processing(
    session: Session, bucket: str, spec_of: Make, endpoint: str, tmp_path: Path
) -> None:
    """The same prompts, prepared here and in jobs: the same conversations on each side, and answers."""
    rng = random.Random(8)
    bodies: list[dict[str, Any]] = [{"prompt": words(rng, 30)} for _ in range(12)]
    bodies.append({"turns": [words(rng, 12), "and then?"]})
    put(session, bucket, "traffic/a.jsonl", bodies[:6])
    put(session, bucket, "traffic/b.jsonl", bodies[6:])
    put(session, bucket, "general/g.jsonl", [{"prompt": f"general {words(rng, 30)}"} for _ in range(6)])
    spec = spec_of().model_copy(update={"endpoint": endpoint})
    general = {"general": f"s3://{bucket}/general/", "general_trained": 0.5}
    spec = spec.model_copy(update={"data": spec.data.model_copy(update=general)})
    prepared = read_prepared(spec, session, prepare(spec, session))
    plan = plan_data(spec, session, tmp_path / "work", prepared=prepared)
    assert plan.offer.to_ask == 13 + len(plan.split.general_train)
    result = make_data(
        plan,
        session,
        tmp_path / "work",
        confirm=lambda _: True,
        progress=lambda _: None,
        engine=ByteEngine(),
    )
    assert result.rows[TRAINING] + result.rows[VALIDATION] == plan.offer.to_ask + 1, "two turns of one"
    files = [tmp_path / name for name in ("a.jsonl", "g.jsonl")]
    files[0].write_text("".join(json.dumps(each) + "\n" for each in bodies))
    files[1].write_bytes(objects(session, bucket, "general/")["general/g.jsonl"])
    told = {"prompts": (str(files[0]),), "general": str(files[1])}
    here = spec.model_copy(update={"data": spec.data.model_copy(update=told)})
    local = plan_data(here, session, tmp_path / "other")
    for name in ("train", "held_out", "general_train"):
        assert {each.key for each in getattr(plan.split, name)} == {
            each.key for each in getattr(local.split, name)
        }
    assert len(plan.split.general) == len(local.split.general)
