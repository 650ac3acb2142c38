"""Training jobs of peagle-sm that run past their limit: which they are, and stopping them.

SageMaker ends a job at its own maximum run time; this is the second line. A job is over its limit some time
after that run time, or after the deadline in its tags. The sweeper decides, and the switch stops: it
reads the tags again, and IAM lets it stop nothing without the tag of peagle-sm.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from datetime import datetime, timedelta
from typing import Any

from peagle_guard.aws import Aws, Job, all_pages
from peagle_guard.settings import Settings, time_of
from peagle_sm.core.plan.tags_and_schedules import DEADLINE, LEARN, MANAGED_BY, MANAGER

STOP = "stop-training"
"""The switch's action."""
GRACE = timedelta(minutes=15)
"""SageMaker stops a job itself: two minutes for its last checkpoint, then the upload of its head."""


@dataclass(frozen=True)
class TrainingEntry:
    """One training job in the report."""

    name: str
    action: str
    reason: str
    fault: str | None = None

    def as_json(self) -> dict[str, Any]:
        """Return the entry as JSON types."""
        return {key: value for key, value in asdict(self).items() if value is not None}


def is_our_job(tags: Mapping[str, str]) -> bool:
    """Return whether peagle-sm created a job."""
    return tags.get(MANAGED_BY) == MANAGER and bool(tags.get(LEARN))


def over_limit(job: Job, tags: Mapping[str, str], now: datetime) -> str | None:
    """Return why a job must be stopped; None if it may run.

    A tag that is no time counts as no deadline. The run time of a spot job is not continuous, so only its
    deadline counts.
    """
    deadline = time_of(tags.get(DEADLINE))
    if deadline is not None and now > deadline:
        return f"its deadline passed at {deadline.isoformat(timespec='seconds')}"
    if job.spot or job.started_at is None or job.max_runtime is None:
        return None
    ends = job.started_at + job.max_runtime + GRACE
    return f"its run time passed at {ends.isoformat(timespec='seconds')}" if now > ends else None


def watch(
    aws: Aws, settings: Settings, now: datetime, dry_run: bool
) -> tuple[list[TrainingEntry], list[str]]:
    """Stop the jobs that are over their limit; return an entry for each of ours, and what failed."""
    try:
        jobs = list(all_pages(aws.running_jobs))
    except Exception as error:  # the endpoints are watched all the same
        return [], [f"ListTrainingJobs: {type(error).__name__}: {error}"]
    entries: list[TrainingEntry] = []
    for name, arn in jobs:
        try:
            entry = _entry(aws, settings, name, arn, now, dry_run)
        except Exception as error:
            fault = f"{type(error).__name__}: {error}"
            entry = TrainingEntry(name, "none", "it could not be checked or stopped", fault)
        if entry is not None:
            entries.append(entry)
    return entries, [f"{each.name}: {each.fault}" for each in entries if each.fault]


def _entry(
    aws: Aws, settings: Settings, name: str, arn: str, now: datetime, dry_run: bool
) -> TrainingEntry | None:
    tags = aws.endpoint_tags(arn)
    if not is_our_job(tags):
        return None
    why = over_limit(aws.describe_job(name), tags, now)
    if why is None:
        return TrainingEntry(name, "none", "within its limit")
    if dry_run:
        return TrainingEntry(name, "stop", why)
    answer = aws.invoke(settings.switch_function, {"action": STOP, "job": name, "arn": arn})
    if answer.get("state") == "refused":
        return TrainingEntry(name, "none", why, f"the switch answered: {answer.get('detail')}")
    try:
        aws.publish(
            f"peagle-sm: training job {name} is being stopped"[:100],
            f"Training job {name} is being stopped: {why}.\n"
            "It saves a checkpoint; `peagle-sm learn train` with the same learn.yaml goes on from it.",
        )
    except Exception as error:
        return TrainingEntry(name, "stop", why, f"the notice: {type(error).__name__}: {error}")
    return TrainingEntry(name, "stop", why)


def stop(aws: Aws, event: Mapping[str, Any]) -> dict[str, Any]:
    """Stop the job of an event if its tags are peagle-sm's; answer as the switch does."""
    name, arn = str(event.get("job", "")), str(event.get("arn", ""))
    if not name or ":training-job/" not in arn or arn.rpartition("/")[2].lower() != name.lower():
        return {"state": "refused", "detail": f"found {dict(event)!r}; job and arn must name one job"}
    if not is_our_job(aws.endpoint_tags(arn)):
        return {"state": "refused", "detail": f"the tags of {name} do not mark it as created by peagle-sm"}
    aws.stop_job(name)
    return {"state": "in-progress", "detail": f"{name} is being stopped", "started": True}
