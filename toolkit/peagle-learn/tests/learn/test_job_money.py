"""What a job costs, when the follower stops it, and what Ctrl-C, a late yes and a deleted head do."""

from __future__ import annotations

import itertools
import json
import urllib.request
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import botocore.session
import pytest
from botocore.exceptions import ClientError
from hypothesis import given
from hypothesis import strategies as st

from peagle_learn import jobs
from peagle_learn import train as learning
from peagle_learn.aws.jobs import create_job, describe_job, job_names, log_lines, stop_job
from peagle_learn.core.jobs import WITHOUT_INSTANCES, Job
from peagle_learn.core.spec import LearnSpec
from peagle_learn.core.training_plan import LearnPlan
from peagle_sm.aws.session.session import Session
from peagle_sm.aws.storage.s3 import split_uri
from peagle_sm.core.errors import Interrupted, TrainingFailed
from peagle_sm.core.resources.resource import Request
from peagle_sm.service.progress import Pacing
from sagemaker_local.process import client
from tests.learn.test_train import never, remembering, run, scripted, start, yes
from tests.local.serving import Server, eventually

Make = Callable[..., LearnSpec]
T0 = datetime(2026, 11, 26, tzinfo=UTC)
KIND = "ml.c7i.2xlarge"


def after(minutes: float) -> datetime:
    return T0 + timedelta(minutes=minutes)


def moves(*rows: tuple[str, float]) -> list[dict[str, Any]]:
    """SecondaryStatusTransitions from statuses and the minutes of their starts; the last one has no end."""
    matches: list[dict[str, Any]] = [{"Status": name, "StartTime": after(start)} for name, start in rows]
    for one, following in itertools.pairwise(matches):
        one["EndTime"] = following["StartTime"]
    return matches


WAITS = moves(("Starting", 0), ("Downloading", 5), ("Training", 6), ("Interrupted", 35), ("Starting", 36))


@pytest.mark.parametrize(
    ("spot", "statuses", "minutes"),
    [
        (True, WAITS, 30),  # of 61: it has waited for instances since
        (True, [*WAITS[:-1], *moves(("Starting", 36), ("Training", 51), ("Stopping", 60))], 40),
        (True, moves(("Starting", 0), ("Stopping", 5)), 0),  # it never had instances
        (True, [], 56),
        (False, WAITS, 56),
    ],
)
def test_a_spot_job_is_billed_for_the_statuses_in_which_it_has_instances(
    spot: bool, statuses: list[dict[str, Any]], minutes: int
) -> None:
    assert of_statuses(statuses, spot).billed_seconds(after(61)) == 60 * minutes


def of_statuses(statuses: list[dict[str, Any]], spot: bool = True) -> Job:
    raw = {"SecondaryStatusTransitions": statuses}
    return Job("a", "arn", "InProgress", T0, after(5), spot=spot, raw=raw)


@pytest.mark.parametrize(
    ("status", "billed"),
    [
        *((name, True) for name in ("Downloading", "DownloadingTrainingImage", "Training", "Uploading")),
        *((name, True) for name in ("Restarting", "Updating", "OfNextYear")),
        *((name, False) for name in ("Starting", "LaunchingMLInstances", "PreparingTrainingStack")),
        *((name, False) for name in ("Pending", "Interrupted", "Completed", "Failed", "Stopped")),
        *((name, False) for name in ("MaxRuntimeExceeded", "MaxWaitTimeExceeded")),
    ],
)
def test_each_secondary_status_is_billed_or_not_and_so_is_stopping_after_it(
    status: str, billed: bool
) -> None:
    answer = moves(("Starting", 0), (status, 10), ("Stopping", 30))
    assert of_statuses(answer).billed_seconds(after(40)) == 60 * 30 * billed


def test_the_table_knows_every_secondary_status_of_sagemaker() -> None:
    shape: Any = botocore.session.get_session().get_service_model("sagemaker").shape_for("SecondaryStatus")
    unexplained = {
        "Downloading",
        "DownloadingTrainingImage",
        "Training",
        "Uploading",
        "Restarting",
        "Updating",
    }
    assert set(shape.enum) == WITHOUT_INSTANCES | unexplained | {"Stopping"}


def test_a_status_without_an_end_lasts_until_the_next_one_begins() -> None:
    answer = moves(("Starting", 0), ("Training", 5), ("Interrupted", 10), ("Starting", 20), ("Training", 50))
    del answer[1]["EndTime"]
    assert of_statuses(answer).billed_seconds(after(60)) == 60 * 15
    assert of_statuses(answer[::-1]).billed_seconds(after(60)) == 60 * 15, "in any order"


def test_overlapping_statuses_are_billed_once() -> None:
    answer = moves(("Starting", 0), ("Downloading", 5), ("Training", 10), ("Interrupted", 30))
    answer[1]["EndTime"] = after(20)
    answer.append({**answer[2]})
    assert of_statuses(answer).billed_seconds(after(60)) == 60 * 25


STATUSES = ("Starting", "Downloading", "Training", "Restarting", "Interrupted", "Uploading", "Stopping")
ROW = st.fixed_dictionaries(
    {"Status": st.sampled_from(STATUSES), "StartTime": st.integers(0, 90).map(after)},
    optional={"EndTime": st.integers(0, 90).map(after)},
)


@given(rows=st.lists(ROW, min_size=1, max_size=6), data=st.data(), now=st.integers(0, 90))
def test_no_more_than_the_wall_time_is_billed_and_the_order_of_the_rows_does_not_matter(
    rows: list[dict[str, Any]], data: st.DataObject, now: int
) -> None:
    billed = of_statuses(rows).billed_seconds(after(now))
    wall = (after(now) - min(row["StartTime"] for row in rows)).total_seconds()
    assert 0 <= billed <= max(0.0, wall)
    assert of_statuses(data.draw(st.permutations(rows))).billed_seconds(after(now)) == billed
    assert billed <= of_statuses(rows).billed_seconds(after(now + 1)), "it never becomes less"


def priced(plan: LearnPlan, usd_per_hour: float, **script: str) -> LearnPlan:
    """The plan's request with a script and a price: the local SageMaker costs nothing."""
    sent = scripted(plan, **script).request.parameters
    tags = [*sent["Tags"], {"Key": "peagle-sm:usd-per-hour", "Value": str(usd_per_hour)}]
    return replace(plan, request=Request("sagemaker", "create_training_job", {**sent, "Tags": tags}))


def holding(session: Session, plan: LearnPlan) -> None:
    def held() -> bool:
        job = describe_job(session, plan.job)
        assert job is not None
        lines = log_lines(session, job)
        return any("holding" in line.text for line in lines)

    eventually(held)


def secondary(session: Session, name: str) -> str:
    job = describe_job(session, name)
    assert job is not None
    return job.secondary


def capacity(server: Server, instances: int | None) -> None:
    body = json.dumps({"instance_type": KIND, "instances": instances}).encode()
    with urllib.request.urlopen(f"{server.url}/_peagle/capacity", body) as answer:
        assert answer.status == 200


def test_a_spot_job_that_waits_for_capacity_is_within_its_budget(
    local: Session, server: Server, folder: Path, make_spec: Make
) -> None:
    spec = make_spec("waits", spot=True, instance_type=KIND, max_hours=2)
    plan = priced(
        learning.plan_training(spec, local, folder), 100.0, hold="term", on_term='{"checkpoints/a": "1"}'
    )
    start(local, plan)
    holding(local, plan)
    port = server.status.port
    slept: list[float] = []
    capacity(server, 0)
    try:
        client.interrupt_training(port, plan.job)
        eventually(lambda: secondary(local, plan.job) == "Starting")
        client.advance_clock(port, 3600)

        def sleep(seconds: float) -> None:
            slept.append(seconds)
            capacity(server, None)
            eventually(lambda: secondary(local, plan.job) != "Starting")

        done = jobs.follow(local, plan.job, pacing=Pacing(clock=local.now, sleep=sleep), budget_usd=50.0)
    finally:
        capacity(server, None)
    assert (done.job.status, done.job.interruptions) == ("Completed", 1)
    assert done.billed_s < 600
    assert slept


def test_a_job_that_sagemaker_stops_at_its_longest_run_is_not_stopped_again(
    local: Session, server: Server, folder: Path, make_spec: Make
) -> None:
    plan = priced(
        learning.plan_training(make_spec("longest", max_hours=0.5), local, folder),
        100.0,
        hold="always",
        on_term="ignore",
    )
    start(local, plan)
    holding(local, plan)
    port = server.status.port
    client.advance_clock(port, 1830)
    eventually(lambda: secondary(local, plan.job) == "Stopping")
    assert stop_job(local, plan.job) is False, "it ends already"

    def sleep(_: float) -> None:
        client.advance_clock(port, 130)
        eventually(lambda: secondary(local, plan.job) != "Stopping")

    with pytest.raises(TrainingFailed, match=r"was stopped: it reached train\.max_hours"):
        jobs.follow(local, plan.job, pacing=Pacing(clock=local.now, sleep=sleep), budget_usd=50.0)


def test_a_job_that_ends_already_is_no_error_of_stop_while_describe_still_shows_it_in_progress(
    local: Session, folder: Path, make_spec: Make
) -> None:
    plan = scripted(learning.plan_training(make_spec("late"), local, folder), hold="always", on_term="ignore")
    start(local, plan)
    holding(local, plan)

    def late(parsed: dict[str, Any], **_: Any) -> None:
        parsed["TrainingJobStatus"] = "InProgress"

    events = local.client("sagemaker").meta.events
    assert jobs.stop(local, plan.job).job.status == "Stopping"
    events.register("after-call.sagemaker.DescribeTrainingJob", late)
    try:
        assert jobs.stop(local, plan.job).job.name == plan.job
    finally:  # sessions share the client
        events.unregister("after-call.sagemaker.DescribeTrainingJob", late)
        client.advance_clock(int(local.command_flags().split()[-1]), 130)
    eventually(lambda: not jobs.job_state(local, plan.job).job.running)


def ended(session: Session, *names: str) -> None:
    for name in names:
        jobs.stop(session, name)
    eventually(lambda: not any(jobs.job_state(session, name).job.running for name in names))


def test_other_running_jobs_of_the_spec_are_named_before_a_further_one_starts(
    local: Session, server: Server, folder: Path, make_spec: Make
) -> None:
    """The spec's job with another learning rate is one; those of another spec or program are none."""
    first = priced(
        learning.plan_training(make_spec("beside", learning_rate=2e-4), local, folder), 100.0, hold="always"
    )
    other = scripted(learning.plan_training(make_spec("beside-2"), local, folder), hold="always")
    start(local, first)
    start(local, other)
    program = {**other.request.parameters, "TrainingJobName": "beside-foreign", "Tags": []}
    create_job(local, program)
    holding(local, first)
    client.advance_clock(server.status.port, 1800)
    offers: list[learning.TrainingOffer] = []
    done = run(local, make_spec("beside"), folder, confirm=remembering(offers))
    message = " ".join(str(offers[0]).split())
    assert f"{first.job}, a job of beside, runs beside the new one: 1 x " in message
    assert ", 100.00 USD/hour, 50." in message
    stops = f"peagle-sm learn stop {first.job}{local.command_flags()}"
    assert f"Stop it with `{stops}`, unless you want both." in message
    assert other.job not in message
    assert "beside-foreign" not in message
    (named,) = [one for one in offers[0].to_dict()["findings"] if one["check"] == "running-job"]
    assert (named["severity"], stops in named["next_step"]) == ("warning", True)
    assert done.job.status == "Completed", "it is named, not refused"

    mine = [
        one for one in learning.plan_training(make_spec("beside", learning_rate=2e-4), local, folder).findings
    ]
    assert not [one for one in mine if one.check == "running-job"], "this job itself"
    ended(local, first.job, other.job)
    stop_job(local, "beside-foreign")
    after_all = learning.plan_training(make_spec("beside"), local, folder).findings
    assert not [one for one in after_all if one.check == "running-job"]


def test_running_jobs_that_may_not_be_listed_are_said_to_be_unknown(
    local: Session, folder: Path, make_spec: Make
) -> None:
    def denied(**_: Any) -> None:
        error: Any = {"Error": {"Code": "AccessDeniedException", "Message": "no"}}
        raise ClientError(error, "ListTrainingJobs")

    events = local.client("sagemaker").meta.events
    events.register("before-call.sagemaker.ListTrainingJobs", denied)
    try:
        plan = learning.plan_training(make_spec("denied"), local, folder)
    finally:  # sessions share the client
        events.unregister("before-call.sagemaker.ListTrainingJobs", denied)
    (found,) = [one for one in plan.findings if one.check == "running-job"]
    assert (found.severity, "could not be listed" in found.message) == ("info", True)


def test_ctrl_c_while_the_job_is_created_names_it_its_price_and_what_stops_it(
    local: Session, folder: Path, make_spec: Make
) -> None:
    def interrupted(**_: Any) -> None:
        raise KeyboardInterrupt

    spec = make_spec("cut", max_hours=3)
    events = local.creating_client("sagemaker").meta.events
    events.register("after-call.sagemaker.CreateTrainingJob", interrupted)
    try:
        with pytest.raises(Interrupted) as caught:
            run(local, spec, folder)
    finally:  # sessions share the client
        events.unregister("after-call.sagemaker.CreateTrainingJob", interrupted)
    name = str(caught.value.details["job"])
    assert list(job_names(local, name)) == [name]
    assert f"If the job {name} was created, it runs on, for at most 3h00m" in caught.value.message
    assert f"peagle-sm learn stop {name}" in (caught.value.next_step or "")


def test_the_guard_s_deadline_counts_from_the_yes(
    local: Session, server: Server, folder: Path, make_spec: Make
) -> None:
    spec = make_spec("late-yes", spot=True, max_hours=1)

    def late(_: learning.TrainingOffer) -> bool:
        client.advance_clock(server.status.port, 3 * 3600)
        return True

    done = run(local, spec, folder, confirm=late)
    rows = local.api("sagemaker").list_tags(ResourceArn=done.job.arn)["Tags"]
    answer = {one["Key"]: one["Value"] for one in rows}["peagle-sm:deadline"]
    ends = datetime.fromisoformat(answer.replace("Z", "+00:00")) - done.job.created_at
    assert abs(ends - timedelta(hours=2, minutes=30)) < timedelta(minutes=1)


def test_a_finished_job_without_its_head_is_followed_by_a_further_one(
    local: Session, folder: Path, make_spec: Make
) -> None:
    spec = make_spec("headless")
    first = run(local, spec, folder, confirm=yes)  # the scripted trainer leaves no head
    offers: list[learning.TrainingOffer] = []
    second = run(local, spec, folder, confirm=remembering(offers))
    assert second.job.name == f"{first.job.name}-2"
    assert "its head is gone" in str(offers[0])
    bucket, key = split_uri(second.job.artifact or "")
    local.api("s3").put_object(Bucket=bucket, Key=key, Body=b"a head")
    assert run(local, spec, folder, confirm=never).job.name == second.job.name
