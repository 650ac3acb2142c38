"""Acting through the owner: the sweeper deletes nothing itself, it asks another function."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from peagle_guard.aws import Aws
from peagle_guard.lifetime import HARD_AFTER
from peagle_guard.records import Lifecycle, OffBy, Record
from peagle_guard.settings import Settings

DONE, IN_PROGRESS, REFUSED = "done", "in-progress", "refused"


class Refused(Exception):
    """The owner did not do what it was asked for; the message is its own."""


@dataclass(frozen=True)
class Outcome:
    """What the owner answered; ``started`` is False while it only waits for something else to end."""

    state: str
    detail: str
    started: bool = True


def turn_off(aws: Aws, settings: Settings, lifecycle: Lifecycle, record: Record) -> Outcome:
    """Ask the switch to turn the endpoint off.

    Raises:
        Refused: it did not.
    """
    event = {"action": "off", "stack": lifecycle.stack} if lifecycle.stack else _direct(record)
    return _ask(aws, settings.switch_function, event)


def settle(aws: Aws, settings: Settings, lifecycle: Lifecycle, record: Record) -> Outcome:
    """Have the lifetime schedules of a gone endpoint removed, whoever deleted it.

    CloudFormation removes them with a stack's endpoint, but not where it gave up deleting that, and not
    where somebody deleted the endpoint by hand. ``expires_at`` and ``last_seen_at`` protect newer ones:
    whoever creates the endpoint again has armed them later.

    Raises:
        Refused: the switch did not.
    """
    if record.created_at is None or not record.arn:
        return Outcome(DONE, "no schedule is known")
    expires = record.created_at + lifecycle.max_lifetime
    if record.expires_at is not None:
        expires = max(expires, record.expires_at)
    # It was armed before the endpoint's creation was known to the second: a little later is still it.
    expires += timedelta(minutes=1)
    event = _direct(record) | {
        "expires_at": expires.isoformat(),
        "last_seen_at": _last_seen_at(record).isoformat(),
    }
    if lifecycle.stack:
        event["hard_expires_at"] = (expires + HARD_AFTER).isoformat()
    return _ask(aws, settings.switch_function, event)


def wake(aws: Aws, settings: Settings, lifecycle: Lifecycle, record: Record, now: datetime) -> Outcome:
    """Ask the owner to turn the endpoint on again.

    Raises:
        Refused: it did not.
    """
    if lifecycle.stack:
        return _ask(aws, settings.switch_function, {"action": "on", "stack": lifecycle.stack})
    event = {"action": "wake", "endpoint": record.name, "config": record.config_name, "time": now.isoformat()}
    return _ask(aws, settings.lifetime_function, event)


def _last_seen_at(record: Record) -> datetime:
    """Return the last time by the register at which the endpoint existed and had not failed.

    Nobody arms schedules for the next endpoint of its name before that: a deploy does so at the earliest when
    the old one has failed or is being deleted. The sweep that first misses the endpoint may be later than
    the next deploy, so its time does not count.
    """
    seen = [record.created_at, record.first_in_service_at, record.marked_at, record.warned_at]
    if record.off_by is not OffBy.FAILED:
        seen.append(record.off_at)
    return max(moment for moment in seen if moment is not None)


def _direct(record: Record) -> dict[str, Any]:
    created = record.created_at.isoformat() if record.created_at else ""
    return {"action": "off", "endpoint": record.name, "arn": record.arn, "created_at": created}


def _ask(aws: Aws, function: str, event: Mapping[str, Any]) -> Outcome:
    answer = aws.invoke(function, event)
    state, detail = str(answer.get("state")), str(answer.get("detail", ""))
    if state not in (DONE, IN_PROGRESS):
        raise Refused(f"{function} answered {state}: {detail}")
    return Outcome(state, detail, bool(answer.get("started", True)))
