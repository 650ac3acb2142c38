"""EventBridge's "SageMaker Endpoint State Change", published when an endpoint's status changes.

Source: "Events that Amazon SageMaker AI sends to Amazon EventBridge", SageMaker developer guide. The rules
and their targets are moto's: log groups, queues and buses are served, functions are not.
"""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Mapping
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
    entry = {
        "Source": "aws.sagemaker",
        "DetailType": "SageMaker Endpoint State Change",
        "Detail": json.dumps({key: value for key, value in detail.items() if value is not None}),
        "Resources": [arn],
        "Time": event.at.timestamp(),
    }
    try:
        moto.backend("events").put_events([entry])
    except Exception:
        log.exception("the state change of %s could not be delivered", event.endpoint)


def _arn(name: str, account: str, region: str) -> str:
    return f"arn:aws:sagemaker:{region}:{account}:endpoint/{name.lower()}"


def _milliseconds(seconds: float | None) -> int | None:
    return None if seconds is None else int(seconds * 1000)
