"""Training jobs: what AWS accepts, the records, and the operations.

A job's life, with its process, is `sagemaker_local.runtime.training_life`.
"""

import math
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Protocol
from urllib.parse import urlsplit

from sagemaker_local.clock import LocalClock
from sagemaker_local.control.capacity import Quotas, has_own_disks
from sagemaker_local.control.errors import ApiError, invalid, not_local
from sagemaker_local.control.jobs.access import (
    JobAccess,
    Permitted,
    PrefixExists,
    refuse_over_quota,
)
from sagemaker_local.control.models import check_image, check_role, from_list
from sagemaker_local.control.records import Record, Table, Tables
from sagemaker_local.control.requests import checked, page

STOPPED, INTERRUPTED = "Stopped", "Interrupted"
IN_PROGRESS = ("InProgress", "Stopping")
#: The image that the local SageMaker can run has this in its name.
TRAINER = "peagle-trainer"
ML_ROOT = "/opt/ml"
_DAY_S = 86_400
_LONGEST_RUN_S = 28 * _DAY_S


@dataclass
class TrainingRecord(Record):
    """A training job: `body` is its CreateTrainingJob request, defaults of AWS filled in.

    Attributes:
        transitions: SecondaryStatusTransitions, oldest first; the last one has no end while the job runs.
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
    def secondary(self) -> str:
        """SecondaryStatus."""
        return str(self.transitions[-1]["Status"])

    @property
    def spot(self) -> bool:
        """Whether it runs on Spot instances."""
        return bool(self.body.get("EnableManagedSpotTraining", False))

    @property
    def instance_type(self) -> str:
        """The type of its instances."""
        return str(self.body["ResourceConfig"]["InstanceType"])

    @property
    def hosts(self) -> tuple[str, ...]:
        """The names of its instances: algo-1, algo-2, …"""
        return tuple(f"algo-{n}" for n in range(1, self.body["ResourceConfig"]["InstanceCount"] + 1))

    @property
    def model_uri(self) -> str:
        """Where its model goes: an archive, or a folder if it is not compressed."""
        output = self.body["OutputDataConfig"]
        folder = f"{output['S3OutputPath'].rstrip('/')}/{self.name}/output"
        return f"{folder}/model/" if output.get("CompressionType") == "NONE" else f"{folder}/model.tar.gz"

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


class _TrainingTable(Table[TrainingRecord]):
    """A table with the codes and the wording of the training operations."""

    def get(self, name: str) -> TrainingRecord:
        """The job; raises ApiError when there is none."""
        row = self.find(name)
        if row is None:
            raise invalid("Requested resource not found.")
        return row

    def refuse_taken(self, name: str) -> None:
        """Raises ApiError (`ResourceInUse`) when the name is in use."""
        if self.find(name) is not None:
            raise ApiError(
                "ResourceInUse",
                "Training job names must be unique within an AWS account and region, and a training job "
                f"with this name already exists ({self.arn(name)})",
            )


class TrainingLife(Protocol):
    """Runs jobs, as `sagemaker_local.runtime.training_life.Trainings` does."""

    def start(self, row: TrainingRecord) -> None:
        """Begin the job's life."""
        ...

    def stop(self, row: TrainingRecord) -> None:
        """Have it stop: its status is Stopping when this returns."""
        ...

    async def close(self) -> None:
        """End every job's processes."""
        ...


class TrainingJobs:
    """The operations."""

    def __init__(
        self,
        tables: Tables,
        clock: LocalClock,
        life: TrainingLife | None,
        *,
        quotas: Quotas,
        assumable: Callable[[str], bool] | None = None,
        permitted: Permitted | None = None,
        prefix_exists: PrefixExists | None = None,
    ) -> None:
        """Set up with what runs the jobs (None refuses them) and asks IAM and S3 (None believes)."""
        arn = f"arn:aws:sagemaker:{tables.region}:{tables.account}:training-job"
        self._clock = clock
        self._life = life
        self._quotas = quotas
        self._assumable = assumable
        self._access = JobAccess(tables.region, permitted, prefix_exists)
        self._jobs = _TrainingTable("training job", arn)
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
        """CreateTrainingJob: answers at once; the job runs on."""
        request = checked("CreateTrainingJob", body)
        name, role = request["TrainingJobName"], request["RoleArn"]
        self._jobs.refuse_taken(name)
        if self._life is None:
            raise not_local("CreateTrainingJob in this server", "start it as `peagle-sm local up` does.")
        check_request(request)
        check_role(role, self._assumable)
        self._access.check_pull(role, request["AlgorithmSpecification"]["TrainingImage"])
        self._check_quota(request)
        for channel in request.get("InputDataConfig", []):
            await self._access.check_data(role, channel["DataSource"]["S3DataSource"]["S3Uri"])
        self._jobs.refuse_taken(name)  # another request may have come while S3 was asked
        tags = from_list(request.pop("Tags", []))
        now = self._clock.now()
        row = self._jobs.add(TrainingRecord(name, self._jobs.arn(name), now, now, request, tags))
        self._life.start(row)
        return {"TrainingJobArn": row.arn}

    async def describe(self, body: Mapping[str, Any]) -> dict[str, Any]:
        """DescribeTrainingJob."""
        return description(self._jobs.get(checked("DescribeTrainingJob", body)["TrainingJobName"]))

    async def listed(self, body: Mapping[str, Any]) -> dict[str, Any]:
        """ListTrainingJobs: with MaxResults, StatusEquals filters the page and not the list."""
        request = checked("ListTrainingJobs", body)
        wanted = request.pop("StatusEquals", None) if "MaxResults" in request else None
        if "WarmPoolStatusEquals" in request or "TrainingPlanArnEquals" in request:
            return {"TrainingJobSummaries": []}  # no job here has either
        rows, token = page(self._jobs, request, _summary)
        shown = [row for row in rows if wanted in (None, row["TrainingJobStatus"])]
        return {"TrainingJobSummaries": shown, **({"NextToken": token} if token else {})}

    async def stop(self, body: Mapping[str, Any]) -> dict[str, Any]:
        """StopTrainingJob: Stopping until its processes have ended, then Stopped."""
        row = self._jobs.get(checked("StopTrainingJob", body)["TrainingJobName"])
        if row.status != "InProgress" or self._life is None:
            raise invalid(f"The request was rejected because the training job is in status {row.status}.")
        self._life.stop(row)
        return {}

    async def delete(self, body: Mapping[str, Any]) -> dict[str, Any]:
        """DeleteTrainingJob: only once it has ended; what it wrote to S3 stays."""
        row = self._jobs.get(checked("DeleteTrainingJob", body)["TrainingJobName"])
        if row.status in IN_PROGRESS:
            raise ApiError(
                "ResourceInUse", f"The training job {row.arn} cannot be deleted in status {row.status}."
            )
        self._jobs.remove(row.name)
        return {}

    def interrupt(self, name: str) -> None:
        """Take the Spot instances away from a job, for tests.

        Raises:
            ApiError: there is no such job, it is not on Spot instances, or it has none now.
        """
        row = self._jobs.get(name)
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

    def _check_quota(self, request: Mapping[str, Any]) -> None:
        resources, spot = request["ResourceConfig"], bool(request.get("EnableManagedSpotTraining"))
        kind = resources["InstanceType"]
        used = sum(
            len(row.hosts)
            for row in self._jobs
            if row.status in IN_PROGRESS and (row.instance_type, row.spot) == (kind, spot)
        )
        quota = f"{kind} for {'spot ' if spot else ''}training job usage"
        refuse_over_quota(self._quotas, quota, used, resources["InstanceCount"])


def description(row: TrainingRecord) -> dict[str, Any]:
    """DescribeTrainingJob's answer."""
    answer: dict[str, Any] = {
        "EnableNetworkIsolation": False,
        "EnableInterContainerTrafficEncryption": False,
        "EnableManagedSpotTraining": False,
        **row.body,
        **_summary(row),
        "ModelArtifacts": {"S3ModelArtifacts": row.model_uri},
        "TrainingStartTime": seconds_of(row.started),
        "SecondaryStatusTransitions": row.transitions,
        "FailureReason": row.failure_reason,
    }
    if row.metrics:
        answer["FinalMetricDataList"] = [
            {"MetricName": name, "Value": value, "Timestamp": at.timestamp()}
            for name, (value, at) in row.metrics.items()
        ]
    if row.ended is not None and row.started is not None:
        answer["TrainingTimeInSeconds"] = max(1, round((row.ended - row.started).total_seconds()))
        answer["BillableTimeInSeconds"] = max(1, round(row.billable_s))
    return {key: value for key, value in answer.items() if value is not None}


def _summary(row: TrainingRecord) -> dict[str, Any]:
    answer = {
        "TrainingJobName": row.name,
        "TrainingJobArn": row.arn,
        "CreationTime": row.created.timestamp(),
        "TrainingEndTime": seconds_of(row.ended),
        "LastModifiedTime": row.modified.timestamp(),
        "TrainingJobStatus": row.status,
        "SecondaryStatus": row.secondary,
    }
    return {key: value for key, value in answer.items() if value is not None}


def seconds_of(moment: datetime | None) -> float | None:
    """A time as the answers have it."""
    return None if moment is None else moment.timestamp()


# Accepted, these would do nothing here.
_NOT_LOCAL = {
    "DebugHookConfig": "leave it out.",
    "DebugRuleConfigurations": "leave it out.",
    "TensorBoardOutputConfig": "write to /opt/ml/output/data.",
    "ExperimentConfig": "leave it out.",
    "ProfilerRuleConfigurations": "leave it out.",
    "RemoteDebugConfig": "leave it out.",
    "SessionChainingConfig": "leave it out.",
    "ServerlessJobConfig": "give AlgorithmSpecification and ResourceConfig.",
    "MlflowConfig": "leave it out; metrics are in CloudWatch.",
    "ModelPackageConfig": "leave it out; the model is in S3.",
}
_NOT_LOCAL_RESOURCES = ("InstanceGroups", "TrainingPlanArn", "InstancePlacementConfig", "InstancePreferences")


def check_request(request: dict[str, Any]) -> None:
    """Check what the service model does not say, and write AWS's default of the time limit into the request.

    Raises:
        ApiError: AWS refuses it, or it is not for a local job.
    """
    for member, instead in _NOT_LOCAL.items():
        if member in request:
            raise not_local(member, instead)
    if request.get("ProfilerConfig", {"DisableProfiler": True}) != {"DisableProfiler": True}:
        raise not_local("ProfilerConfig", "give DisableProfiler true, or leave it out.")
    for member in ("AlgorithmSpecification", "ResourceConfig"):
        if member not in request:
            raise invalid(f"{member} is required for a training job that is not serverless: found none.")
    _check_algorithm(request["AlgorithmSpecification"])
    _check_resources(request["ResourceConfig"])
    _check_times(request)
    _check_channels(request.get("InputDataConfig", []), request["AlgorithmSpecification"])
    _check_s3(request["OutputDataConfig"]["S3OutputPath"], "outputDataConfig.s3OutputPath")
    checkpoints = request.get("CheckpointConfig")
    if checkpoints is not None:
        _check_s3(checkpoints["S3Uri"], "checkpointConfig.s3Uri")
        path = checkpoints.get("LocalPath", f"{ML_ROOT}/checkpoints")
        if not path.startswith(f"{ML_ROOT}/") or ".." in path.split("/"):
            raise not_local(f"CheckpointConfig.LocalPath {path}", f"choose one below {ML_ROOT}.")


def _check_algorithm(algorithm: Mapping[str, Any]) -> None:
    if "AlgorithmName" in algorithm:
        raise not_local("AlgorithmName", "give TrainingImage.")
    for member in ("ContainerEntrypoint", "ContainerArguments"):
        if member in algorithm:
            raise not_local(member, "leave it out: the image is run with the argument train.")
    image = algorithm.get("TrainingImage")
    if image is None:
        raise invalid("AlgorithmSpecification needs TrainingImage or AlgorithmName: found neither.")
    check_image(
        image, algorithm.get("TrainingImageConfig", {}).get("TrainingRepositoryAccessMode", "Platform")
    )
    if TRAINER not in image.partition("@")[0].rpartition("/")[2]:
        raise not_local(f"The training image {image}", f"it runs images whose name has {TRAINER!r} in it.")
    for metric in algorithm.get("MetricDefinitions", []):
        try:
            re.compile(metric["Regex"])
        except re.error as error:
            raise invalid(f"The Regex of metric '{metric['Name']}' is not valid: {error}.") from None


def _check_resources(resources: Mapping[str, Any]) -> None:
    for member in _NOT_LOCAL_RESOURCES:
        if member in resources:
            raise not_local(f"ResourceConfig.{member}", "give InstanceType and InstanceCount.")
    if resources.get("KeepAlivePeriodInSeconds", 0):
        raise not_local("A warm pool (KeepAlivePeriodInSeconds)", "leave it out.")
    own_disks = has_own_disks(resources.get("InstanceType", ""))
    for member in ("InstanceType", "InstanceCount", *(() if own_disks else ("VolumeSizeInGB",))):
        if not resources.get(member):
            raise invalid(
                f"ResourceConfig.{member} is required: found {resources.get(member, 'none')}, allowed is "
                f"{'a type' if member == 'InstanceType' else '1 or more'}."
            )
    if own_disks and resources.get("VolumeKmsKeyId"):
        raise invalid(f"KMS key is not supported for NVMe instance storage: {resources['InstanceType']}.")


def _check_times(request: dict[str, Any]) -> None:
    limits = request["StoppingCondition"] = {
        "MaxRuntimeInSeconds": _DAY_S,
        **request.get("StoppingCondition", {}),
    }
    longest, wait = limits["MaxRuntimeInSeconds"], limits.get("MaxWaitTimeInSeconds")
    if longest > _LONGEST_RUN_S:
        raise invalid(f"MaxRuntimeInSeconds is {longest}; allowed are 1 to {_LONGEST_RUN_S} (28 days).")
    if not request.get("EnableManagedSpotTraining", False):
        if wait is not None:
            raise invalid(
                "Invalid MaxWaitTimeInSeconds. It is only supported when EnableManagedSpotTraining is set "
                "to true"
            )
    elif wait is None or wait < longest:
        raise invalid(
            "Invalid MaxWaitTimeInSeconds. It must be present and be greater than or equal to "
            "MaxRuntimeInSeconds"
        )


def _check_channels(channels: list[Mapping[str, Any]], algorithm: Mapping[str, Any]) -> None:
    names = [channel["ChannelName"] for channel in channels]
    for name in names:
        if names.count(name) > 1:
            raise invalid(f"InputDataConfig names channel '{name}' more than once.")
        if name in (".", ".."):
            raise invalid(f"InputDataConfig: '{name}' is not a name of a channel.")
    for channel in channels:
        where = f"Channel '{channel['ChannelName']}'"
        if channel.get("InputMode", algorithm["TrainingInputMode"]) == "Pipe":
            raise not_local(f"{where}: input mode Pipe", "use File or FastFile.")
        if any(channel.get(member, "None") != "None" for member in ("CompressionType", "RecordWrapperType")):
            raise invalid(f"{where}: CompressionType and RecordWrapperType are for input mode Pipe only.")
        source = channel["DataSource"].get("S3DataSource")
        if source is None or source["S3DataType"] != "S3Prefix":
            raise not_local(f"{where}: a source other than S3DataSource of S3DataType S3Prefix", "use that.")
        _check_s3(source["S3Uri"], f"{where}: S3Uri")


def _check_s3(uri: str, where: str) -> None:
    parts = urlsplit(uri)
    if parts.scheme != "s3" or not parts.netloc:
        raise invalid(f"{where} is '{uri}'; expected s3://<bucket>/<prefix>.")


def metric_values(algorithm: Mapping[str, Any], line: str) -> Iterator[tuple[str, float]]:
    """(name, value) of each metric that a line of output has, by the job's MetricDefinitions."""
    for metric in algorithm.get("MetricDefinitions", []):
        found = re.search(metric["Regex"], line)
        if found is None or not found.groups():
            continue
        try:
            value = float(found[1])
        except (TypeError, ValueError):
            continue  # the group did not take part, or is not a number
        if math.isfinite(value):  # CloudWatch takes no others
            yield metric["Name"], value
