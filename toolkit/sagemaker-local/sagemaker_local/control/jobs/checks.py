"""What SageMaker and the local server refuse of a CreateTrainingJob request, beyond the service model."""

import re
from collections.abc import Mapping
from typing import Any
from urllib.parse import urlsplit

from sagemaker_local.control.capacity import has_own_disks
from sagemaker_local.control.errors import invalid, not_local
from sagemaker_local.control.models import check_image

ML_ROOT = "/opt/ml"
#: The image that the local SageMaker can run has this in its name.
TRAINER = "peagle-trainer"
_DAY_S = 86_400
_LONGEST_RUN_S = 28 * _DAY_S

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


def check(request: dict[str, Any]) -> None:
    """Check a request, and write AWS's default of the time limit into it; raises ApiError."""
    _refuse_members(request, _NOT_LOCAL)
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
    _refuse_members(algorithm, _NOT_LOCAL_ALGORITHM)
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
    _refuse_members(resources, _NOT_LOCAL_RESOURCES, "ResourceConfig.")
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
    _refuse_repeated(names)
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
        if source.get("S3DataDistributionType") == "ShardedByS3Key":
            raise not_local(f"{where}: S3DataDistributionType ShardedByS3Key", "use FullyReplicated.")
        _check_s3(source["S3Uri"], f"{where}: S3Uri")


def _refuse_repeated(names: list[str]) -> None:
    for name in names:
        if names.count(name) > 1:
            raise invalid(f"InputDataConfig has the channel '{name}' more than once.")


def _check_s3(uri: str, where: str) -> None:
    """Refuse what is not an S3 URI."""
    parts = urlsplit(uri)
    if parts.scheme != "s3" or not parts.netloc:
        raise invalid(f"{where} is '{uri}'; expected s3://<bucket>/<prefix>.")


def _refuse_members(request: Mapping[str, Any], instead: Mapping[str, str], where: str = "") -> None:
    """Refuse members that would do nothing here; ``instead`` says by member what to give."""
    for member, advice in instead.items():
        if member in request:
            raise not_local(f"{where}{member}", advice)
