"""A training job on the local SageMaker, over HTTP: found again, followed, left running, stopped, failed."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from peagle_learn import jobs
from peagle_learn import train as learning
from peagle_learn.aws.jobs import create_job, job_names, stop_job
from peagle_learn.core.spec import LearnSpec
from peagle_learn.core.training_plan import LearnPlan
from peagle_learn.core.training_request import out_of_reach
from peagle_learn.stored_data import find_data
from peagle_learn.train import TrainingOffer
from peagle_learn.training_facts import _reach_findings
from peagle_sm.aws.control.stacks import stack_status
from peagle_sm.aws.session.session import Session
from peagle_sm.aws.storage.s3 import split_uri
from peagle_sm.core.errors import (
    Declined,
    Interrupted,
    NotFound,
    PlanRefused,
    ServiceFault,
    TrainingFailed,
)
from peagle_sm.core.resources.resource import Request
from peagle_sm.service.progress import Event, Pacing
from tests.learn.conftest import WEIGHTS, stored
from tests.local.serving import AsOnAws, Server, eventually

Make = Callable[..., LearnSpec]
LINE = (
    "peagle-train step=5/50 epoch=1 loss=0.5 accuracy=0.6 accuracy_1=0.8 accuracy_2=0.4 "
    "learning_rate=1e-05 tokens_per_second=500 seconds_left=90"
)


def yes(_: TrainingOffer) -> bool:
    return True


def remembering(offers: list[TrainingOffer]) -> Callable[[TrainingOffer], bool]:
    def ask(offer: TrainingOffer) -> bool:
        offers.append(offer)
        return True

    return ask


def never(_: TrainingOffer) -> bool:
    raise AssertionError("it asked")


def scripted(plan: LearnPlan, **script: str) -> LearnPlan:
    """The plan's own request, with what the scripted trainer shall do."""
    sent = plan.request.parameters
    parameters = {**sent, "HyperParameters": {**sent["HyperParameters"], **script}}
    return replace(plan, request=Request(plan.request.service, plan.request.operation, parameters))


def start(session: Session, plan: LearnPlan) -> None:
    learning.send_data(plan, session)
    jobs.start(session, plan.parameters_at(session.now()))


def run(session: Session, spec: LearnSpec, folder: Path, **more: Any) -> jobs.JobState:
    return learning.train(spec, session, base=folder, **{"confirm": yes, "unguarded": True, **more})


def test_a_job_runs_to_its_end_and_the_same_spec_finds_it_again(
    local: Session, folder: Path, make_spec: Make
) -> None:
    offers: list[TrainingOffer] = []
    events: list[Event] = []
    done = run(
        local,
        make_spec("whole"),
        folder,
        confirm=remembering(offers),
        progress=events.append,
    )
    (offer,) = offers
    assert (done.job.name, done.job.status) == (offer.plan.job, "Completed")
    assert done.job.artifact == offer.plan.artifact
    assert done.usd == 0.0
    assert events[-1].status == "Completed"
    bucket, key = split_uri(offer.plan.artifact)
    local.api("s3").put_object(Bucket=bucket, Key=key, Body=b"the scripted trainer leaves no head")
    again = run(local, make_spec("whole"), folder, confirm=never)
    assert again.job.name == done.job.name
    assert len(list(job_names(local, offer.plan.base))) == 1


def test_other_data_is_another_job_and_how_often_it_logs_is_not(
    local: Session, folder: Path, make_spec: Make
) -> None:
    plan = learning.plan_training(make_spec(), local, folder)
    logs = learning.plan_training(make_spec(log_every_steps=1), local, folder)
    rate = learning.plan_training(make_spec(learning_rate=2e-4), local, folder)
    with (folder / "training.tokens.jsonl").open("a") as file:
        file.write((folder / "training.tokens.jsonl").read_text().splitlines()[0] + "\n")
    data = learning.plan_training(make_spec(), local, folder)
    assert plan.job == logs.job
    assert len({plan.job, rate.job, data.job}) == 3


def test_nothing_is_sent_before_it_is_confirmed(local: Session, folder: Path, make_spec: Make) -> None:
    local.api("s3").create_bucket(Bucket="asked-first")
    spec = make_spec("asked", bucket="s3://asked-first")
    with pytest.raises(Declined):
        run(local, spec, folder, confirm=lambda _: False)
    assert local.api("s3").list_objects_v2(Bucket="asked-first")["KeyCount"] == 0
    assert list(job_names(local, "asked-")) == []


def test_the_lines_become_steps_figures_and_progress(local: Session, folder: Path, make_spec: Make) -> None:
    plan = scripted(learning.plan_training(make_spec("lines"), local, folder), say=LINE)
    start(local, plan)
    events: list[Event] = []
    done = jobs.follow(local, plan.job, progress=events.append)
    assert done.last is not None
    assert (done.last.step, done.last.steps, done.last.figures["loss"]) == (5, 50, 0.5)
    assert done.last.depth_accuracies() == {1: 0.8, 2: 0.4}
    assert (events[-1].done, events[-1].total, events[-1].left_s) == (5, 50, 90.0)


def test_ctrl_c_leaves_the_job_running_and_names_the_command_that_stops_it(
    local: Session, folder: Path, make_spec: Make
) -> None:
    plan = scripted(learning.plan_training(make_spec("left"), local, folder), hold="always")
    start(local, plan)

    def interrupted(_: float) -> None:
        raise KeyboardInterrupt

    pacing = Pacing(clock=local.now, sleep=interrupted)
    with pytest.raises(Interrupted) as caught:
        jobs.follow(local, plan.job, pacing=pacing)
    assert f"peagle-sm learn stop {plan.job}" in (caught.value.next_step or "")
    assert jobs.job_state(local, plan.job).job.running
    assert plan.job in [one.job.name for one in jobs.jobs_of(local)]
    jobs.stop(local, plan.job)
    with pytest.raises(TrainingFailed, match="was stopped"):
        jobs.follow(local, plan.job)


def test_after_a_failure_the_same_spec_starts_a_second_job_on_its_checkpoints(
    local: Session, folder: Path, make_spec: Make
) -> None:
    spec = make_spec("fails")
    plan = scripted(learning.plan_training(spec, local, folder), fail="line 3 is empty", exit="2")
    start(local, plan)
    with pytest.raises(TrainingFailed, match="line 3 is empty"):
        jobs.follow(local, plan.job)
    offers: list[TrainingOffer] = []
    done = run(local, spec, folder, confirm=remembering(offers))
    assert done.job.name == f"{plan.job}-2"
    assert offers[0].earlier is not None
    assert done.job.raw["CheckpointConfig"] == plan.request.parameters["CheckpointConfig"]


def test_a_job_over_its_budget_is_stopped(local: Session, folder: Path, make_spec: Make) -> None:
    plan = scripted(learning.plan_training(make_spec("dear"), local, folder), hold="always")
    tags = [*plan.request.parameters["Tags"], {"Key": "peagle-sm:usd-per-hour", "Value": "1000000"}]
    parameters = {**plan.request.parameters, "Tags": tags}
    start(local, replace(plan, request=Request("sagemaker", "create_training_job", parameters)))
    with pytest.raises(TrainingFailed, match=r"its budget of 1\.00 USD is spent"):
        jobs.follow(local, plan.job, budget_usd=1.0)


def test_the_first_run_s_job_is_taken_when_two_start_at_once(
    local: Session, folder: Path, make_spec: Make
) -> None:
    plan = learning.plan_training(make_spec("twice"), local, folder)
    start(local, plan)
    jobs.start(local, plan.parameters_at(local.now()))
    assert len(list(job_names(local, plan.base))) == 1


def test_data_that_a_running_job_reads_is_not_deleted(local: Session, folder: Path, make_spec: Make) -> None:
    spec = make_spec("reads")
    plan = scripted(learning.plan_training(spec, local, folder), hold="always")
    start(local, plan)
    with pytest.raises(PlanRefused, match=f"{plan.job} runs, and reads"):
        find_data(spec, local)
    jobs.stop(local, plan.job)
    with pytest.raises(TrainingFailed, match="was stopped"):
        jobs.follow(local, plan.job)
    assert find_data(spec, local).objects == 2


def test_a_first_attempt_that_is_refused_names_the_data_that_it_left(
    local: Session, folder: Path, make_spec: Make
) -> None:
    spec = make_spec("left-data", execution_role_arn="arn:aws:iam::123456789012:role/of-nobody")
    plan = learning.plan_training(spec, local, folder)
    sent = learning.send_data(plan, local)
    with pytest.raises(ServiceFault) as caught:
        jobs.start(local, plan.parameters_at(local.now()), remaining=sent)
    assert "peagle-sm learn delete-data" in caught.value.message
    assert find_data(spec, local).objects == 2


def test_a_job_that_is_not_ours_is_neither_shown_nor_stopped(
    local: Session, folder: Path, make_spec: Make
) -> None:
    plan = scripted(learning.plan_training(make_spec("foreign"), local, folder), hold="always")
    learning.send_data(plan, local)
    create_job(local, {**plan.request.parameters, "Tags": []})
    with pytest.raises(PlanRefused, match="did not create"):
        jobs.stop(local, plan.job)
    with pytest.raises(NotFound):
        jobs.job_state(local, "no-such-job")
    stop_job(local, plan.job)


@pytest.mark.parametrize(
    ("train", "message"),
    [
        ({"sequence_length": 100_000}, "the target's context"),
        ({"sequence_length": 8192, "sequence_partitions": 1, "micro_batch_size": 256}, "too little memory"),
        ({"training": "nowhere.tokens.jsonl"}, "is not a file or folder"),
        ({"training": "bad.tokens.jsonl"}, "line 2"),
        ({"training": "empty.tokens.jsonl"}, "found 0 documents"),
        ({"max_hours": 0.0001}, "one epoch of 800 tokens"),
    ],
)
def test_what_is_wrong_is_told_before_anything_is_created(
    local: Session, folder: Path, make_spec: Make, train: dict[str, Any], message: str
) -> None:
    (folder / "bad.tokens.jsonl").write_text(
        '{"input_ids": [1, 2], "loss_mask": [0, 1]}\n{"input_ids": [1], "loss_mask": [1, 1]}\n'
    )
    (folder / "empty.tokens.jsonl").write_text("\n")
    with pytest.raises(PlanRefused, match=message):
        run(local, make_spec("refused", **train), folder, confirm=never)
    assert list(job_names(local, "refused-")) == []


def test_bad_data_is_told_once_and_times_below_an_hour_in_a_unit_that_shows_them(
    local: Session, folder: Path, make_spec: Make
) -> None:
    plan = learning.plan_training(make_spec("bad", training="nowhere.tokens.jsonl"), local, folder)
    assert [one.message for one in plan.errors if one.check == "data"] == [
        one.message for one in plan.errors if "is not a file or folder" in one.message
    ]
    short = learning.plan_training(make_spec("short", max_hours=0.0001), local, folder)
    (said,) = (one.message for one in short.errors if one.check == "epoch")
    assert "found 0.0001 (0.4 s); one epoch of 800 tokens takes about " in said
    assert "about 0.0 " not in f"{said} {short.card()}"


def test_validation_on_the_training_data_is_told(local: Session, folder: Path, make_spec: Make) -> None:
    same = make_spec("same", validation="training.tokens.jsonl")
    plan = learning.plan_training(same, local, folder)
    assert [one.severity for one in plan.findings if one.check == "validation"] == ["warning"]
    plan = learning.plan_training(make_spec("same"), local, folder)
    assert [one for one in plan.findings if one.check == "validation"] == []


def test_the_role_of_the_stack_is_checked_for_what_it_may_use(
    local: Session, folder: Path, make_spec: Make, server: Server, request: pytest.FixtureRequest
) -> None:
    facts = learning.plan_training(make_spec(), local, folder).facts
    client = server.client("cloudformation")
    template = {
        "Parameters": {"Bucket": {"Type": "String"}, "Prefix": {"Type": "String"}},
        "Resources": {"Topic": {"Type": "AWS::SNS::Topic", "Properties": {}}},
    }
    values = {"Bucket": "learn-tests", "Prefix": "x"}
    client.create_stack(
        StackName="PeagleTraining",
        TemplateBody=json.dumps(template),
        Parameters=[{"ParameterKey": key, "ParameterValue": value} for key, value in values.items()],
    )
    request.addfinalizer(lambda: client.delete_stack(StackName="PeagleTraining"))
    session = Session.from_boto3(AsOnAws(server.url))
    eventually(lambda: stack_status(session, "PeagleTraining") == "CREATE_COMPLETE")

    def said(**more: Any) -> list[str]:
        reach_findings = _reach_findings(make_spec(**more), facts, session)
        return [f"{one.severity} {one.message.partition(';')[0]}" for one in reach_findings]

    target, head = f"{WEIGHTS}target/", f"{WEIGHTS}p-eagle/"
    assert said() == [f"error target.uri: found {target}", f"error head: found {head}"]
    assert said(bucket="s3://learn-tests/heads")[0] == "error bucket: found s3://learn-tests/heads/"
    assert said(execution_role_arn="arn:aws:iam::123456789012:role/mine") == []
    in_reach = replace(facts, target_uri="s3://jumpstart-cache-prod-us-east-1/a/", head_uri="s3://seen/b/h/")
    assert list(out_of_reach(make_spec(), in_reach, {"Bucket": "learn-tests", "Prefix": "x"})) == ["head"]


def test_a_head_of_another_kind_and_a_missing_bucket_are_refused(
    local: Session, folder: Path, make_spec: Make
) -> None:
    stored(local, "eagle3")
    spec = make_spec("other", head=f"{WEIGHTS}eagle3/", bucket="s3://no-such-bucket")
    with pytest.raises(PlanRefused) as caught:
        run(local, spec, folder, confirm=never)
    names = {one["check"] for one in caught.value.details["findings"] if one["severity"] == "error"}
    assert "bucket" in names
    assert any(one.startswith("head-") for one in names)
