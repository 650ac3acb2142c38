"""A training or processing job of SageMaker: the differences as data, and the seconds billed. Pure."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Literal

from peagle_learn.core.job_names import read_lines
from peagle_sm.core.guard import PROCESSING_LOG_GROUP, TRAINING_LOG_GROUP
from peagle_sm.core.words import elapsed

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
_READ_LINE = re.compile(
    r"peagle-prepare read host=(\S+) files=(\d+)/(\d+) prompts=(\d+) bytes=(\d+)/(\d+) seconds_left=(\d+)"
)


@dataclass(frozen=True)
class JobProgress:
    """What the lines of a job's log say: words that follow its status, steps or files, and seconds left."""

    words: str = ""
    done: int | None = None
    total: int | None = None
    left_s: float | None = None


@dataclass(frozen=True)
class JobKind:
    """One kind of SageMaker's jobs.

    ``cluster`` is the path to its instances in the answer of Describe.
    ``mark`` is in the lines that ``progress`` reads, with the number of instances. The last four are parts of
    messages: ``follow`` says how to follow a job again, ``again`` what the same command does after its end,
    ``longer`` what lets it run longer than ``limit_field``.
    """

    name: Literal["training", "processing"]
    cluster: tuple[str, ...]
    log_group: str
    mark: str
    progress: Callable[[Sequence[str], int], JobProgress]
    limit_field: str
    follow: str
    again: str
    longer: str

    @property
    def word(self) -> str:
        """The word that begins the members of its API, as in TrainingJobName."""
        return self.name.capitalize()


@dataclass(frozen=True)
class Job:
    """Result of DescribeTrainingJob or DescribeProcessingJob; a time is None before it is reached.

    ``secondary``, ``artifact``, ``spot`` and ``billable_s`` are of training jobs, ``exit_message`` of
    processing jobs.
    """

    kind: JobKind
    name: str
    arn: str
    status: str
    created_at: datetime
    started_at: datetime | None = None
    ended_at: datetime | None = None
    failure_reason: str | None = None
    exit_message: str | None = None
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
        channels = [row["DataSource"]["S3DataSource"] for row in self.raw.get("InputDataConfig") or ()]
        inputs = [row.get("S3Input") or {} for row in self.raw.get("ProcessingInputs") or ()]
        return [str(source.get("S3Uri", "")) for source in (*channels, *inputs)]

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


def job_of(kind: JobKind, name: str, answer: Mapping[str, Any]) -> Job:
    """Read the answer of DescribeTrainingJob or DescribeProcessingJob."""
    cluster: Mapping[str, Any] = answer
    for member in kind.cluster:
        cluster = cluster.get(member) or {}
    return Job(
        kind,
        name=name,
        arn=answer[f"{kind.word}JobArn"],
        status=answer[f"{kind.word}JobStatus"],
        created_at=answer["CreationTime"],
        started_at=answer.get(f"{kind.word}StartTime"),
        ended_at=answer.get(f"{kind.word}EndTime"),
        failure_reason=answer.get("FailureReason") or None,
        exit_message=(answer.get("ExitMessage") or "").strip() or None,
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


def _training_progress(texts: Sequence[str], _: int) -> JobProgress:
    """Read the newest step of the trainer."""
    last = next((line for line in reversed(read_lines(texts)) if line.kind == "training"), None)
    if last is None:
        return JobProgress()
    parts = [f"step {last.step}{f'/{last.steps}' if last.steps else ''}"]
    named = {"loss": "loss {:.3f}", "accuracy": "accuracy {:.2f}", "tokens_per_second": "{:.0f} tokens/s"}
    parts += [form.format(last.figures[name]) for name, form in named.items() if name in last.figures]
    depths = list(last.depth_accuracies().values())
    if depths:
        parts.insert(-1, "by depth " + " ".join(f"{value:.2f}" for value in depths))
    left = last.figures.get("seconds_left")
    if left:
        parts.append(f"{elapsed(left)} left")
    return JobProgress(": " + ", ".join(parts), last.step, last.steps, left)


def _reading_progress(texts: Sequence[str], instances: int) -> JobProgress:
    """Sum the newest lines of all instances; the slowest one says how long it still takes."""
    newest: dict[str, tuple[int, ...]] = {}
    for text in texts:
        line = _READ_LINE.search(text)
        if line is not None:
            figures = tuple(map(int, line.groups()[1:]))
            newest[line[1]] = max(figures, newest.get(line[1], figures))
    if not newest:
        return JobProgress()
    files, of, prompts = (sum(figures[at] for figures in newest.values()) for at in range(3))
    words = f": {files:,} of {of:,} files, {prompts:,} prompts"
    if len(newest) < instances:
        return JobProgress(words, files)
    left = max(figures[5] for figures in newest.values())
    return JobProgress(words + (f", about {elapsed(left)} left" if left else ""), files, of, left)


TRAINING_JOB = JobKind(
    name="training",
    cluster=("ResourceConfig",),
    log_group=TRAINING_LOG_GROUP,
    mark="peagle-train ",
    progress=_training_progress,
    limit_field="train.max_hours",
    follow="Follow it with `peagle-sm learn status {job} --follow{flags}`",
    again="Run the same command again: it goes on from the last checkpoint, if one was saved",
    longer="a higher train.max_hours or budget lets it train longer",
)
PROCESSING_JOB = JobKind(
    name="processing",
    cluster=("ProcessingResources", "ClusterConfig"),
    log_group=PROCESSING_LOG_GROUP,
    mark="peagle-prepare ",
    progress=_reading_progress,
    limit_field="data.processing.max_hours",
    follow="Run the same command again to follow it",
    again="Run the same command again: it starts this job anew",
    longer="a higher data.processing.max_hours, or more instances, lets it come to its end",
)
