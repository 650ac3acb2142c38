"""EventBridge's state changes of endpoints, training and processing jobs, published when a status changes.

Source: "Events that Amazon SageMaker AI sends to Amazon EventBridge", SageMaker developer guide. The rules
and their targets are moto's: log groups, queues and buses are served, functions are not.
"""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Mapping
from datetime import datetime
from typing import Any

from sagemaker_local.control import Event
from sagemaker_local.other_services.moto import Moto

log = logging.getLogger(__name__)


def announce(moto: Moto, event: Event, endpoint: Mapping[str, Any] | None, account: str, region: str) -> None:
    """Publish a change of status on the default event bus; ``endpoint`` is DescribeEndpoint's answer."""
    described = dict(endpoint or {})
    arn = described.get("EndpointArn", _arn(event.endpoint, account, region))
    detail: dict[str, Any] = {
        "EndpointName": event.endpoint,
        "EndpointArn": arn,
        "EndpointConfigName": described.get("EndpointConfigName"),
        "ProductionVariants": described.get("ProductionVariants"),
        "EndpointStatus": re.sub(r"(?<=[a-z])(?=[A-Z])", "_", event.status).upper(),
        "FailureReason": described.get("FailureReason"),
        "CreationTime": _milliseconds(described.get("CreationTime")),
        "LastModifiedTime": _milliseconds(described.get("LastModifiedTime")),
        "Tags": {},
    }
    _publish(moto, "Endpoint", detail, arn, event.at)


def announce_training(moto: Moto, described: Mapping[str, Any], at: datetime) -> None:
    """Publish a change of a training job's status; ``described`` is DescribeTrainingJob's answer."""
    times = ("CreationTime", "LastModifiedTime", "TrainingStartTime", "TrainingEndTime")
    detail = {key: _milliseconds(value) if key in times else value for key, value in described.items()}
    detail["SecondaryStatusTransitions"] = [
        {key: _milliseconds(value) if key.endswith("Time") else value for key, value in each.items()}
        for each in described["SecondaryStatusTransitions"]
    ]
    _publish(moto, "Training Job", {**detail, "Tags": {}}, described["TrainingJobArn"], at)


def announce_processing(moto: Moto, described: Mapping[str, Any], at: datetime) -> None:
    """Publish a change of a processing job's status; ``described`` is DescribeProcessingJob's answer."""
    times = ("CreationTime", "LastModifiedTime", "ProcessingStartTime", "ProcessingEndTime")
    detail = {key: _milliseconds(value) if key in times else value for key, value in described.items()}
    _publish(moto, "Processing Job", {**detail, "Tags": {}}, described["ProcessingJobArn"], at)


def _publish(moto: Moto, of: str, detail: Mapping[str, Any], arn: str, at: datetime) -> None:
    entry = {
        "Source": "aws.sagemaker",
        "DetailType": f"SageMaker {of} State Change",
        "Detail": json.dumps({key: value for key, value in detail.items() if value is not None}),
        "Resources": [arn],
        "Time": at.timestamp(),
    }
    try:
        moto.backend("events").put_events([entry])
    except Exception:
        log.exception("the state change of %s could not be delivered", arn)


def _arn(name: str, account: str, region: str) -> str:
    return f"arn:aws:sagemaker:{region}:{account}:endpoint/{name.lower()}"


def _milliseconds(seconds: float | None) -> int | None:
    return None if seconds is None else int(seconds * 1000)
