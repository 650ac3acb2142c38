"""Lifetime schedules of endpoints: names, and requests to EventBridge Scheduler.

The guard's Lambdas have this file in their zip, so it imports the standard library alone. A schedule has a
rate and not a single time: AWS refuses to delete an endpoint that is Creating or Updating. Without StartDate
a rate fires immediately.
"""

from __future__ import annotations

import hashlib
import json
from datetime import datetime, timedelta
from typing import Any

RETRY = {"MaximumEventAgeInSeconds": 60, "MaximumRetryAttempts": 0}
"""Retry policy of a lifetime schedule: no retries.

By default Scheduler retries for 24 hours, and a late retry would delete a new endpoint of the same name.
The rate fires again anyway.
"""
_RATE = "rate(10 minutes)"
_LASTS = timedelta(days=1)
_LONGEST_NAME = 64  # the most characters that EventBridge Scheduler takes


def partition(region: str) -> str:
    """Return the ARN partition of a region."""
    prefixes = {"cn-": "aws-cn", "us-gov-": "aws-us-gov", "eusc-": "aws-eusc", "us-iso-": "aws-iso"}
    prefixes |= {"us-isob-": "aws-iso-b", "eu-isoe-": "aws-iso-e", "us-isof-": "aws-iso-f"}
    return next((name for prefix, name in prefixes.items() if region.startswith(prefix)), "aws")


def shortened(name: str, limit: int) -> str:
    """Shorten a name to ``limit`` characters; a digest makes it unique."""
    if len(name) <= limit:
        return name
    digest = hashlib.sha256(name.encode()).hexdigest()[:8]
    return f"{name[: limit - 9].rstrip('-')}-{digest}"


def schedule_name(endpoint: str) -> str:
    """Return the name of an endpoint's lifetime schedule (at most 64 characters)."""
    return f"peagle-{shortened(endpoint, _LONGEST_NAME - len('peagle--lifetime'))}-lifetime"


def hard_name(schedule: str, number: int | None = None) -> str:
    """Return the name of a second schedule, which deletes the endpoint directly.

    With a ``number`` (from 1 on) it is the schedule that deletes the inference component of that number.
    """
    suffix = "-hard" if number is None else f"-hard-{number}"
    return shortened(schedule, _LONGEST_NAME - len(suffix)) + suffix


def hard_schedule_name(endpoint: str, number: int | None = None) -> str:
    """Return the name of a second schedule by its endpoint; see `hard_name`."""
    return hard_name(schedule_name(endpoint), number)


def sagemaker_target(partition: str, action: str) -> str:
    """Return Scheduler's ARN of an operation of SageMaker, such as ``deleteEndpoint``."""
    return f"arn:{partition}:scheduler:::aws-sdk:sagemaker:{action}"


def schedule_request(
    name: str, endpoint: str, start: datetime, role_arn: str | None, target_arn: str, event: dict[str, str]
) -> dict[str, Any]:
    """Return the CreateSchedule request that sends ``event`` to a target from ``start`` on."""
    return {
        "Name": name,
        "Description": f"peagle-sm: deletes endpoint {endpoint} at the end of its lifetime",
        "ScheduleExpression": _RATE,
        "StartDate": start,
        "EndDate": start + _LASTS,
        "State": "ENABLED",
        "FlexibleTimeWindow": {"Mode": "OFF"},
        "ActionAfterCompletion": "DELETE",
        "Target": {
            "Arn": target_arn,
            "RoleArn": role_arn,
            "Input": json.dumps(event),
            "RetryPolicy": RETRY,
        },
    }


def lifetime_schedule(endpoint: str, region: str, role_arn: str | None, expiry: datetime) -> dict[str, Any]:
    """Return the CreateSchedule request to delete ``endpoint`` from ``expiry`` on."""
    target = sagemaker_target(partition(region), "deleteEndpoint")
    return schedule_request(
        schedule_name(endpoint), endpoint, expiry, role_arn, target, {"EndpointName": endpoint}
    )
