"""What training and processing jobs of SageMaker share: who made one, its price, its stop and its log."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Protocol, TypeVar

from peagle_sm.aws.control import sagemaker as control
from peagle_sm.aws.session.errors import is_ending
from peagle_sm.aws.session.session import Session
from peagle_sm.core.errors import NotFound, PlanRefused, ServiceFault
from peagle_sm.core.plan.tags_and_schedules import LEARN, MANAGED_BY, MANAGER, USD_PER_HOUR

RUNNING = ("InProgress", "Stopping")
"""Statuses of a job that has not ended."""


class _Job(Protocol):
    @property
    def arn(self) -> str: ...

    @property
    def status(self) -> str: ...


Job = TypeVar("Job", bound=_Job)


def demand_ours(session: Session, job: Job | None, what: str) -> tuple[Job, dict[str, str]]:
    """Return a job of any kind with its tags; ``what`` names it in messages.

    Raises:
        NotFound: there is no such job.
        PlanRefused: peagle-sm did not create it.
    """
    if job is None:
        raise NotFound(
            f"there is no {what} in {session.region}",
            next_step=f"List them with `peagle-sm learn status{session.command_flags()}`.",
        )
    tags = control.tags_of(session, job.arn) or {}
    if tags.get(MANAGED_BY) != MANAGER or LEARN not in tags:
        raise PlanRefused(
            f"peagle-sm did not create the {what}",
            next_step="Use SageMaker's console or the AWS CLI for it.",
        )
    return job, tags


def price_in(tags: Mapping[str, str]) -> float | None:
    """Return the price of all instances from the job's tag; absent means that nothing is billed, as local."""
    try:
        return float(tags.get(USD_PER_HOUR, "0"))
    except ValueError:
        return None


def stop_once(send: Callable[[], object], describe: Callable[[], _Job | None]) -> bool:
    """Have a job of any kind stop; return False if it ends already, which SageMaker refuses.

    DescribeX may still show InProgress when StopX is refused, so the refusal's text counts first.
    """
    try:
        send()
    except ServiceFault as error:
        if is_ending(error):
            return False
        job = describe()
        if job is None or job.status == "InProgress":
            raise
        return False
    return True


@dataclass(frozen=True)
class JobLine:
    """One line of a job's log; ``id`` detects repeats."""

    id: str
    at: datetime
    text: str


def lines_of_group(session: Session, group: str, job: str, start: datetime) -> Iterator[JobLine]:
    """Yield what a job of any kind wrote to its log group, from ``start`` on, oldest first."""
    begins = int(start.astimezone(UTC).timestamp() * 1000)
    asked = {"logGroupName": group, "logStreamNamePrefix": f"{job}/", "startTime": begins}
    try:
        for event in session.api("logs").rows("filter_log_events", "events", **asked):
            if not str(event.get("logStreamName", "")).startswith(f"{job}/"):
                continue  # a server that does not know the prefix, as the local one
            at = datetime.fromtimestamp(event["timestamp"] / 1000, UTC)
            yield JobLine(str(event.get("eventId", "")), at, str(event["message"]).rstrip("\n"))
    except NotFound:
        return  # the first line makes the group and the stream
