"""SageMaker's training jobs: one thin function per call, and the lines of their log."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from peagle_learn.aws.jobs import RUNNING, JobLine, lines_of_group, stop_once
from peagle_sm.aws.session.session import Session
from peagle_sm.core.guard import TRAINING_LOG_GROUP

_WITHOUT_INSTANCES = frozenset(
    {
        "Starting",
        "Pending",
        "Interrupted",
        "LaunchingMLInstances",  # this and the next: no longer sent
        "PreparingTrainingStack",
        "Completed",
        "Failed",
        "Stopped",
        "MaxRuntimeExceeded",
        "MaxWaitTimeExceeded",
    }
)
"""Secondary statuses in which nothing is billed; while Stopping that depends on the status before.

SageMaker may add others, and botocore knows some that no page explains (Restarting, Updating): they count as
billed, so that a budget is never overrun.
"""
_PAGE = 100


@dataclass(frozen=True)
class TrainingJob:
    """Result of DescribeTrainingJob; a time is None before it is reached."""

    name: str
    arn: str
    status: str
    secondary: str
    created_at: datetime
    started_at: datetime | None = None
    ended_at: datetime | None = None
    failure_reason: str | None = None
    artifact: str | None = None
    instances: int = 1
    instance_type: str = ""
    spot: bool = False
    max_runtime_s: int | None = None
    billable_s: int | None = None
    raw: Mapping[str, Any] = field(default_factory=dict, repr=False)

    @property
    def running(self) -> bool:
        """True until the job has ended; it may be billed."""
        return self.status in RUNNING

    @property
    def transitions(self) -> tuple[str, ...]:
        """Secondary statuses so far; a spot interruption is `Interrupted`."""
        rows = self.raw.get("SecondaryStatusTransitions") or ()
        return tuple(str(row["Status"]) for row in rows)

    def billed_seconds(self, now: datetime) -> float:
        """Return the seconds billed for each instance up to ``now``; at the end, AWS's own figure.

        AWS bills from TrainingStartTime to TrainingEndTime (DescribeTrainingJob). A spot job loses its
        instances in between, so only the statuses in which it has them count, and no second twice.
        """
        if self.billable_s is not None and not self.running:
            return float(self.billable_s)
        if self.started_at is None:
            return 0.0
        until = self.ended_at or now
        moves = self.raw.get("SecondaryStatusTransitions") or ()
        if not (self.spot and moves):
            return max(0.0, (until - self.started_at).total_seconds())
        return _billed_seconds(moves, until)


def _billed_seconds(moves: Sequence[Mapping[str, Any]], until: datetime) -> float:
    """Sum the seconds on instances; a status without an end lasts until the next one begins."""

    def order(move: Mapping[str, Any]) -> tuple[datetime, datetime, bool, bool]:
        status = str(move["Status"])
        return (
            move["StartTime"],
            move.get("EndTime") or until,
            status not in _WITHOUT_INSTANCES,
            status == "Stopping",
        )

    rows = sorted(moves, key=order)
    starts = [row["StartTime"] for row in rows]
    seconds, holds, counted = 0.0, False, starts[0]
    for row, following in zip(rows, [*starts[1:], until], strict=True):
        status = row["Status"]
        holds = holds if status == "Stopping" else status not in _WITHOUT_INSTANCES
        begins, ends = max(row["StartTime"], counted), min(row.get("EndTime") or following, until)
        if holds and ends > begins:
            seconds += (ends - begins).total_seconds()
            counted = ends
    return seconds


def create_training_job(session: Session, parameters: Mapping[str, Any]) -> None:
    """Send CreateTrainingJob once; the job is billed from its start on."""
    session.api("sagemaker", once=True).create_training_job(**parameters)


def describe_training_job(session: Session, name: str) -> TrainingJob | None:
    """Return the job; None if it does not exist."""
    answer = session.api("sagemaker").find("describe_training_job", TrainingJobName=name)
    if answer is None:
        return None
    resources = answer.get("ResourceConfig") or {}
    return TrainingJob(
        name=name,
        arn=answer["TrainingJobArn"],
        status=answer["TrainingJobStatus"],
        secondary=answer.get("SecondaryStatus", ""),
        created_at=answer["CreationTime"],
        started_at=answer.get("TrainingStartTime"),
        ended_at=answer.get("TrainingEndTime"),
        failure_reason=answer.get("FailureReason") or None,
        artifact=(answer.get("ModelArtifacts") or {}).get("S3ModelArtifacts"),
        instances=resources.get("InstanceCount", 1),
        instance_type=resources.get("InstanceType", ""),
        spot=bool(answer.get("EnableManagedSpotTraining")),
        max_runtime_s=(answer.get("StoppingCondition") or {}).get("MaxRuntimeInSeconds"),
        billable_s=answer.get("BillableTimeInSeconds"),
        raw=answer,
    )


def stop_training_job(session: Session, name: str) -> bool:
    """Send StopTrainingJob; the job saves a checkpoint within two minutes and ends.

    Return False if it ends or has ended already.
    """
    return stop_once(
        lambda: session.api("sagemaker").stop_training_job(TrainingJobName=name),
        lambda: describe_training_job(session, name),
    )


def training_job_names(session: Session, name_contains: str, running: bool = False) -> Iterator[str]:
    """Yield the names of jobs that contain a text, newest first; only the running ones if asked."""
    asked: dict[str, Any] = {
        "MaxResults": _PAGE,
        "SortBy": "CreationTime",
        "SortOrder": "Descending",
    }
    if name_contains:
        asked["NameContains"] = name_contains
    if running:
        asked["StatusEquals"] = "InProgress"
    for row in session.api("sagemaker").rows("list_training_jobs", "TrainingJobSummaries", **asked):
        yield str(row["TrainingJobName"])


def log_lines(session: Session, job: str, start: datetime) -> Iterator[JobLine]:
    """Yield a job's log from ``start`` on, oldest first; nothing before its first line."""
    return lines_of_group(session, TRAINING_LOG_GROUP, job, start)
