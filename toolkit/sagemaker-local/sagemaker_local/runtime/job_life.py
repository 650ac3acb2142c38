"""The life of training jobs: statuses follow the processes, the limits and the local clock.

Starting --instances--> Downloading --> Training --ends--> Uploading --> Completed
   ^                       |               |                   `-- it failed --> Failed
   |                       v               v
   `-- Interrupted <-- Spot instances are taken away;  a stop, MaxRuntimeInSeconds, MaxWaitTimeInSeconds:
                                           Stopping --> Stopped, MaxRuntimeExceeded, MaxWaitTimeExceeded

To end a job's process is SIGTERM, 120 seconds of the local clock, SIGKILL (SageMaker API reference,
StopTrainingJob). What a stopped job left in /opt/ml/model is stored ("For successful jobs and stopped jobs,
this is the time after model artifacts are uploaded": TrainingEndTime).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine
from datetime import timedelta
from typing import Any, Protocol

from sagemaker_local.clock import LocalClock
from sagemaker_local.control.jobs.training import INTERRUPTED, STOPPED, TrainingRecord, metric_values

log = logging.getLogger(__name__)

GRACE = timedelta(seconds=120)
_POLL_S = 0.1
_LONGEST_REASON = 1024
_MAX_RUNTIME, _MAX_WAIT = "MaxRuntimeExceeded", "MaxWaitTimeExceeded"
_NO_CAPACITY = (
    "CapacityError: Unable to provision requested ML compute capacity. "
    "Please retry using a different ML instance type."
)
_WORDS = {
    "Completed": "Training job completed",
    STOPPED: "Training job stopped",
    _MAX_RUNTIME: "Training job runtime exceeded MaxRuntimeInSeconds provided",
    _MAX_WAIT: "Training job waited for longer than MaxWaitTimeInSeconds provided",
}


class JobFailed(Exception):
    """The job cannot go on; the text is its FailureReason."""


class Attempt(Protocol):
    """One run of a job on instances, as `sagemaker_local.runtime.training_run.TrainingAttempt` is one."""

    async def download(self) -> None:
        """Bring data and checkpoints to the instances; raises JobFailed."""

    async def run(self) -> str | None:
        """Run the processes to their end; return why the job failed, or None."""

    async def terminate(self) -> None:
        """Send SIGTERM to the processes, once they are there."""

    def kill(self) -> None:
        """Send SIGKILL to every process."""

    async def upload(self) -> None:
        """Store model and output; raises JobFailed."""

    async def close(self) -> None:
        """End what still runs, and remove the files."""


MakeAttempt = Callable[[TrainingRecord, Callable[[str], None]], Attempt]


class JobLives:
    """Runs training jobs.

    Args:
        clock: stamps every status and counts the limits.
        attempts: makes an attempt, from a job and what gets each line of its output.
        has_instances: whether there are so many instances of a type (type, count).
        on_metric: gets (job, name, value) of each metric that a line of output has.
    """

    def __init__(
        self,
        *,
        clock: LocalClock,
        attempts: MakeAttempt,
        has_instances: Callable[[str, int], bool],
        on_metric: Callable[[TrainingRecord, str, float], None],
    ) -> None:
        self._clock = clock
        self._attempts = attempts
        self._has_instances = has_instances
        self._on_metric = on_metric
        self._lives: dict[str, asyncio.Task[None]] = {}

    def start(self, row: TrainingRecord) -> None:
        """Begin a job's life."""
        self._become(row, "Starting", "Starting the training job")
        life = self._lives[row.arn] = asyncio.create_task(self._live(row), name=f"job {row.name}")
        life.add_done_callback(lambda _: self._lives.pop(row.arn, None))

    def stop(self, row: TrainingRecord) -> None:
        """Have a job stop: its status is Stopping when this returns."""
        row.asked, row.asked_at = STOPPED, self._clock.now()
        self._stopping(row)

    async def close(self) -> None:
        """End every job's processes."""
        lives = list(self._lives.values())
        for life in lives:
            life.cancel()
        await asyncio.gather(*lives, return_exceptions=True)

    async def _live(self, row: TrainingRecord) -> None:
        try:
            end = await self._attempt(row)
            while end == INTERRUPTED:
                self._become(row, INTERRUPTED, "The managed Spot instances were interrupted")
                self._become(row, "Starting", "Starting the training job")
                end = await self._attempt(row)
            self._become(row, end, _WORDS[end], "Completed" if end == "Completed" else "Stopped")
        except JobFailed as failed:
            self._fail(row, str(failed))
        except Exception as error:
            log.exception("job %s failed", row.name)
            self._fail(row, f"InternalServerError: {type(error).__name__}: {error}")

    async def _attempt(self, row: TrainingRecord) -> str:
        """Run on instances once; return the secondary status that the job ends with, or `INTERRUPTED`."""
        cause = await self._instances(row)
        if cause is not None:
            self._stopping(row)
            return cause
        attempt = self._attempts(row, lambda line: self._line(row, line))
        row.hold(self._clock.now())
        failure = None
        try:
            self._become(row, "Downloading", "Downloading input data")
            cause = await self._until(row, attempt.download())
            if cause is None:
                self._become(row, "Training", "Training image download completed. Training in progress.")
                cause, failure = await self._train(row, attempt)
            if cause == INTERRUPTED and row.asked == STOPPED:
                return STOPPED  # the instances are gone, and with them what they could have stored
            if cause == INTERRUPTED:
                row.asked = row.asked_at = None
                return INTERRUPTED
            if cause is None:
                self._become(row, "Uploading", "Uploading generated training model")
            else:
                self._stopping(row)
            await self._upload(attempt, failure)
        finally:
            await asyncio.shield(attempt.close())
            row.release(self._clock.now())
        return cause or "Completed"

    async def _upload(self, attempt: Attempt, failure: str | None) -> None:
        try:
            await attempt.upload()
        except JobFailed:
            if failure is None:
                raise
        if failure is not None:
            raise JobFailed(failure)

    async def _instances(self, row: TrainingRecord) -> str | None:
        """Wait for the instances; return why the job ends without them, or None.

        Raises:
            JobFailed: there are none on demand.
        """
        waits = False
        while (cause := self._cause(row)) is None:
            if self._has_instances(row.instance_type, len(row.hosts)):
                return None
            if not row.spot:
                raise JobFailed(_NO_CAPACITY)
            if not waits:
                row.transitions[-1]["StatusMessage"] = (
                    "Insufficient capacity error from EC2 while launching instances, retrying!"
                )
                waits = True
            await asyncio.sleep(_POLL_S)
        return cause

    async def _until(self, row: TrainingRecord, work: Coroutine[Any, Any, None]) -> str | None:
        """Do work unless there is a cause to end the job first; return that, or None."""
        task = asyncio.create_task(work)
        try:
            while not task.done():
                await asyncio.wait({task}, timeout=_POLL_S)
                cause = self._cause(row)
                if cause is not None and not task.done():
                    return cause
            task.result()
            return None
        finally:
            if not task.done():
                task.cancel()
                await asyncio.gather(task, return_exceptions=True)

    async def _train(self, row: TrainingRecord, attempt: Attempt) -> tuple[str | None, str | None]:
        """Run the processes to their end; return what ended them early, and why the job failed by itself."""
        task = asyncio.create_task(attempt.run())
        try:
            cause = None
            while not task.done() and cause is None:
                await asyncio.wait({task}, timeout=_POLL_S)
                cause = self._cause(row)
            if task.done():
                return None, task.result()
            if cause != INTERRUPTED:
                self._stopping(row)
            deadline = (row.asked_at or self._clock.now()) + GRACE
            await attempt.terminate()
            while not task.done() and self._clock.now() < deadline:
                await asyncio.wait({task}, timeout=_POLL_S)
            if not task.done():
                await asyncio.to_thread(attempt.kill)
            await task
            return cause, None
        finally:
            if not task.done():
                task.cancel()
                await asyncio.gather(task, return_exceptions=True)

    def _cause(self, row: TrainingRecord) -> str | None:
        """What ends the job now: the secondary status that follows, or None."""
        if row.asked is not None:
            return row.asked
        now, limits = self._clock.now(), row.body["StoppingCondition"]
        wait_s = limits.get("MaxWaitTimeInSeconds")
        if wait_s is not None and (now - row.created).total_seconds() > wait_s:
            return _MAX_WAIT
        return _MAX_RUNTIME if row.on_instances_s(now) > limits["MaxRuntimeInSeconds"] else None

    def _stopping(self, row: TrainingRecord) -> None:
        if row.status != "Stopping":
            self._become(row, "Stopping", "Stopping the training job", "Stopping")

    def _fail(self, row: TrainingRecord, reason: str) -> None:
        row.failure_reason = reason[:_LONGEST_REASON]
        self._become(row, "Failed", "Training job failed", "Failed")

    def _become(self, row: TrainingRecord, secondary: str, message: str, status: str | None = None) -> None:
        row.become(secondary, message, self._clock.now(), status)

    def _line(self, row: TrainingRecord, line: str) -> None:
        for name, value in metric_values(row.metric_definitions, line):
            row.metrics[name] = (value, self._clock.now())
            self._on_metric(row, name, value)
