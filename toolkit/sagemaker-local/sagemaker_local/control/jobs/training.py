"""Training jobs: the record, the operations, and the checks of their role.

A job's life, with its processes, is `sagemaker_local.runtime.job_life`; what a request must have, `checks`.
"""

import math
import re
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Protocol
from urllib.parse import urlsplit

from sagemaker_local.clock import LocalClock
from sagemaker_local.control.errors import ApiError, invalid, not_local
from sagemaker_local.control.jobs.checks import check
from sagemaker_local.control.models import check_role, from_list
from sagemaker_local.control.records import Record, Table, Tables
from sagemaker_local.control.requests import checked, page

STOPPED, INTERRUPTED = "Stopped", "Interrupted"
IN_PROGRESS = ("InProgress", "Stopping")

# (role, action, resource, context) -> whether the role's policies allow it
Permitted = Callable[[str, str, str, Mapping[str, str]], bool]
# The S3 URI of a prefix -> whether any key begins with it
PrefixExists = Callable[[str], Awaitable[bool]]

_PULL = ("ecr:BatchCheckLayerAvailability", "ecr:BatchGetImage", "ecr:GetDownloadUrlForLayer")
_IMAGE = re.compile(r"(\d{12})\.dkr\.ecr\.([a-z0-9-]+)\.[^/]+/([^:@]+)")


@dataclass
class TrainingRecord(Record):
    """A training job: `body` is its request, defaults of AWS filled in.

    Attributes:
        transitions: secondary statuses, oldest first; the last one has no end while the job runs.
        started: when it first had instances.
        billable_s: seconds on instances, without those since `held_since`.
        held_since: since when it has the instances; None without them.
        metrics: last value of each metric, and when.
        asked: `STOPPED` or `INTERRUPTED` once that was asked for, at `asked_at`.
    """

    status: str = "InProgress"
    transitions: list[dict[str, Any]] = field(default_factory=list)
    started: datetime | None = None
    ended: datetime | None = None
    failure_reason: str | None = None
    billable_s: float = 0.0
    held_since: datetime | None = None
    metrics: dict[str, tuple[float, datetime]] = field(default_factory=dict)
    asked: str | None = None
    asked_at: datetime | None = None

    @property
    def resources(self) -> Mapping[str, Any]:
        """The member with InstanceType and InstanceCount."""
        resources: Mapping[str, Any] = self.body["ResourceConfig"]
        return resources

    @property
    def image(self) -> str:
        """The training image."""
        return str(self.body["AlgorithmSpecification"]["TrainingImage"])

    @property
    def sources(self) -> list[Mapping[str, Any]]:
        """The S3DataSource of each channel."""
        return [channel["DataSource"]["S3DataSource"] for channel in self.body.get("InputDataConfig", [])]

    @property
    def model_uri(self) -> str:
        """Where its model goes: an archive, or a folder if it is not compressed."""
        output = self.body["OutputDataConfig"]
        folder = f"{output['S3OutputPath'].rstrip('/')}/{self.name}/output"
        return f"{folder}/model/" if output.get("CompressionType") == "NONE" else f"{folder}/model.tar.gz"

    @property
    def spot(self) -> bool:
        """Whether it runs on Spot instances."""
        return bool(self.body.get("EnableManagedSpotTraining", False))

    @property
    def metric_definitions(self) -> list[Mapping[str, str]]:
        """Which metrics its lines of output have."""
        return list(self.body["AlgorithmSpecification"].get("MetricDefinitions", []))

    @property
    def secondary(self) -> str:
        """SecondaryStatus."""
        return str(self.transitions[-1]["Status"])

    @property
    def instance_type(self) -> str:
        """The type of its instances."""
        return str(self.resources["InstanceType"])

    @property
    def hosts(self) -> tuple[str, ...]:
        """The names of its instances: algo-1, algo-2, …"""
        return tuple(f"algo-{n}" for n in range(1, self.resources["InstanceCount"] + 1))

    def become(self, secondary: str, message: str, now: datetime, status: str | None = None) -> None:
        """Enter a secondary status, and a status where it changes."""
        if self.transitions:
            self.transitions[-1]["EndTime"] = now.timestamp()
        self.transitions.append({"Status": secondary, "StartTime": now.timestamp(), "StatusMessage": message})
        self.status, self.modified = status or self.status, now
        if self.status not in IN_PROGRESS:
            self.ended = now
            self.transitions[-1]["EndTime"] = now.timestamp()

    def on_instances_s(self, now: datetime) -> float:
        """Seconds on instances until now, of all attempts together."""
        held = (now - self.held_since).total_seconds() if self.held_since else 0.0
        return self.billable_s + held

    def hold(self, now: datetime) -> None:
        """Begin to be billed."""
        self.held_since, self.started = now, self.started or now

    def release(self, now: datetime) -> None:
        """End to be billed."""
        self.billable_s, self.held_since = self.on_instances_s(now), None


class JobLife(Protocol):
    """Runs jobs, as `sagemaker_local.runtime.job_life.JobLives` does."""

    def start(self, row: Any) -> None:
        """Begin the job's life."""

    def stop(self, row: Any) -> None:
        """Have it stop: its status is Stopping when this returns."""

    async def close(self) -> None:
        """End every job's processes."""


class TrainingJobs:
    """Create, Describe, List, Stop and Delete of training jobs.

    Args:
        life: runs the jobs; None refuses them.
        assumable: whether SageMaker may assume a role; None believes it.
        permitted: whether a role's policies allow an action; None believes it.
        prefix_exists: whether a key begins with an S3 URI's; None believes it.
    """

    def __init__(
        self,
        tables: Tables,
        clock: LocalClock,
        life: JobLife | None,
        *,
        assumable: Callable[[str], bool] | None = None,
        permitted: Permitted | None = None,
        prefix_exists: PrefixExists | None = None,
    ) -> None:
        self._clock = clock
        self._life = life
        self._assumable = assumable
        self._permitted = permitted or (lambda *_: True)
        self._exists = prefix_exists
        self._region = tables.region
        self._jobs: Table[TrainingRecord] = Table(
            "training job", f"arn:aws:sagemaker:{tables.region}:{tables.account}:training-job"
        )
        tables.more["sagemaker:training-job"] = self._jobs

    @property
    def operations(self) -> dict[str, Any]:
        """Operation -> its handler."""
        return {
            "CreateTrainingJob": self.create,
            "DescribeTrainingJob": self.describe,
            "ListTrainingJobs": self.listed,
            "StopTrainingJob": self.stop,
            "DeleteTrainingJob": self.delete,
        }

    async def create(self, body: Mapping[str, Any]) -> dict[str, Any]:
        """Create: answers at once; the job runs on."""
        request = checked("CreateTrainingJob", body)
        name, role = request["TrainingJobName"], request["RoleArn"]
        self._refuse_taken(name)
        if self._life is None:
            raise not_local("CreateTrainingJob in this server", "start it as `peagle-sm local up` does.")
        check(request)
        tags, now = from_list(request.pop("Tags", [])), self._clock.now()
        row = TrainingRecord(name, self._jobs.arn(name), now, now, request, tags)
        check_role(role, self._assumable)
        self._check_pull(role, row.image)
        for source in row.sources:
            await self._check_data(role, source["S3Uri"])
        self._refuse_taken(name)  # another request may have come while S3 was asked
        self._jobs.add(row)
        self._life.start(row)
        return {"TrainingJobArn": row.arn}

    async def describe(self, body: Mapping[str, Any]) -> dict[str, Any]:
        """Describe."""
        return _without_none(_description(self._named("DescribeTrainingJob", body)))

    async def listed(self, body: Mapping[str, Any]) -> dict[str, Any]:
        """ListTrainingJobs: with MaxResults, StatusEquals filters the page and not the list."""
        if "WarmPoolStatusEquals" in body or "TrainingPlanArnEquals" in body:
            return {"TrainingJobSummaries": []}  # no job here has either
        status = body.get("StatusEquals") if "MaxResults" in body else None
        request = checked(
            "ListTrainingJobs",
            {key: value for key, value in body.items() if status is None or key != "StatusEquals"},
        )
        rows, token = page(self._jobs, request, lambda row: _without_none(_summary(row)))
        shown = [row for row in rows if status in (None, row["TrainingJobStatus"])]
        return {"TrainingJobSummaries": shown, **({"NextToken": token} if token else {})}

    async def stop(self, body: Mapping[str, Any]) -> dict[str, Any]:
        """Stop: Stopping until its processes have ended, then Stopped."""
        row = self._named("StopTrainingJob", body)
        if row.status != "InProgress" or self._life is None:
            raise invalid(f"The request was rejected because the training job is in status {row.status}.")
        self._life.stop(row)
        return {}

    async def delete(self, body: Mapping[str, Any]) -> dict[str, Any]:
        """Delete: only once it has ended; what it wrote to S3 stays."""
        row = self._named("DeleteTrainingJob", body)
        if row.status in IN_PROGRESS:
            raise ApiError(
                "ResourceInUse",
                f"The training job {row.arn} cannot be deleted in status {row.status}.",
            )
        self._jobs.remove(row.name)
        return {}

    def interrupt(self, name: str) -> None:
        """Take the Spot instances away from a job, for tests.

        Raises:
            ApiError: there is no such job, it is not on Spot instances, or it has none now.
        """
        row = self.get(name)
        if not row.spot:
            raise invalid(f"{name} is not a managed Spot job: EnableManagedSpotTraining is false.")
        if row.status != "InProgress" or row.secondary not in ("Downloading", "Training"):
            raise invalid(
                f"{name} has no instances to lose: it is {row.status} ({row.secondary}); allowed while it "
                "is Downloading or Training."
            )
        row.asked, row.asked_at = INTERRUPTED, self._clock.now()

    async def close(self) -> None:
        """End every job."""
        if self._life is not None:
            await self._life.close()

    def get(self, name: str) -> TrainingRecord:
        """Return a job; raises ApiError when there is none."""
        row = self._jobs.find(name)
        if row is None:
            raise invalid("Requested resource not found.")  # AWS's text does not have the name
        return row

    def _named(self, operation: str, body: Mapping[str, Any]) -> TrainingRecord:
        return self.get(checked(operation, body)["TrainingJobName"])

    def _refuse_taken(self, name: str) -> None:
        if self._jobs.find(name) is not None:
            raise ApiError(
                "ResourceInUse",
                "Training job names must be unique within an AWS account and region, and a training job "
                f"with this name already exists ({self._jobs.arn(name)})",
            )

    def _check_pull(self, role: str, image: str) -> None:
        """Refuse a role that may not pull the image."""
        parts = _IMAGE.match(image)
        if parts is None:  # from a private registry
            return
        registry, region, repository = parts.groups()
        arn = f"arn:aws:ecr:{region}:{registry}:repository/{repository}"
        if not all(self._permitted(role, action, arn, {}) for action in _PULL):
            raise invalid(
                f"Access denied for repository: {repository} in registry ID: {registry}. Please check if "
                f"your ECR repository and image exist and role {role} has proper pull permissions for "
                f"SageMaker: {', '.join(_PULL)}"
            )

    async def _check_data(self, role: str, uri: str) -> None:
        """Refuse a role that may not list the prefix, and a prefix without objects."""
        bucket, prefix = urlsplit(uri).netloc, urlsplit(uri).path.lstrip("/")
        may = self._permitted(role, "s3:ListBucket", f"arn:aws:s3:::{bucket}", {"s3:prefix": prefix})
        if not may or (self._exists is not None and not await self._exists(uri)):
            raise invalid(
                f'No S3 objects found under S3 URL "{uri}" given in input data source. Please ensure that '
                f"the bucket exists in the selected region ({self._region}), that objects exist under that "
                f'S3 prefix, and that the role "{role}" has "s3:ListBucket" permissions on bucket '
                f'"{bucket}".'
            )


def _description(row: TrainingRecord) -> dict[str, Any]:
    ended = row.ended is not None and row.started is not None
    metrics = [
        {"MetricName": name, "Value": value, "Timestamp": at.timestamp()}
        for name, (value, at) in row.metrics.items()
    ]
    answer: dict[str, Any] = {
        "EnableNetworkIsolation": False,
        "EnableInterContainerTrafficEncryption": False,
        "EnableManagedSpotTraining": False,
        **row.body,
        **_summary(row),
        "ModelArtifacts": {"S3ModelArtifacts": row.model_uri},
        "TrainingStartTime": _seconds(row.started),
        "SecondaryStatusTransitions": row.transitions,
        "FailureReason": row.failure_reason,
        "FinalMetricDataList": metrics or None,
        "BillableTimeInSeconds": max(1, round(row.billable_s)) if ended else None,
    }
    if row.ended is not None and row.started is not None:
        answer["TrainingTimeInSeconds"] = max(1, round((row.ended - row.started).total_seconds()))
    return answer


def _summary(row: TrainingRecord) -> dict[str, Any]:
    return {
        "TrainingJobName": row.name,
        "TrainingJobArn": row.arn,
        "CreationTime": row.created.timestamp(),
        "TrainingEndTime": _seconds(row.ended),
        "LastModifiedTime": row.modified.timestamp(),
        "TrainingJobStatus": row.status,
        "SecondaryStatus": row.secondary,
    }


def _seconds(moment: datetime | None) -> float | None:
    return None if moment is None else moment.timestamp()


def metric_values(definitions: Sequence[Mapping[str, str]], line: str) -> Iterator[tuple[str, float]]:
    """(name, value) of each metric that a line of output has."""
    for metric in definitions:
        match = re.search(metric["Regex"], line)
        if match is None or not match.groups():
            continue
        try:
            value = float(match[1])
        except (TypeError, ValueError):
            continue  # the group did not take part, or is not a number
        if math.isfinite(value):  # CloudWatch takes no others
            yield metric["Name"], value


def _without_none(answer: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in answer.items() if value is not None}
