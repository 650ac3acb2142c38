"""What EventBridge Scheduler refuses of CreateSchedule and UpdateSchedule beside its model. Pure."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from typing import Any
from zoneinfo import available_timezones

from sagemaker_local.control.requests import service_model
from sagemaker_local.scheduler.schedules import is_once, is_past, is_too_old, is_valid

_UNIVERSAL = re.compile(r"arn:[\w-]+:scheduler:::aws-sdk:(\w+):(\w+)")
# "Unsupported API actions" of universal targets, Scheduler user guide; of a client, not of a service.
_READ_ONLY = re.compile(
    r"(?:get|describe|list|poll|receive|search|scan|query|select|read|lookup|discover|validate|batchGet"
    r"|batchDescribe|batchRead|retrieve)(?![a-z])"
)


def refusal(schedule: Mapping[str, Any], now: datetime) -> str | None:
    """Return why Scheduler refuses a schedule, as boto3 sends it; None if it takes it.

    Members that the request lacks are moto's to name.
    """
    return next(_refusals(schedule, now), None)


def _refusals(schedule: Mapping[str, Any], now: datetime) -> Iterator[str]:
    expression = str(schedule["ScheduleExpression"])
    if not is_valid(expression):
        yield f"Invalid Schedule Expression {expression}."
    if is_too_old(schedule.get("StartDate"), expression, now):
        yield "The StartDate you specify cannot be earlier than 5 minutes ago."
    if not is_once(expression):  # "EventBridge Scheduler ignores EndDate for one-time schedules"
        yield from _of_end(schedule.get("StartDate"), schedule.get("EndDate"), now)
    zone = schedule.get("ScheduleExpressionTimezone") or "UTC"
    if zone not in available_timezones():
        yield f"Invalid ScheduleExpressionTimezone {zone}."
    elif is_valid(expression) and is_past(expression, zone, now):
        yield f"Invalid Schedule Expression {expression}: its time has passed."
    window = schedule.get("FlexibleTimeWindow") or {}
    if (window.get("Mode") == "FLEXIBLE") != ("MaximumWindowInMinutes" in window):
        yield "MaximumWindowInMinutes is for FlexibleTimeWindow of Mode FLEXIBLE, which needs it."
    yield from _of_target(schedule["Target"])


def _of_end(start: Any, end: Any, now: datetime) -> Iterator[str]:
    if not isinstance(end, int | float):
        return
    if datetime.fromtimestamp(end, UTC) <= now:
        yield "The EndDate you specify cannot be in the past."
    if isinstance(start, int | float) and end <= start:
        yield "The EndDate you specify must come after the StartDate."


def _of_target(target: Mapping[str, Any]) -> Iterator[str]:
    universal = _UNIVERSAL.fullmatch(str(target.get("Arn")))
    if universal is None:
        return
    service, action = universal.groups()
    if _READ_ONLY.match(action) or (service == "sagemaker" and not _is_action(action)):
        yield f"{target['Arn']} is not a supported target: {action} is no action of {service} for schedules."
    try:
        json.loads(target.get("Input", "{}"))
    except ValueError:
        yield "The Input of a universal target must be valid JSON."


def _is_action(action: str) -> bool:
    """Return whether SageMaker has the operation; Scheduler writes its first letter small."""
    return action[:1].islower() and action[:1].upper() + action[1:] in service_model().operation_names
