"""SageMaker's processing jobs: one thin function per call."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from peagle_learn.aws.jobs import RUNNING, JobLine, lines_of_group, stop_once
from peagle_sm.aws.session.session import Session
from peagle_sm.core.guard import PROCESSING_LOG_GROUP

_PAGE = 100


@dataclass(frozen=True)
class ProcessingJob:
    """Result of DescribeProcessingJob; a time is None before it is reached."""

    name: str
    arn: str
    status: str
    created_at: datetime
    started_at: datetime | None = None
    ended_at: datetime | None = None
    failure_reason: str | None = None
    exit_message: str | None = None
    instances: int = 1
    instance_type: str = ""
    max_runtime_s: int | None = None
    raw: Mapping[str, Any] = field(default_factory=dict, repr=False)

    @property
    def running(self) -> bool:
        """True until the job has ended; it may be billed."""
        return self.status in RUNNING

    def billed_seconds(self, now: datetime) -> float:
        """Return the seconds of each instance up to ``now``; SageMaker bills whole seconds of its run."""
        if self.started_at is None:
            return 0.0
        return max(0.0, ((self.ended_at or now) - self.started_at).total_seconds())


def create_processing_job(session: Session, parameters: Mapping[str, Any]) -> None:
    """Send CreateProcessingJob once; the job is billed from its start on."""
    session.api("sagemaker", once=True).create_processing_job(**parameters)


def describe_processing_job(session: Session, name: str) -> ProcessingJob | None:
    """Return the job; None if it does not exist."""
    answer = session.api("sagemaker").find("describe_processing_job", ProcessingJobName=name)
    if answer is None:
        return None
    cluster = (answer.get("ProcessingResources") or {}).get("ClusterConfig") or {}
    return ProcessingJob(
        name=name,
        arn=answer["ProcessingJobArn"],
        status=answer["ProcessingJobStatus"],
        created_at=answer["CreationTime"],
        started_at=answer.get("ProcessingStartTime"),
        ended_at=answer.get("ProcessingEndTime"),
        failure_reason=answer.get("FailureReason") or None,
        exit_message=(answer.get("ExitMessage") or "").strip() or None,
        instances=cluster.get("InstanceCount", 1),
        instance_type=cluster.get("InstanceType", ""),
        max_runtime_s=(answer.get("StoppingCondition") or {}).get("MaxRuntimeInSeconds"),
        raw=answer,
    )


def stop_processing_job(session: Session, name: str) -> bool:
    """Send StopProcessingJob; what the job did is lost. Return False if it ends or has ended already."""
    return stop_once(
        lambda: session.api("sagemaker").stop_processing_job(ProcessingJobName=name),
        lambda: describe_processing_job(session, name),
    )


def processing_job_names(session: Session, name_contains: str, running: bool = False) -> Iterator[str]:
    """Yield the names of jobs that contain a text, newest first; only the running ones if asked."""
    asked: dict[str, Any] = {"MaxResults": _PAGE, "SortBy": "CreationTime", "SortOrder": "Descending"}
    if name_contains:
        asked["NameContains"] = name_contains
    if running:
        asked["StatusEquals"] = "InProgress"
    for row in session.api("sagemaker").rows("list_processing_jobs", "ProcessingJobSummaries", **asked):
        yield str(row["ProcessingJobName"])


def log_lines(session: Session, job: str, start: datetime) -> Iterator[JobLine]:
    """Yield a job's log from ``start`` on, oldest first; nothing before its first line."""
    return lines_of_group(session, PROCESSING_LOG_GROUP, job, start)
