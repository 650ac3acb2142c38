"""The dead-man's switch as EventBridge schedules: what they are, arming them, removing them.

Rates, not single shots: one shot loses against an endpoint that is Creating or Updating. Without StartDate a
rate fires at once.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import count
from typing import Any, Protocol

from botocore.exceptions import ClientError

from peagle_guard.schedules import hard_name

_RATE = "rate(10 minutes)"
_LASTS = timedelta(days=1)
# How long the stack's switch has for itself before the endpoint is deleted directly.
HARD_AFTER = timedelta(minutes=30)
# No retries: by default Scheduler retries for 24 hours, and a late retry would delete a new endpoint of the
# same name. The rate repeats anyway. What could not be delivered goes to the dead-letter queue.
RETRY = {"MaximumEventAgeInSeconds": 60, "MaximumRetryAttempts": 0}


class NotArmed(Exception):
    """A schedule does not read back as it was written; nothing may run without it."""


class Scheduler(Protocol):
    """The part of boto3's Scheduler client that is used."""

    def create_schedule(self, **parameters: Any) -> Any:
        """CreateSchedule."""

    def update_schedule(self, **parameters: Any) -> Any:
        """UpdateSchedule."""

    def get_schedule(self, **parameters: Any) -> Any:
        """GetSchedule."""

    def delete_schedule(self, **parameters: Any) -> Any:
        """DeleteSchedule."""


@dataclass(frozen=True)
class Arming:
    """What the schedules need: who is to be deleted, when, and by whose rights."""

    name: str
    endpoint: str
    expires_at: datetime
    role_arn: str
    dead_letters_arn: str
    # Of an endpoint in a stack: the switch's ARN and the stack.
    switch_arn: str = ""
    stack: str = ""
    # They block a deletion of the endpoint.
    components: tuple[str, ...] = ()

    @property
    def partition(self) -> str:
        """The ARN partition, as in the role's."""
        return self.role_arn.split(":")[1]


def schedules(arming: Arming) -> list[dict[str, Any]]:
    """Return the schedules' requests.

    In a stack the switch comes first, and half an hour later SageMaker is asked itself, the components before
    the endpoint. Without a stack SageMaker is asked at once; what the components still refuse, the next
    firing does.
    """
    if not arming.stack:
        return [
            *_component_schedules(arming, arming.expires_at),
            _schedule(arming, arming.name, arming.expires_at, *_delete_endpoint(arming)),
        ]
    call = {
        "action": "off",
        "stack": arming.stack,
        "expires_at": _iso(arming.expires_at),
    }
    hard_at = arming.expires_at + HARD_AFTER
    return [
        _schedule(arming, arming.name, arming.expires_at, arming.switch_arn, call),
        *_component_schedules(arming, hard_at),
        _schedule(arming, hard_name(arming.name), hard_at, *_delete_endpoint(arming)),
    ]


def arm(scheduler: Scheduler, arming: Arming) -> None:
    """Create the schedules, or overwrite old ones of their names, and read each back.

    Raises:
        NotArmed: one does not read back as it was written.
    """
    for request in schedules(arming):
        try:
            scheduler.create_schedule(**request)
        except ClientError as error:
            if error.response["Error"]["Code"] != "ConflictException":
                raise
            # An old schedule must never meet a new endpoint of the same name.
            scheduler.update_schedule(**request)
        _check(scheduler.get_schedule(Name=request["Name"]), request)


def disarm_all(scheduler: Scheduler, name: str) -> None:
    """Delete the lifetime schedule of that name and its hard ones; none is fine."""
    _delete(scheduler, name)
    disarm_hard(scheduler, name)


def disarm_hard(scheduler: Scheduler, name: str) -> None:
    """Delete the hard schedules beside the lifetime schedule of that name; none is fine."""
    _delete(scheduler, hard_name(name))
    disarm_components(scheduler, name)


def disarm_components(scheduler: Scheduler, name: str, after: int = 0) -> None:
    """Delete the schedules of the components numbered above ``after``; they are numbered without a gap."""
    for number in count(after + 1):
        if not _delete(scheduler, hard_name(name, number)):
            return


def _delete(scheduler: Scheduler, name: str) -> bool:
    try:
        scheduler.delete_schedule(Name=name)
    except ClientError as error:
        if error.response["Error"]["Code"] != "ResourceNotFoundException":
            raise
        return False
    return True


def _check(found: Any, request: dict[str, Any]) -> None:
    name, start = request["Name"], found.get("StartDate")
    # Scheduler keeps whole seconds.
    late = start is None or abs(start - request["StartDate"]) > timedelta(seconds=1)
    target = found.get("Target", {})
    if (
        late
        or found.get("State", "ENABLED") != "ENABLED"
        or any(target.get(key) != request["Target"][key] for key in ("Arn", "Input"))
    ):
        raise NotArmed(
            f"schedule {name} does not read back as it was written (StartDate {start}, "
            f"state {found.get('State')}, target {target.get('Arn')}); nothing was started"
        )


def _component_schedules(arming: Arming, start: datetime) -> list[dict[str, Any]]:
    """Components block the deletion of their endpoint, in a stack or not: each has a schedule of its own."""
    return [
        _schedule(arming, hard_name(arming.name, number), start, *_delete_component(arming, component))
        for number, component in enumerate(arming.components, start=1)
    ]


def _delete_endpoint(arming: Arming) -> tuple[str, dict[str, str]]:
    return _universal(arming, "deleteEndpoint"), {"EndpointName": arming.endpoint}


def _delete_component(arming: Arming, component: str) -> tuple[str, dict[str, str]]:
    return _universal(arming, "deleteInferenceComponent"), {"InferenceComponentName": component}


def _universal(arming: Arming, action: str) -> str:
    return f"arn:{arming.partition}:scheduler:::aws-sdk:sagemaker:{action}"


def _schedule(
    arming: Arming, name: str, start: datetime, target: str, told: dict[str, str]
) -> dict[str, Any]:
    return {
        "Name": name,
        "Description": f"peagle-sm: deletes endpoint {arming.endpoint} at the end of its lifetime",
        "ScheduleExpression": _RATE,
        "StartDate": start,
        "EndDate": start + _LASTS,
        "State": "ENABLED",
        "FlexibleTimeWindow": {"Mode": "OFF"},
        "ActionAfterCompletion": "DELETE",
        "Target": {
            "Arn": target,
            "RoleArn": arming.role_arn,
            "Input": json.dumps(told),
            "RetryPolicy": RETRY,
            "DeadLetterConfig": {"Arn": arming.dead_letters_arn},
        },
    }


def _iso(moment: datetime) -> str:
    return moment.astimezone(UTC).isoformat(timespec="seconds")
