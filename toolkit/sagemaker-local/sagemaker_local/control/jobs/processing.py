"""Processing jobs: what AWS accepts of a request, and what it answers.

Sources: SageMaker API reference (ProcessingS3Input, ProcessingS3Output, ProcessingClusterConfig,
ProcessingStoppingCondition), developer guide "How Amazon SageMaker Processing Configures Input and Output For
Your Processing Container".
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from sagemaker_local.control.capacity import has_own_disks
from sagemaker_local.control.errors import ApiError, invalid, not_local
from sagemaker_local.control.jobs.jobs import (
    DAY_S,
    JobRecord,
    Jobs,
    check_job_image,
    check_s3,
    refuse_members,
    refuse_repeated,
    seconds_of,
)
from sagemaker_local.control.models import check_image

#: Inputs and outputs are below it ("must begin with /opt/ml/processing/": ProcessingS3Input$LocalPath).
DATA_ROOT = "/opt/ml/processing/"
#: The image that the local SageMaker can run has this in its name.
PREPARER = "peagle-prepare"


@dataclass
class ProcessingRecord(JobRecord):
    """A processing job: it lives as a training job on demand does, but has no secondary status."""

    @property
    def resources(self) -> Mapping[str, Any]:
        """The member with InstanceType and InstanceCount."""
        cluster: Mapping[str, Any] = self.body["ProcessingResources"]["ClusterConfig"]
        return cluster

    @property
    def image(self) -> str:
        """The processing image."""
        return str(self.body["AppSpecification"]["ImageUri"])

    @property
    def sources(self) -> list[Mapping[str, Any]]:
        """The S3Input of each input."""
        return [each["S3Input"] for each in self.body.get("ProcessingInputs", [])]

    @property
    def outputs(self) -> list[dict[str, Any]]:
        """The S3Output of each output."""
        outputs = self.body.get("ProcessingOutputConfig", {}).get("Outputs", [])
        return [each["S3Output"] for each in outputs]


class ProcessingJobs(Jobs[ProcessingRecord]):
    """The operations on processing jobs. Lists are ascending unless the request says otherwise."""

    kind = "Processing"
    record = ProcessingRecord

    def not_there(self, name: str) -> ApiError:
        """Return AWS's error."""
        return ApiError("ResourceNotFound", f"Could not find requested job with name: {name}")

    def taken(self, arn: str) -> str:
        """Return AWS's words."""
        return (
            "Job name must be unique within an AWS account and region, and a job with this name already "
            f"exists ({arn})"
        )

    def description(self, row: ProcessingRecord) -> dict[str, Any]:
        """DescribeProcessingJob's answer."""
        return {**row.body, **self.summary(row), "ProcessingStartTime": seconds_of(row.started)}

    def summary(self, row: ProcessingRecord) -> dict[str, Any]:
        """One row of ListProcessingJobs."""
        return {
            "ProcessingJobName": row.name,
            "ProcessingJobArn": row.arn,
            "CreationTime": row.created.timestamp(),
            "ProcessingEndTime": seconds_of(row.ended),
            "LastModifiedTime": row.modified.timestamp(),
            "ProcessingJobStatus": row.status,
            "FailureReason": row.failure_reason,
            "ExitMessage": row.exit_message,
        }

    def check(self, request: dict[str, Any]) -> None:
        """Check a request, and write AWS's defaults into it; raises ApiError."""
        refuse_members(request, {"ExperimentConfig": "leave it out."})
        # 1 to 777600 (the model). Without one the maximum is assumed to be a day, as of other jobs.
        request.setdefault("StoppingCondition", {"MaxRuntimeInSeconds": DAY_S})
        request["ProcessingResources"].setdefault("ClusterConfig", {}).setdefault("InstanceCount", 1)
        image = request["AppSpecification"]["ImageUri"]
        check_image(image, "Platform")
        check_job_image(image, PREPARER, "processing")
        _check_cluster(request["ProcessingResources"]["ClusterConfig"])
        inputs = request.get("ProcessingInputs", [])
        outputs = request.get("ProcessingOutputConfig", {}).get("Outputs", [])
        refuse_repeated("ProcessingInputs", [each["InputName"] for each in inputs])
        refuse_repeated("ProcessingOutputConfig.Outputs", [each["OutputName"] for each in outputs])
        paths = [_checked_path("Input", each, "DatasetDefinition") for each in inputs]
        paths += [_checked_path("Output", each, "FeatureStoreOutput") for each in outputs]
        refuse_repeated("LocalPath", paths)


def _check_cluster(cluster: Mapping[str, Any]) -> None:
    if "InstancePreferences" in cluster:
        raise not_local("ClusterConfig.InstancePreferences", "give InstanceType and InstanceCount.")
    for member in ("InstanceType", "InstanceCount"):
        if not cluster.get(member):
            raise invalid(f"ClusterConfig.{member} is required: found {cluster.get(member, 'none')}.")
    if has_own_disks(cluster["InstanceType"]) and cluster.get("VolumeKmsKeyId"):
        raise invalid(f"KMS key is not supported for NVMe instance storage: {cluster['InstanceType']}.")


def _checked_path(kind: str, given: Mapping[str, Any], other: str) -> str:
    """Check an input or an output; return its local path."""
    what = f"Processing{kind} '{given[f'{kind}Name']}'"
    source = given.get(f"S3{kind}")
    if (source is None) == (other not in given):
        raise invalid(f"{what} must specify exactly one of S3{kind} or {other}.")
    if source is None:
        raise not_local(other, f"give S3{kind}.")
    if given.get("AppManaged"):
        raise not_local("AppManaged", "leave it out.")
    if source.get("S3InputMode", "File") != "File":
        raise not_local("S3InputMode Pipe", "give File.")
    if source.get("S3DataType", "S3Prefix") != "S3Prefix":
        raise not_local("S3DataType ManifestFile", "give S3Prefix.")
    if source.get("S3CompressionType", "None") != "None":
        raise invalid("S3CompressionType Gzip can only be used in Pipe mode.")
    check_s3(source["S3Uri"], f"{what}: S3Uri")
    path = source.get("LocalPath")
    if path is None:
        raise invalid(f"{what}: LocalPath is required when AppManaged is False.")
    if not path.startswith(DATA_ROOT) or ".." in path.split("/"):
        raise invalid(f"{what}: LocalPath {path} must begin with {DATA_ROOT}.")
    return str(path).rstrip("/")
