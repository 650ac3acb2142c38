"""Training jobs: what AWS accepts of a request, and what it answers."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from sagemaker_local.control.capacity import has_own_disks
from sagemaker_local.control.errors import ApiError, invalid, not_local
from sagemaker_local.control.jobs.jobs import (
    DAY_S,
    INTERRUPTED,
    ML_ROOT,
    JobRecord,
    Jobs,
    check_job_image,
    check_s3,
    refuse_members,
    refuse_repeated,
    seconds_of,
)
from sagemaker_local.control.models import check_image

#: The image that the local SageMaker can run has this in its name.
TRAINER = "peagle-trainer"
_LONGEST_RUN_S = 28 * DAY_S


@dataclass
class TrainingRecord(JobRecord):
    """A training job."""

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
    def metric_definitions(self) -> list[Mapping[str, str]]:
        """MetricDefinitions."""
        definitions: list[Mapping[str, str]] = self.body["AlgorithmSpecification"].get(
            "MetricDefinitions", []
        )
        return definitions

    @property
    def model_uri(self) -> str:
        """Where its model goes: an archive, or a folder if it is not compressed."""
        output = self.body["OutputDataConfig"]
        folder = f"{output['S3OutputPath'].rstrip('/')}/{self.name}/output"
        return f"{folder}/model/" if output.get("CompressionType") == "NONE" else f"{folder}/model.tar.gz"


class TrainingJobs(Jobs[TrainingRecord]):
    """The operations on training jobs."""

    kind = "Training"
    record = TrainingRecord

    async def listed(self, body: Mapping[str, Any]) -> dict[str, Any]:
        """ListTrainingJobs: with MaxResults, StatusEquals filters the page and not the list."""
        if "WarmPoolStatusEquals" in body or "TrainingPlanArnEquals" in body:
            return {"TrainingJobSummaries": []}  # no job here has either
        status = body.get("StatusEquals") if "MaxResults" in body else None
        answer = await super().listed(
            {key: value for key, value in body.items() if status is None or key != "StatusEquals"}
        )
        rows = answer["TrainingJobSummaries"]
        shown = [row for row in rows if status in (None, row["TrainingJobStatus"])]
        return {**answer, "TrainingJobSummaries": shown}

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

    def not_there(self, name: str) -> ApiError:
        """Return AWS's error, whose text does not have the name."""
        return invalid("Requested resource not found.")

    def taken(self, arn: str) -> str:
        """Return AWS's words."""
        return (
            "Training job names must be unique within an AWS account and region, and a training job "
            f"with this name already exists ({arn})"
        )

    def description(self, row: TrainingRecord) -> dict[str, Any]:
        """DescribeTrainingJob's answer."""
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
            **self.summary(row),
            "ModelArtifacts": {"S3ModelArtifacts": row.model_uri},
            "TrainingStartTime": seconds_of(row.started),
            "SecondaryStatusTransitions": row.transitions,
            "FailureReason": row.failure_reason,
            "FinalMetricDataList": metrics or None,
            "BillableTimeInSeconds": max(1, round(row.billable_s)) if ended else None,
        }
        if row.ended is not None and row.started is not None:
            answer["TrainingTimeInSeconds"] = max(1, round((row.ended - row.started).total_seconds()))
        return answer

    def summary(self, row: TrainingRecord) -> dict[str, Any]:
        """One row of ListTrainingJobs."""
        return {
            "TrainingJobName": row.name,
            "TrainingJobArn": row.arn,
            "CreationTime": row.created.timestamp(),
            "TrainingEndTime": seconds_of(row.ended),
            "LastModifiedTime": row.modified.timestamp(),
            "TrainingJobStatus": row.status,
            "SecondaryStatus": row.secondary,
        }

    def check(self, request: dict[str, Any]) -> None:
        """Check a request, and write AWS's default of the time limit into it; raises ApiError."""
        refuse_members(request, _NOT_LOCAL)
        if request.get("ProfilerConfig", {"DisableProfiler": True}) != {"DisableProfiler": True}:
            raise not_local("ProfilerConfig", "give DisableProfiler true, or leave it out.")
        for member in ("AlgorithmSpecification", "ResourceConfig"):
            if member not in request:
                raise invalid(f"{member} is required for a training job that is not serverless: found none.")
        _check_algorithm(request["AlgorithmSpecification"])
        _check_resources(request["ResourceConfig"])
        _check_times(request)
        _check_channels(request.get("InputDataConfig", []), request["AlgorithmSpecification"])
        check_s3(request["OutputDataConfig"]["S3OutputPath"], "outputDataConfig.s3OutputPath")
        checkpoints = request.get("CheckpointConfig")
        if checkpoints is not None:
            check_s3(checkpoints["S3Uri"], "checkpointConfig.s3Uri")
            path = checkpoints.get("LocalPath", f"{ML_ROOT}/checkpoints")
            if not path.startswith(f"{ML_ROOT}/") or ".." in path.split("/"):
                raise not_local(f"CheckpointConfig.LocalPath {path}", f"choose one below {ML_ROOT}.")


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
_NOT_LOCAL_ALGORITHM = {
    "AlgorithmName": "give TrainingImage.",
    **dict.fromkeys(
        ("ContainerEntrypoint", "ContainerArguments"),
        "leave it out: the image is run with the argument train.",
    ),
}
_NOT_LOCAL_RESOURCES = dict.fromkeys(
    ("InstanceGroups", "TrainingPlanArn", "InstancePlacementConfig", "InstancePreferences"),
    "give InstanceType and InstanceCount.",
)


def _check_algorithm(algorithm: Mapping[str, Any]) -> None:
    refuse_members(algorithm, _NOT_LOCAL_ALGORITHM)
    image = algorithm.get("TrainingImage")
    if image is None:
        raise invalid("AlgorithmSpecification needs TrainingImage or AlgorithmName: found neither.")
    check_image(
        image, algorithm.get("TrainingImageConfig", {}).get("TrainingRepositoryAccessMode", "Platform")
    )
    check_job_image(image, TRAINER, "training")
    for metric in algorithm.get("MetricDefinitions", []):
        try:
            re.compile(metric["Regex"])
        except re.error as error:
            raise invalid(f"The Regex of metric '{metric['Name']}' is not valid: {error}.") from None


def _check_resources(resources: Mapping[str, Any]) -> None:
    refuse_members(resources, _NOT_LOCAL_RESOURCES, "ResourceConfig.")
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
        "MaxRuntimeInSeconds": DAY_S,
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
    refuse_repeated("InputDataConfig", names)
    for name in names:
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
        check_s3(source["S3Uri"], f"{where}: S3Uri")
