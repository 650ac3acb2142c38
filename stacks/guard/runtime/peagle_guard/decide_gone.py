"""The decision about an endpoint that no longer exists: is it settled, is it woken by its hours? Pure."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta

from peagle_guard import hours
from peagle_guard.costs import settled
from peagle_guard.records import Action, Decision, Lifecycle, OffBy, Record, Tell
from peagle_guard.track import unmarked

MOST_WAKE_TRIES = 3
_LOOK_EVERY = timedelta(hours=1)
# Turned off by one of these, the next opening wakes it. Not so: a spent budget, a failure, a hand.
_WOKEN_AFTER = frozenset({OffBy.IDLE, OffBy.LIFETIME, OffBy.HOURS})


def decide_gone(lifecycle: Lifecycle, record: Record, now: datetime, retry: timedelta) -> Decision:
    """Say what to do about a name whose endpoint is gone; ``retry`` is the least time between two tries."""
    if record.created_at is None:
        return Decision(Action.NONE, "never seen", record)
    if record.gone_at is None:
        return _first_seen_gone(lifecycle, record, now)
    return _wake(lifecycle, record, now, retry)


def asks_for_its_stack(lifecycle: Lifecycle, record: Record, now: datetime, sweep: timedelta) -> bool:
    """Whether this sweep looks if the stack of an endpoint that is off still stands: once an hour.

    A stack that was destroyed leaves a record that would stand for good, and a timetable that would go on
    trying. ``sweep`` is the time between two sweeps.
    """
    if lifecycle.stack is None or record.created_at is None or record.gone_at is None:
        return False
    since = now - record.gone_at
    return since >= _LOOK_EVERY and since % _LOOK_EVERY < sweep


def _first_seen_gone(lifecycle: Lifecycle, record: Record, now: datetime) -> Decision:
    off_at, off_by = record.off_at, record.off_by
    expires = _expiry(lifecycle, record)
    if off_by is None:
        # The dead-man's schedule acts by itself, and tells nobody.
        off_by = OffBy.LIFETIME if expires is not None and now >= expires else OffBy.OTHERS
    gone = replace(
        unmarked(settled(lifecycle, record, now)),
        gone_at=now,
        off_at=off_at or now,
        off_by=off_by,
        hours_off=off_by is OffBy.HOURS,
        warned_at=None,
        unknown_since=None,
        # A pause by hand does not end the promise of ``keep``: resuming goes on with it.
        keep_until=record.keep_until if record.paused else None,
        expires_at=record.expires_at if record.paused else None,
    )
    if off_by is OffBy.OTHERS:
        return Decision(Action.NONE, "gone, and not by the guard", gone, off_by=off_by)
    return Decision(Action.CONFIRM_GONE, f"gone ({off_by})", gone, Tell.GONE, off_by, gone.off_at)


def _expiry(lifecycle: Lifecycle, record: Record) -> datetime | None:
    if record.created_at is None:
        return None
    ends = record.created_at + lifecycle.max_lifetime
    return ends if record.expires_at is None else max(ends, record.expires_at)


def _wake(lifecycle: Lifecycle, record: Record, now: datetime, retry: timedelta) -> Decision:
    if lifecycle.hours is None:
        return Decision(Action.NONE, "off", record)
    opened = hours.opening(lifecycle.hours, now)
    if opened is None:
        return Decision(Action.NONE, "off, outside its hours", record)
    if record.paused:
        return Decision(Action.NONE, "paused by hand", record)
    if record.off_by not in _WOKEN_AFTER:
        return Decision(Action.NONE, f"off ({record.off_by}): its hours do not wake it", record)
    if (record.off_at or record.gone_at or now) >= opened:
        return Decision(Action.NONE, "turned off within its hours: the next opening wakes it", record)
    tries = record.wake_tries if record.woken_for == opened else 0
    if tries >= MOST_WAKE_TRIES:
        return Decision(Action.NONE, f"waking failed {tries} times: the next opening tries again", record)
    if record.woken_for == opened and record.wake_tried_at and now - record.wake_tried_at < retry:
        return Decision(Action.WAIT, "being woken", record)
    woken = replace(record, woken_for=opened, wake_tried_at=now, wake_tries=tries + 1)
    return Decision(Action.WAKE, f"its hours began at {opened.isoformat(timespec='seconds')}", woken)
