"""What a CreateProcessingJob request must be, beyond the service model. Pure.

Sources: SageMaker API reference (ProcessingS3Input, ProcessingS3Output, ProcessingClusterConfig,
ProcessingStoppingCondition), developer guide "How Amazon SageMaker Processing Configures Input and Output For
Your Processing Container".
"""

from collections.abc import Iterator, Mapping
from typing import Any

from sagemaker_local.control.capacity import has_own_disks
from sagemaker_local.control.errors import invalid, not_local
from sagemaker_local.control.models import check_image

#: Inputs and outputs are below it ("must begin with /opt/ml/processing/": ProcessingS3Input$LocalPath).
DATA_ROOT = "/opt/ml/processing/"
#: The image that the local SageMaker can run has this in its name.
PREPARER = "peagle-prepare"
# ProcessingStoppingCondition: 1 to 777600. Without one the maximum is assumed to be a day, as of other jobs.
_DAY_S = 86_400
_NOT_LOCAL = {"ExperimentConfig": "leave it out."}


def check_request(request: dict[str, Any]) -> None:
    """Check a request, and write AWS's defaults into it.

    Raises:
        ApiError: AWS refuses it, or it is not for a local job.
    """
    for member, instead in _NOT_LOCAL.items():
        if member in request:
            raise not_local(member, instead)
    request.setdefault("StoppingCondition", {"MaxRuntimeInSeconds": _DAY_S})
    _check_image(request["AppSpecification"]["ImageUri"])
    if not request["AppSpecification"].get("ContainerEntrypoint"):
        raise not_local("An image's own entry point", "give AppSpecification.ContainerEntrypoint.")
    _check_cluster(request["ProcessingResources"].get("ClusterConfig", {}))
    inputs = request.get("ProcessingInputs", [])
    outputs = request.get("ProcessingOutputConfig", {}).get("Outputs", [])
    _refuse_repeated("ProcessingInputs", [each["InputName"] for each in inputs])
    _refuse_repeated("ProcessingOutputConfig.Outputs", [each["OutputName"] for each in outputs])
    for each in inputs:
        _check_input(each)
    for each in outputs:
        _check_output(each)
    paths = [path for path in _paths(inputs, outputs)]
    _refuse_repeated("LocalPath", paths)


def _check_image(image: str) -> None:
    check_image(image, "Platform")
    if PREPARER not in image.partition("@")[0].rpartition("/")[2]:
        raise not_local(f"The processing image {image}", f"it runs images whose name has {PREPARER!r} in it.")


def _check_cluster(cluster: Mapping[str, Any]) -> None:
    if "InstancePreferences" in cluster:
        raise not_local("ClusterConfig.InstancePreferences", "give InstanceType and InstanceCount.")
    for member in ("InstanceType", "InstanceCount"):
        if not cluster.get(member):
            raise invalid(f"ClusterConfig.{member} is required: found {cluster.get(member, 'none')}.")
    if has_own_disks(cluster["InstanceType"]) and cluster.get("VolumeKmsKeyId"):
        raise invalid(f"KMS key is not supported for NVMe instance storage: {cluster['InstanceType']}.")


def _check_input(given: Mapping[str, Any]) -> None:
    name = given["InputName"]
    if ("S3Input" in given) == ("DatasetDefinition" in given):
        raise invalid(f"ProcessingInput '{name}' must specify exactly one of S3Input or DatasetDefinition.")
    if "DatasetDefinition" in given:
        raise not_local("DatasetDefinition", "give S3Input.")
    if given.get("AppManaged"):
        raise not_local("AppManaged", "leave it out.")
    source = given["S3Input"]
    if source.get("S3InputMode", "File") != "File":
        raise not_local("S3InputMode Pipe", "give File.")
    if source["S3DataType"] != "S3Prefix":
        raise not_local("S3DataType ManifestFile", "give S3Prefix.")
    if source.get("S3CompressionType", "None") != "None":
        raise invalid("S3CompressionType Gzip can only be used in Pipe mode.")
    if not source["S3Uri"].startswith("s3://"):
        raise invalid(f"ProcessingInput '{name}': S3Uri {source['S3Uri']} is not an S3 URI.")
    _check_path(f"ProcessingInput '{name}'", source.get("LocalPath"))


def _check_output(given: Mapping[str, Any]) -> None:
    name = given["OutputName"]
    if ("S3Output" in given) == ("FeatureStoreOutput" in given):
        raise invalid(
            f"ProcessingOutput '{name}' must specify exactly one of S3Output or FeatureStoreOutput."
        )
    if "FeatureStoreOutput" in given:
        raise not_local("FeatureStoreOutput", "give S3Output.")
    if given.get("AppManaged"):
        raise not_local("AppManaged", "leave it out.")
    if not given["S3Output"]["S3Uri"].startswith("s3://"):
        raise invalid(f"ProcessingOutput '{name}': S3Uri {given['S3Output']['S3Uri']} is not an S3 URI.")
    _check_path(f"ProcessingOutput '{name}'", given["S3Output"].get("LocalPath"))


def _check_path(what: str, path: str | None) -> None:
    if path is None:
        raise invalid(f"{what}: LocalPath is required when AppManaged is False.")
    if not path.startswith(DATA_ROOT) or ".." in path.split("/"):
        raise invalid(f"{what}: LocalPath {path} must begin with {DATA_ROOT}.")


def _paths(inputs: list[Mapping[str, Any]], outputs: list[Mapping[str, Any]]) -> Iterator[str]:
    for each in inputs:
        yield str(each["S3Input"]["LocalPath"]).rstrip("/")
    for each in outputs:
        yield str(each["S3Output"]["LocalPath"]).rstrip("/")


def _refuse_repeated(what: str, names: list[str]) -> None:
    for name in names:
        if names.count(name) > 1:
            raise invalid(f"{what} names '{name}' more than once.")
