"""The installed guard stops jobs past their deadline: its Lambdas, on the local SageMaker.

SageMaker ends a job at its own limits first, and the local one does so too. The guard is the second line, for
a job whose own limit does not hold: here its StoppingCondition is raised to the most that AWS takes.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from peagle_learn import jobs
from peagle_learn import train as learning
from peagle_learn.aws.jobs import JobLine, create_job, describe_job, log_lines, stop_job
from peagle_learn.core.jobs import Job
from peagle_learn.core.spec import LearnSpec
from peagle_learn.core.training_plan import LearnPlan
from peagle_sm.aws.control import stacks
from peagle_sm.aws.session.session import Session
from peagle_sm.core.errors import TrainingFailed
from peagle_sm.core.guard import GUARD_STACK
from peagle_sm.service.guard.status import SWEEP_TOPIC
from sagemaker_local.process.client import advance_clock
from tests.cli.running import run
from tests.local.serving import Server, eventually

pytestmark = pytest.mark.slow

Make = Callable[..., LearnSpec]
MINUTE, DAY = 60, 86_400
#: Deadline: three minutes of waiting and training, and half an hour.
SHORT = {"spot": True, "max_hours": 0.05, "max_wait_hours": 0.05}


@pytest.fixture
def guarded(local: Session) -> Iterator[Session]:
    """The guard that `guard install` puts in, with its schedule; removed at the end."""
    flags = local.command_flags().split()
    installed = run("guard", "install", "--yes", "--format", "quiet", *flags)
    assert installed.exit_code == 0, installed.output
    yield local
    run("guard", "uninstall", "--yes", "--format", "quiet", *flags)


def notices(server: Server, session: Session) -> Callable[[], list[dict[str, Any]]]:
    """Subscribe a queue to the guard's topic; return what reads it."""
    stack = stacks.describe(session, GUARD_STACK)
    assert stack is not None
    sqs, sns = server.client("sqs"), server.client("sns")
    url = sqs.create_queue(QueueName="guard-notices")["QueueUrl"]
    arn = sqs.get_queue_attributes(QueueUrl=url, AttributeNames=["QueueArn"])["Attributes"]["QueueArn"]
    sns.subscribe(TopicArn=stack.outputs[SWEEP_TOPIC], Protocol="sqs", Endpoint=arn)

    def read() -> list[dict[str, Any]]:
        result = sqs.receive_message(QueueUrl=url, MaxNumberOfMessages=10).get("Messages", [])
        return [json.loads(one["Body"]) for one in result]

    return read


def start(session: Session, plan: LearnPlan, name: str, *, tagged: bool = True) -> str:
    """Start the plan's job under a name, held, and with a limit of its own that does not come."""
    sent = plan.request.parameters
    parameters = {
        **sent,
        "TrainingJobName": name,
        "HyperParameters": {**sent["HyperParameters"], "hold": "always"},
        "StoppingCondition": {"MaxRuntimeInSeconds": 28 * DAY, "MaxWaitTimeInSeconds": 28 * DAY},
        "Tags": sent["Tags"] if tagged else [],
    }
    create_job(session, parameters)
    eventually(lambda: any("holding" in line.text for line in lines(session, name)))
    return name


def lines(session: Session, name: str) -> list[JobLine]:
    job = describe_job(session, name)
    assert job is not None
    return list(log_lines(session, job))


def test_it_stops_the_job_past_its_deadline_and_no_other(
    guarded: Session, server: Server, folder: Path, make_spec: Make
) -> None:
    session, port = guarded, server.status.port
    plan = learning.plan_training(make_spec("past", **SHORT), session, folder)
    longer = learning.plan_training(make_spec("longer", **{**SHORT, "max_wait_hours": 24}), session, folder)
    learning.send_data(plan, session)
    learning.send_data(longer, session)
    read = notices(server, session)
    late = start(session, plan, plan.job)
    others = [start(session, longer, longer.job), start(session, plan, "foreign-past", tagged=False)]
    try:
        advance_clock(port, 30 * MINUTE)
        assert jobs.job_state(session, late).job.running, "its deadline has not passed"
        advance_clock(port, 10 * MINUTE)
        job = eventually(lambda: ended(session, late))
        assert (job.status, job.secondary) == ("Stopped", "Stopped")
        for name in others:
            result = describe_job(session, name)
            assert result is not None
            assert result.status == "InProgress", name
        # The guard's alarms tell of themselves on the same topic.
        messages = [one["Subject"] for one in eventually(read) if "training job" in one["Subject"]]
        assert messages == [f"peagle-sm: training job {late} is being stopped"]
        with pytest.raises(TrainingFailed, match="was stopped"):
            jobs.follow(session, late)
        assert [one.text for one in lines(session, late) if "holding" in one.text]
    finally:
        for name in others:
            stop_job(session, name)
    again = learning.train(
        make_spec("past", **SHORT), session, confirm=lambda _: True, base=folder, unguarded=True
    )
    assert (again.job.name, again.job.status) == (f"{late}-2", "Completed")


def ended(session: Session, name: str) -> Job | None:
    job = describe_job(session, name)
    assert job is not None
    return None if job.running else job
