"""DescribeInferenceComponent's answer and the summaries of ListInferenceComponents, from the record alone."""

from typing import Any

from .describe import deployed_image
from .records import ComponentRecord

# What Describe repeats of the specification.
_REPEATED = (
    "InstanceType",
    "ModelName",
    "StartupParameters",
    "ComputeResourceRequirements",
    "DataCacheConfig",
    "SchedulingConfig",
)


def component_summary(row: ComponentRecord, endpoint_arn: str) -> dict[str, Any]:
    """One row of ListInferenceComponents."""
    return {
        "InferenceComponentName": row.name,
        "InferenceComponentArn": row.arn,
        "EndpointName": row.endpoint,
        "EndpointArn": endpoint_arn,
        "VariantName": row.variant,
        "CreationTime": row.created.timestamp(),
        "LastModifiedTime": row.modified.timestamp(),
        "InferenceComponentStatus": row.status,
    }


def component_description(row: ComponentRecord, endpoint_arn: str) -> dict[str, Any]:
    """DescribeInferenceComponent's answer."""
    answer = component_summary(row, endpoint_arn) | {
        "Specification": _specification(row),
        "RuntimeConfig": {"DesiredCopyCount": row.desired_copies, "CurrentCopyCount": row.current_copies},
    }
    if row.deployment_config is not None:
        answer["LastDeploymentConfig"] = row.deployment_config
    if row.failure_reason is not None and row.status == "Failed":
        answer["FailureReason"] = row.failure_reason
    return answer


def _specification(row: ComponentRecord) -> dict[str, Any]:
    asked = row.specification
    answer = {member: asked[member] for member in _REPEATED if member in asked}
    if "Container" in asked:
        container = {key: value for key, value in asked["Container"].items() if key != "Image"}
        if row.deployed_at is not None:
            container["DeployedImage"] = deployed_image(row.image, row.deployed_at)
        answer["Container"] = container
    return answer
