"""Tags, lifetime schedules and alarms of endpoints: what the guard's Lambdas read and write too.

The Lambdas have this file in their zip, so it imports the standard library alone.

Endpoint, config and model have the same tags. A value may have letters, digits, spaces and
``_ . : / = + - @`` (AWS's rule for tags), so no value has a comma.

A schedule has a rate and not a single time: AWS refuses to delete an endpoint that is Creating or Updating.
Without StartDate a rate fires immediately.
"""

from __future__ import annotations

import hashlib
import json
from datetime import datetime, timedelta
from typing import Any

PREFIX = "peagle-sm:"
MANAGED_BY = "peagle-sm:managed-by"
MANAGER = "peagle-sm"
ENDPOINT = "peagle-sm:endpoint"
SPEC_HASH = "peagle-sm:spec-hash"
MODEL = "peagle-sm:model"
"""Catalogue id of the target, or the name of the spec's own model."""
MODE = "peagle-sm:mode"
"""Mode of speculation; `synthetic` on an endpoint of `tune --synthetic`, which no mode's rate comes from."""
NUM_SPECULATIVE_TOKENS = "peagle-sm:num-speculative-tokens"
"""K; absent without speculation. `list` reads this tag and the next three instead of calling SageMaker."""
INSTANCE_TYPE = "peagle-sm:instance-type"
"""First type of placement.instance_types."""
INSTANCE_COUNT = "peagle-sm:instance-count"
"""placement.instance_count; with autoscaling, the initial count."""
INSTANCE_BOUNDS = "peagle-sm:instance-bounds"
"""Autoscaling's minimum and maximum of instances (`1-4`); absent without autoscaling."""
IDLE_MINUTES = "peagle-sm:idle-minutes"
GRACE_MINUTES = "peagle-sm:grace-minutes"
MAX_LIFETIME_HOURS = "peagle-sm:max-lifetime-hours"
"""Hours from the endpoint's CreationTime to its end, unless `keep` set a later one in the register."""
BUDGET_USD = "peagle-sm:budget-usd"
PUBLISH_SECONDS = "peagle-sm:publish-seconds"
"""Seconds between two utilization data points; by default the guard expects one per minute."""
USD_PER_HOUR = "peagle-sm:usd-per-hour"
"""Planned price per hour of placement.instance_count instances.

Absent if unknown, or if nothing is billed.
"""
PRICE_BOUND = "peagle-sm:price-bound"
"""`at-most`: the planned price is an upper bound, since SageMaker's is not known; absent otherwise."""
HOURS = "peagle-sm:hours"
"""Timetable in the format of `peagle_sm.core.spec.hours`."""
STACK = "peagle-sm:stack"
"""CloudFormation stack that owns the endpoint; absent if `peagle-sm deploy` created it."""
IDLE = "peagle-sm:idle"
"""Action for an idle endpoint: `scale-to-zero`; absent means turn-off."""
SCALING = "peagle-sm:scaling"
"""Autoscaling of an endpoint without a stack, for `resume`; see `core.resources.scalable_target`."""
COMPONENT = "peagle-sm:component"
"""Size of the inference component of an endpoint without a stack, for `resume`."""
PAUSED = "peagle-sm:paused"
"""On the config of an endpoint that `peagle-sm pause` turned off: the ISO time of the pause."""
LEARN = "peagle-sm:learn"
"""On a training job: the name of its learn.yaml."""
DEADLINE = "peagle-sm:deadline"
"""On a training job: the ISO time from which on the guard stops it."""
SCHEDULER_ROLE = "peagle-sm:scheduler-role"
"""Together with `PAUSED`: the role of the lifetime schedule, which `resume` needs."""


def number(value: float) -> str:
    """Format a number for a tag: `8`, `0.5`, `113.93`; `float()` parses it."""
    return format(value, ".12g")


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


def alarm_names(endpoint: str) -> tuple[str, str]:
    """Return the names of the alarms of an update and of a promotion; a killed one leaves them."""
    return f"peagle-{endpoint}-update", f"peagle-{endpoint}-acceptance"


def from_zero_alarm(endpoint: str) -> str:
    """Return the name of the alarm that scales an endpoint out from zero."""
    return f"Peagle-{endpoint}-from-zero"


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


def component_schedule(
    endpoint: str, schedule: dict[str, Any], component: str, number: int = 1
) -> dict[str, Any]:
    """Return the CreateSchedule request to delete a component, given the endpoint's ``schedule``.

    SageMaker refuses to delete an endpoint that has components, so each has its own schedule.
    """
    target = {
        **schedule["Target"],
        "Arn": sagemaker_target(schedule["Target"]["Arn"].split(":")[1], "deleteInferenceComponent"),
        "Input": json.dumps({"InferenceComponentName": component}),
    }
    return {
        **schedule,
        "Name": hard_schedule_name(endpoint, number),
        "Description": f"peagle-sm: deletes inference component {component} at the end of its lifetime",
        "Target": target,
    }
