"""When an EventBridge schedule is due: ``rate(…)`` and ``at(…)``, with StartDate and EndDate. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

_RATE = re.compile(r"rate\(\s*(\d+)\s+(minute|hour|day)s?\s*\)")
_OLDEST_START = timedelta(minutes=5)
_AT = re.compile(r"at\(\s*(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)\s*\)")


@dataclass(frozen=True)
class Schedule:
    """One schedule as EventBridge Scheduler keeps it; times are aware."""

    group: str
    name: str
    arn: str
    expression: str
    timezone: str
    start: datetime | None
    end: datetime | None
    enabled: bool
    target: Mapping[str, Any]
    delete_after_completion: bool
    revision: float

    @property
    def key(self) -> tuple[str, str]:
        """Key of a schedule: group and name."""
        return self.group, self.name


_CRON = re.compile(r"cron\(\s*\S+(?:\s+\S+){5}\s*\)")


def is_valid(expression: str) -> bool:
    """Return whether Scheduler accepts the expression: ``rate(…)``, ``at(…)`` or six-field ``cron(…)``."""
    every = _RATE.fullmatch(expression)
    if every is not None:
        return int(every.group(1)) > 0
    once = _AT.fullmatch(expression)
    if once is None:
        return _CRON.fullmatch(expression) is not None
    try:
        datetime.fromisoformat(once.group(1))
    except ValueError:
        return False
    return True


def is_once(expression: str) -> bool:
    """Return whether the expression is ``at(…)``."""
    return _AT.fullmatch(expression) is not None


def is_past(expression: str, timezone: str, now: datetime) -> bool:
    """Return whether the expression is an ``at(…)`` whose time is over."""
    once = _AT.fullmatch(expression)
    if once is None:
        return False
    return datetime.fromisoformat(once.group(1)).replace(tzinfo=ZoneInfo(timezone)) <= now


def is_too_old(start: Any, expression: str, now: datetime) -> bool:
    """Return whether Scheduler refuses a repeating schedule for its StartDate, as boto3 sends it."""
    if is_once(expression) or not isinstance(start, int | float):
        return False
    return datetime.fromtimestamp(start, UTC) < now - _OLDEST_START


def is_supported(expression: str) -> bool:
    """Return whether the local clock can fire this expression (not ``cron(…)``)."""
    return _RATE.fullmatch(expression) is not None or _AT.fullmatch(expression) is not None


def first_due(schedule: Schedule, seen: datetime) -> datetime | None:
    """When the schedule fires first, having been created (or changed) at ``seen``; None for never.

    A rate counts from StartDate; without one it fires at once.
    """
    once = _AT.fullmatch(schedule.expression)
    if once is not None:
        at = datetime.fromisoformat(once.group(1)).replace(tzinfo=ZoneInfo(schedule.timezone))
        return at.astimezone(UTC)
    every = _every(schedule.expression)
    if every is None:
        return None
    due = schedule.start or seen
    if due < seen:
        due += -((due - seen) // every) * every
    return _within_end(schedule, due)


def next_due(schedule: Schedule, fired: datetime) -> datetime | None:
    """When the schedule fires after the occurrence at ``fired``; None when it is complete."""
    every = _every(schedule.expression)
    return None if every is None else _within_end(schedule, fired + every)


def retry_delay(attempt: int) -> timedelta:
    """How long to wait before retry number ``attempt``: doubling from 1 s, at most 10 minutes.

    AWS says "exponential backoff" without figures, so these are assumed.
    """
    return timedelta(seconds=min(2.0 ** (attempt - 1), 600.0))


def filled_input(schedule: Schedule, scheduled: datetime, execution_id: str, attempt: int) -> str:
    """Return the target's Input with Scheduler's context attributes filled in; ``attempt`` counts from 1."""
    text = str(schedule.target.get("Input") or "")
    values = {
        "scheduled-time": iso(scheduled),
        "schedule-arn": schedule.arn,
        "execution-id": execution_id,
        "attempt-number": str(attempt),
    }
    for name, value in values.items():
        text = text.replace(f"<aws.scheduler.{name}>", value)
    return text


def iso(moment: datetime) -> str:
    """Write a time as Scheduler does: UTC, whole seconds."""
    return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _every(expression: str) -> timedelta | None:
    match = _RATE.fullmatch(expression)
    if match is None:
        return None
    return timedelta(**{f"{match.group(2)}s": int(match.group(1))})


def _within_end(schedule: Schedule, due: datetime) -> datetime | None:
    return None if schedule.end is not None and due >= schedule.end else due
