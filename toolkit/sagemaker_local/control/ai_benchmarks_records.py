"""What is remembered of AI workload configurations and AI benchmark jobs, and how a job is to be run."""

from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Protocol, TypeVar

from .errors import ApiError
from .records import Record, Table

# A job in one of these has ended, and only then can it be deleted.
ENDED = ("Completed", "Failed", "Stopped")


@dataclass
class JobRecord(Record):
    """An AI benchmark job: `body` is its CreateAIBenchmarkJob request.

    Attributes:
        workload_config: name of its workload configuration.
        failure_reason: why it ended as Failed.
    """

    status: str = "InProgress"
    workload_config: str = ""
    started: datetime | None = None
    ended: datetime | None = None
    failure_reason: str | None = None


R = TypeVar("R", bound=Record)


class AiTable(Table[R]):
    """A table whose refusals have codes of their own, as the service model lists them."""

    def get(self, name: str) -> R:
        """The resource by name or ARN.

        Raises:
            ApiError: there is none (`ResourceNotFound`).
        """
        row = self.find(name.rpartition("/")[2])
        if row is None:
            raise ApiError("ResourceNotFound", f'Could not find {self.kind} "{self.arn(name)}".')
        return row

    def refuse_taken(self, name: str) -> None:
        """Raises ApiError (`ResourceInUse`) when the name is in use."""
        if self.find(name) is not None:
            raise ApiError("ResourceInUse", f'Cannot create already existing {self.kind} "{self.arn(name)}".')


@dataclass(frozen=True)
class BenchmarkPlan:
    """One job to run.

    Attributes:
        arguments: AIPerf's, from the workload specification.
        channels: (name, S3 URI) of each input channel.
        output: S3 URI below which the job writes.
        root: a directory of its own; ``/opt/ml`` of the job lies in it as ``opt/ml``.
    """

    job: str
    endpoint: str
    component: str | None
    arguments: tuple[str, ...]
    channels: tuple[tuple[str, str], ...]
    output: str
    root: Path


class BenchmarkRunner(Protocol):
    """Runs jobs, as `sagemaker_local.runtime.benchmark_run.AiperfRunner` does."""

    async def run(self, plan: BenchmarkPlan) -> str | None:
        """Run a job to its end and give None, or why it failed; cancelling it ends its processes."""
        ...
