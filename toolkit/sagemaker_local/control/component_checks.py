"""What an inference component may be: the rules beyond SageMaker's model of the request. Pure."""

from collections.abc import Mapping
from typing import Any

from .errors import ApiError, invalid, not_local
from .models import check_image

MOST_ENVIRONMENT_ENTRIES = 16  # InferenceComponentContainerSpecification$Environment


def check_request(request: Mapping[str, Any]) -> None:
    """Checks CreateInferenceComponent.

    Raises:
        ApiError: AWS would refuse it, or the local server cannot run it.
    """
    if "Specifications" in request:
        raise not_local("Specifications (one per instance type)", "give Specification.")
    if "Specification" not in request:
        raise missing("specification")
    check_specification(request["Specification"])
    if "VariantName" not in request:
        raise missing("variantName")
    if request.get("RuntimeConfig", {}).get("CopyCount", 1) < 1:
        raise invalid("Inference components copy count an integer larger than 0")


def check_specification(specification: Mapping[str, Any]) -> None:
    """Checks a component's specification.

    Raises:
        ApiError: AWS would refuse it, or the local server cannot run it.
    """
    if "BaseInferenceComponentName" in specification:
        raise not_local("An adapter inference component (BaseInferenceComponentName)", "give ModelName.")
    if ("ModelName" in specification) == ("Container" in specification):
        found = "both" if "ModelName" in specification else "neither"
        raise invalid(f"Specification needs either ModelName or Container: found {found}.")
    if "Container" in specification:
        _check_container(specification["Container"])
    if "ComputeResourceRequirements" not in specification:
        raise missing("specification.computeResourceRequirements")
    _check_resources(specification["ComputeResourceRequirements"])


def missing(member: str) -> ApiError:
    """AWS's answer when a member is null that its model does not call required."""
    return ApiError(
        "ValidationException",
        f"1 validation error detected: Value null at '{member}' failed to satisfy constraint: "
        "Member must not be null",
    )


def _check_container(container: Mapping[str, Any]) -> None:
    if "Image" not in container:
        raise missing("specification.container.image")
    check_image(container["Image"], "Platform")
    entries = len(container.get("Environment", {}))
    if entries > MOST_ENVIRONMENT_ENTRIES:
        raise invalid(
            f"Specification.Container.Environment has {entries} entries; at most "
            f"{MOST_ENVIRONMENT_ENTRIES} are allowed. Create a model and give ModelName: it takes 100."
        )
    artifact = container.get("ArtifactUrl")
    if artifact is not None and not artifact.endswith(".tar.gz"):
        raise invalid(
            f"ArtifactUrl '{artifact}' must point to a single gzip compressed tar archive (.tar.gz suffix)."
        )


def _check_resources(needs: Mapping[str, Any]) -> None:
    if "AcceleratorPartitionType" in needs:
        raise not_local("AcceleratorPartitionType", "ask for whole accelerators.")
    least, most = needs["MinMemoryRequiredInMb"], needs.get("MaxMemoryRequiredInMb")
    if most is not None and least > most:
        raise invalid(f"MinMemoryRequiredInMb {least} is more than MaxMemoryRequiredInMb {most}.")
