"""Lifetime schedules: EventBridge Scheduler deletes the endpoint at its end."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from itertools import count
from typing import Any

from peagle_sm.aws.control import executor
from peagle_sm.aws.session.errors import is_taken
from peagle_sm.aws.session.session import Session
from peagle_sm.core.errors import NotFound, ServiceFault
from peagle_sm.core.guard import SWITCH, endpoint_stack
from peagle_sm.core.plan.tags_and_schedules import RETRY, hard_schedule_name
from peagle_sm.core.resources.lifetime_schedule import LifetimeSchedule

NAME_PREFIX = "peagle-"
NAME_SUFFIX = "-lifetime"
_PAGE = 100  # maximum of ListSchedules
SOONEST = timedelta(minutes=1)
"""How far ahead a passed start is moved: Scheduler refuses a StartDate older than five minutes."""
TARGET_SUFFIX = ":aws-sdk:sagemaker:deleteEndpoint"
HARD_SUFFIXES = (TARGET_SUFFIX, ":aws-sdk:sagemaker:deleteInferenceComponent")
# Fields that GetSchedule returns and UpdateSchedule accepts: an update replaces the whole schedule.
_CARRIED = (
    "ActionAfterCompletion",
    "Description",
    "FlexibleTimeWindow",
    "GroupName",
    "KmsKeyArn",
    "ScheduleExpression",
    "ScheduleExpressionTimezone",
    "Target",
)


@dataclass(frozen=True)
class Lifetime:
    """Lifetime schedule: deletes ``endpoint`` from ``expires_at`` to ``ends_at``.

    A stack's schedule invokes the guard's switch, which turns ``stack`` off; ``endpoint`` is then None.
    """

    name: str
    endpoint: str | None
    expires_at: datetime | None
    ends_at: datetime | None
    enabled: bool
    raw: Mapping[str, Any] = field(default_factory=dict, repr=False)
    stack: str | None = None
    component: str | None = None  #: the inference component that it deletes in place of an endpoint

    @property
    def role_arn(self) -> str | None:
        """ARN of the role that it uses."""
        return (self.raw.get("Target") or {}).get("RoleArn")

    def ends(self, endpoint: str) -> bool:
        """Return whether it deletes that endpoint, or turns its stack off."""
        return self.endpoint == endpoint or self.stack == endpoint_stack(endpoint)

    def guards(self, endpoint: str, now: datetime) -> bool:
        """Return whether it will delete that endpoint in the future."""
        return self.enabled and self.ends(endpoint) and self.expires_at is not None and self.expires_at > now


def get(session: Session, name: str) -> Lifetime | None:
    """Return the schedule of that name; None if it does not exist."""
    answer = session.api("scheduler").find("get_schedule", Name=name)
    if answer is None:
        return None
    return Lifetime(
        name=name,
        endpoint=_target_endpoint(answer.get("Target", {})),
        expires_at=answer.get("StartDate"),
        ends_at=answer.get("EndDate"),
        enabled=answer.get("State", "ENABLED") == "ENABLED",
        raw=answer,
        stack=_target_stack(answer.get("Target", {})),
        component=_target_component(answer.get("Target", {})),
    )


def arm(session: Session, parameters: Mapping[str, Any]) -> Lifetime:
    """Create the schedule, or replace the one of that name, and read it back.

    Raises:
        ServiceFault: AWS refused it, or the schedule that was read back differs.
    """
    schedule = LifetimeSchedule(parameters["Name"], dict(parameters))
    try:
        executor.create(session, schedule)
    except ServiceFault as error:
        if not is_taken(error):
            raise
        # An old schedule must never delete a new endpoint of the same name.
        executor.send(session, schedule.update())
    armed = get(session, parameters["Name"])
    wanted = _target_endpoint(parameters["Target"])
    if armed is None or not armed.enabled or armed.endpoint != wanted:
        raise ServiceFault(
            f"CreateSchedule: the lifetime schedule {parameters['Name']} differs from the request.",
            operation="CreateSchedule",
            code="NotArmed",
            next_step="Nothing billable was created. Check it in EventBridge Scheduler, and run again.",
        )
    return armed


def put_back(session: Session, lifetime: Lifetime, now: datetime) -> datetime | None:
    """Restore a schedule that was moved; return its start, which is in a minute if the old one has passed."""
    if lifetime.expires_at is None:
        return None
    starts = max(lifetime.expires_at, now + SOONEST)
    move(session, lifetime, starts)
    return starts


def move(session: Session, lifetime: Lifetime, starts: datetime) -> None:
    """Make the schedule fire from ``starts`` on, every few minutes for a day."""
    parameters = {key: lifetime.raw[key] for key in _CARRIED if lifetime.raw.get(key)}
    parameters |= {
        "Name": lifetime.name,
        "Target": _moved_target(parameters.get("Target", {}), starts),
        "State": "ENABLED",
        "StartDate": starts,
        "EndDate": starts + timedelta(days=1),
    }
    session.api("scheduler").update_schedule(**parameters)


def _moved_target(target: Mapping[str, Any], starts: datetime) -> dict[str, Any]:
    """Return a schedule's target for another start time.

    The guard's switch compares ``expires_at`` with the schedule's start: it refuses an event from before the
    move.
    """
    moved = {**target, "RetryPolicy": RETRY}
    event = _event(target)
    if "expires_at" in event:
        moved["Input"] = json.dumps(
            {**event, "expires_at": starts.astimezone(UTC).isoformat(timespec="seconds")}
        )
    return moved


def remove_hard(session: Session, endpoint: str) -> None:
    """Delete the second schedules that an older stack's endpoint of that name left.

    They would delete the next endpoint of the name, or its components.
    """
    _remove_hard(session, hard_schedule_name(endpoint))
    for number in count(1):  # numbered without gaps
        if not _remove_hard(session, hard_schedule_name(endpoint, number)):
            return


def _remove_hard(session: Session, name: str) -> bool:
    """Delete one; return whether it existed. Schedules not of peagle-sm are kept."""
    schedule = get(session, name)
    if schedule is None or not str((schedule.raw.get("Target") or {}).get("Arn", "")).endswith(HARD_SUFFIXES):
        return False
    with suppress(NotFound):
        executor.delete(session, LifetimeSchedule(name))
    return True


def schedule_names(session: Session) -> Iterator[str]:
    """List the names of schedules that may be lifetime schedules of peagle-sm."""
    request = {"NamePrefix": NAME_PREFIX, "MaxResults": _PAGE}
    for row in session.api("scheduler").rows("list_schedules", "Schedules", **request):
        if row["Name"].endswith(NAME_SUFFIX):
            yield row["Name"]


def _target_endpoint(target: Mapping[str, Any]) -> str | None:
    if not str(target.get("Arn", "")).endswith(TARGET_SUFFIX):
        return None
    return _input_value(target, "EndpointName")


def _target_component(target: Mapping[str, Any]) -> str | None:
    if not str(target.get("Arn", "")).endswith(":aws-sdk:sagemaker:deleteInferenceComponent"):
        return None
    return _input_value(target, "InferenceComponentName")


def _target_stack(target: Mapping[str, Any]) -> str | None:
    return (
        _input_value(target, "stack") if str(target.get("Arn", "")).endswith(f":function:{SWITCH}") else None
    )


def _input_value(target: Mapping[str, Any], key: str) -> str | None:
    name = _event(target).get(key)
    return name if isinstance(name, str) else None


def _event(target: Mapping[str, Any]) -> dict[str, Any]:
    """Return the schedule's input; {} if it is not a JSON object."""
    try:
        event = json.loads(target.get("Input") or "{}")
    except ValueError:
        return {}
    return event if isinstance(event, dict) else {}
