"""SageMaker's training jobs: one thin function per call, and the lines of their log."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from peagle_learn.core.jobs import Job, job_of
from peagle_sm.aws.session.session import Session
from peagle_sm.core.errors import NotFound, ServiceFault
from peagle_sm.core.guard import TRAINING_LOG_GROUP

_PAGE = 100
_ENDING_WORDS = re.compile(r"\bis in status (?:stopping|stopped|completed|failed)\b", re.IGNORECASE)


def create_job(session: Session, parameters: Mapping[str, Any]) -> None:
    """Send CreateTrainingJob once; the job is billed from its start on."""
    session.api("sagemaker", once=True).create_training_job(**parameters)


def describe_job(session: Session, name: str) -> Job | None:
    """Return the job; None if it does not exist."""
    answer = session.api("sagemaker").find("describe_training_job", TrainingJobName=name)
    return None if answer is None else job_of(name, answer)


def stop_job(session: Session, name: str) -> bool:
    """Have a job stop; return False if it ends or has ended already, which SageMaker refuses.

    The job saves a checkpoint within two minutes. DescribeTrainingJob may still show InProgress when
    StopTrainingJob is refused, so the refusal's text counts first.
    """
    try:
        session.api("sagemaker").stop_training_job(TrainingJobName=name)
    except ServiceFault as error:
        if is_ending(error):
            return False
        job = describe_job(session, name)
        if job is None or job.status == "InProgress":
            raise
        return False
    return True


def is_ending(error: BaseException) -> bool:
    """Return whether a StopX was refused because the job ends or has ended: only the message says so."""
    return (
        isinstance(error, ServiceFault)
        and error.code.startswith("Validation")
        and _ENDING_WORDS.search(error.message) is not None
    )


def job_names(session: Session, name_contains: str, running: bool = False) -> Iterator[str]:
    """Yield the names of jobs that contain a text, newest first; with ``running``, of those in progress."""
    filters: dict[str, Any] = {"MaxResults": _PAGE, "SortBy": "CreationTime", "SortOrder": "Descending"}
    if name_contains:
        filters["NameContains"] = name_contains
    if running:
        filters["StatusEquals"] = "InProgress"
    for row in session.api("sagemaker").rows("list_training_jobs", "TrainingJobSummaries", **filters):
        yield str(row["TrainingJobName"])


@dataclass(frozen=True)
class JobLine:
    """One line of a job's log; ``id`` detects repeats."""

    id: str
    at: datetime
    text: str


def log_lines(session: Session, job: Job, start: datetime | None = None) -> Iterator[JobLine]:
    """Yield a job's log from ``start`` (default: its creation) on, oldest first; may be empty."""
    begins = int((start or job.created_at).astimezone(UTC).timestamp() * 1000)
    streams = f"{job.name}/"
    filters = {"logGroupName": TRAINING_LOG_GROUP, "logStreamNamePrefix": streams, "startTime": begins}
    try:
        for event in session.api("logs").rows("filter_log_events", "events", **filters):
            if not str(event.get("logStreamName", "")).startswith(streams):
                continue  # a server that does not know the prefix, as the local one
            at = datetime.fromtimestamp(event["timestamp"] / 1000, UTC)
            yield JobLine(str(event.get("eventId", "")), at, str(event["message"]).rstrip("\n"))
    except NotFound:
        return  # the first line makes the group and the stream
