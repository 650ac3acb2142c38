"""Targets of a schedule: SageMaker's own operations, or a Lambda function.

The universal target is ``arn:aws:scheduler:::aws-sdk:sagemaker:<action>``.
"""

from __future__ import annotations

import json
import re
import uuid
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Protocol

from sagemaker_local.control import ApiError
from sagemaker_local.scheduler.schedules import Schedule, iso

_UNIVERSAL = "arn:aws:scheduler:::aws-sdk:sagemaker:"
_FUNCTION = re.compile(r"arn:[^:]+:lambda:[^:]+:\d{12}:function:[^:]+(:[^:]+)?")
_SERVICE = "scheduler.amazonaws.com"

Call = Callable[[str, dict[str, Any]], Awaitable[object]]
Trusts = Callable[[str, str], bool]


class Functions(Protocol):
    """Runner of Lambda functions, on the same clock."""

    @property
    def busy(self) -> bool:
        """Whether an event is running."""

    def send(self, name_or_arn: str, event: Any) -> None:
        """Accept an event for a function, or raise ApiError."""

    def due(self) -> datetime | None:
        """Time of the next retry; None if no event waits."""

    def start_due(self) -> None:
        """Start the events that are due."""

    async def settle(self) -> None:
        """Wait until no event is running."""


@dataclass(frozen=True)
class Invocation:
    """One firing of a schedule; ``number`` counts its retries."""

    scheduled: datetime
    number: int = 0
    execution_id: str = field(default_factory=lambda: str(uuid.uuid4()))


class Targets:
    """Calls targets."""

    def __init__(self, *, call: Call, functions: Functions | None, trusts: Trusts) -> None:
        self._call = call
        self._functions = functions
        self._trusts = trusts

    async def invoke(self, schedule: Schedule, text: str, this: Invocation) -> None:
        """Call a schedule's target with its Input; a function gets its event asynchronously.

        Raises:
            ApiError: the role is gone, the target is none that can be called, or it refuses.
        """
        arn, role = str(schedule.target.get("Arn", "")), str(schedule.target.get("RoleArn", ""))
        if not self._trusts(role, _SERVICE):
            message = f"the role {role} does not exist, or does not trust EventBridge Scheduler"
            raise ApiError("AccessDeniedException", message, 403)
        if self._functions is not None and _FUNCTION.fullmatch(arn):
            self._functions.send(arn, _json(text) if text else _own_event(schedule, this))
        elif arn.startswith(_UNIVERSAL):
            action = arn.removeprefix(_UNIVERSAL)
            await self._call(action[:1].upper() + action[1:], _json(text or "{}"))
        else:
            raise ApiError(
                "ValidationException",
                f"target: found {arn}; allowed locally: {_UNIVERSAL}<action> and Lambda functions",
            )


def _json(text: str) -> Any:
    try:
        return json.loads(text)
    except json.JSONDecodeError as error:
        raise ApiError("ValidationException", f"the target's Input is not JSON: {error}") from error


def _own_event(schedule: Schedule, this: Invocation) -> dict[str, Any]:
    """Return the event that a function gets from a schedule without Input."""
    _, _, _, region, account, _ = schedule.arn.split(":", 5)
    return {
        "version": "0",
        "id": this.execution_id,
        "detail-type": "Scheduled Event",
        "source": "aws.scheduler",
        "account": account,
        "time": iso(this.scheduled),
        "region": region,
        "resources": [schedule.arn],
        "detail": "{}",
    }
