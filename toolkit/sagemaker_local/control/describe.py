"""DescribeEndpoint's answer and the summaries of ListEndpoints, from the records alone."""

import hashlib
from collections.abc import Mapping
from datetime import datetime
from typing import Any

from .records import EndpointRecord, VariantCapacity

# With these statuses FailureReason is shown.
_FAILED = frozenset({"Failed", "OutOfService", "UpdateRollbackFailed"})
# What DescribeEndpoint repeats of a variant of the configuration.
_REPEATED = ("ManagedInstanceScaling", "RoutingConfig")


def summary(row: EndpointRecord) -> dict[str, Any]:
    """One row of ListEndpoints."""
    return {
        "EndpointName": row.name,
        "EndpointArn": row.arn,
        "CreationTime": row.created.timestamp(),
        "LastModifiedTime": row.modified.timestamp(),
        "EndpointStatus": row.status,
    }


def description(row: EndpointRecord) -> dict[str, Any]:
    """DescribeEndpoint's answer."""
    answer = summary(row) | {"EndpointConfigName": row.config["EndpointConfigName"]}
    if row.deployed_at is not None:
        answer["ProductionVariants"] = [
            _variant(row, variant, row.capacities[variant["VariantName"]], row.deployed_at)
            for variant in row.config["ProductionVariants"]
        ]
    pending = row.config if row.status == "Creating" else row.pending
    if pending is not None and row.pending_since is not None:
        answer["PendingDeploymentSummary"] = _pending(pending, row.pending_since)
    if row.deployment_config is not None:
        answer["LastDeploymentConfig"] = row.deployment_config
    if row.failure_reason is not None and row.status in _FAILED:
        answer["FailureReason"] = row.failure_reason
    capture = row.config.get("DataCaptureConfig")
    if capture:
        answer["DataCaptureConfig"] = _capture(capture)
    if "MetricsConfig" in row.config:
        answer["MetricsConfig"] = row.config["MetricsConfig"]
    return answer


def _variant(
    row: EndpointRecord, variant: Mapping[str, Any], has: VariantCapacity, since: datetime
) -> dict[str, Any]:
    answer: dict[str, Any] = {
        "VariantName": variant["VariantName"],
        "CurrentInstanceCount": has.current_count,
        "DesiredInstanceCount": has.desired_count,
    }
    if "ModelName" in variant:  # components have images and shares of the traffic of their own
        image = row.images[variant["VariantName"]]
        answer |= {
            "DeployedImages": [deployed_image(image, since)],
            "CurrentWeight": has.current_weight,
            "DesiredWeight": has.desired_weight,
        }
    if "InstancePools" in variant:
        answer["InstancePools"] = _pools(
            variant["InstancePools"], row.placed.get(variant["VariantName"], ""), has.current_count
        )
    return answer | {member: variant[member] for member in _REPEATED if member in variant}


def deployed_image(image: str, since: datetime) -> dict[str, Any]:
    """A DeployedImage. No registry is asked here: the digest is that of the image's name."""
    resolved = image
    if "@sha256:" not in image:
        repository, _, tag = image.rpartition(":")
        digest = hashlib.sha256(image.encode()).hexdigest()
        resolved = f"{image if '/' in tag else repository}@sha256:{digest}"
    return {"SpecifiedImage": image, "ResolvedImage": resolved, "ResolutionTime": since.timestamp()}


def _pools(pools: list[Mapping[str, Any]], placed: str, count: int) -> list[dict[str, Any]]:
    """The pool of the first priority that is not short holds every instance."""
    return [
        {
            "InstanceType": pool["InstanceType"],
            "CurrentInstanceCount": count if pool["InstanceType"] == placed else 0,
        }
        for pool in pools
    ]


def _pending(config: Mapping[str, Any], since: datetime) -> dict[str, Any]:
    return {
        "EndpointConfigName": config["EndpointConfigName"],
        "StartTime": since.timestamp(),
        "ProductionVariants": [
            {
                "VariantName": variant["VariantName"],
                "DesiredWeight": float(variant.get("InitialVariantWeight", 1.0)),
                "DesiredInstanceCount": variant["InitialInstanceCount"],
                "CurrentInstanceCount": 0,
                **({"InstanceType": variant["InstanceType"]} if "InstanceType" in variant else {}),
                "VariantStatus": [{"Status": "Creating", "StartTime": since.timestamp()}],
            }
            for variant in config["ProductionVariants"]
        ],
    }


def _capture(config: Mapping[str, Any]) -> dict[str, Any]:
    """The local server captures nothing, and says so."""
    return {
        "EnableCapture": config.get("EnableCapture", False),
        "CaptureStatus": "Stopped",
        "CurrentSamplingPercentage": config["InitialSamplingPercentage"],
        "DestinationS3Uri": config["DestinationS3Uri"],
        "KmsKeyId": config.get("KmsKeyId", ""),
    }
