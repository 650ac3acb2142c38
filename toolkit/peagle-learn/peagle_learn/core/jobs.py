"""A training job of SageMaker as it is described, and the seconds billed. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

RUNNING = ("InProgress", "Stopping")
"""Statuses of a job that has not ended."""
WITHOUT_INSTANCES = frozenset(
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


@dataclass(frozen=True)
class Job:
    """Result of DescribeTrainingJob; a time is None before it is reached."""

    name: str
    arn: str
    status: str
    created_at: datetime
    started_at: datetime | None = None
    ended_at: datetime | None = None
    failure_reason: str | None = None
    secondary: str = ""
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
    def interruptions(self) -> int:
        """Spot interruptions so far."""
        return [row["Status"] for row in self._moves].count("Interrupted")

    @property
    def inputs(self) -> list[str]:
        """S3 addresses that the job reads."""
        channels = self.raw.get("InputDataConfig") or ()
        return [str(row["DataSource"]["S3DataSource"].get("S3Uri", "")) for row in channels]

    @property
    def _moves(self) -> Sequence[Mapping[str, Any]]:
        return self.raw.get("SecondaryStatusTransitions") or ()

    def billed_seconds(self, now: datetime) -> float:
        """Return the seconds billed for each instance up to ``now``; at the end, AWS's own figure if known.

        AWS bills from the start to the end that Describe shows. A spot job loses its instances in between, so
        only the statuses in which it has them count, and no second twice.
        """
        if self.billable_s is not None and not self.running:
            return float(self.billable_s)
        if self.started_at is None:
            return 0.0
        until = self.ended_at or now
        if not (self.spot and self._moves):
            return max(0.0, (until - self.started_at).total_seconds())
        return _billed_seconds(self._moves, until)


def job_of(name: str, answer: Mapping[str, Any]) -> Job:
    """Read the answer of DescribeTrainingJob."""
    cluster = answer.get("ResourceConfig") or {}
    return Job(
        name=name,
        arn=answer["TrainingJobArn"],
        status=answer["TrainingJobStatus"],
        created_at=answer["CreationTime"],
        started_at=answer.get("TrainingStartTime"),
        ended_at=answer.get("TrainingEndTime"),
        failure_reason=answer.get("FailureReason") or None,
        secondary=answer.get("SecondaryStatus", ""),
        artifact=(answer.get("ModelArtifacts") or {}).get("S3ModelArtifacts"),
        instances=cluster.get("InstanceCount", 1),
        instance_type=cluster.get("InstanceType", ""),
        spot=bool(answer.get("EnableManagedSpotTraining")),
        max_runtime_s=(answer.get("StoppingCondition") or {}).get("MaxRuntimeInSeconds"),
        billable_s=answer.get("BillableTimeInSeconds"),
        raw=answer,
    )


def _billed_seconds(moves: Sequence[Mapping[str, Any]], until: datetime) -> float:
    """Sum the seconds on instances; a status without an end lasts until the next one begins."""

    def order(move: Mapping[str, Any]) -> tuple[datetime, datetime, bool, bool]:
        status = str(move["Status"])
        return (
            move["StartTime"],
            move.get("EndTime") or until,
            status not in WITHOUT_INSTANCES,
            status == "Stopping",
        )

    rows = sorted(moves, key=order)
    starts = [row["StartTime"] for row in rows]
    seconds, holds, counted = 0.0, False, starts[0]
    for row, following in zip(rows, [*starts[1:], until], strict=True):
        status = row["Status"]
        holds = holds if status == "Stopping" else status not in WITHOUT_INSTANCES
        begins, ends = max(row["StartTime"], counted), min(row.get("EndTime") or following, until)
        if holds and ends > begins:
            seconds += (ends - begins).total_seconds()
            counted = ends
    return seconds
