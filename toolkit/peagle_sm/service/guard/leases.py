"""What `keep` promised: it outlasts a pause by hand and an update, and the later end holds."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any

from peagle_sm.aws.control import register
from peagle_sm.aws.control.register import Entry, Value
from peagle_sm.aws.session.session import Session
from peagle_sm.core.errors import CredentialsError, PeagleError
from peagle_sm.service.events import Pacing, Phase, Reporter
from peagle_sm.service.guard.rest import known_entry

ATTEMPTS = 3


def lease_of(session: Session, name: str, created: datetime | None = None) -> datetime | None:
    """Return until when an endpoint is kept: one that was paused by hand, or the one that was ``created``."""
    entry = known_entry(session, name)
    if entry is None or not (entry.paused or (created is not None and entry.is_of(created))):
        return None
    return entry.keep_until


def prolonged(schedule: Mapping[str, Any], lease: datetime | None) -> dict[str, Any]:
    """Return a CreateSchedule request that starts at the later of its own start and the lease's end."""
    start = schedule["StartDate"]
    if lease is None or lease <= start:
        return dict(schedule)
    return {**schedule, "StartDate": lease, "EndDate": schedule["EndDate"] + (lease - start)}


def unpaused(seen: Entry, ends: datetime | None) -> Mapping[str, Value]:
    """Return what the register needs once a paused endpoint serves again; ``ends`` is its schedule's start.

    The guard begins an entry of another creation anew, unless the entry names none: then the lease holds.
    """
    if not seen.paused:
        return {}
    if seen.keep_until is None or ends is None:
        return {"paused": False}
    return {"paused": False, "created_at": None, "expires_at": ends}


def note(
    session: Session,
    name: str,
    change: Callable[[Entry], Mapping[str, Value]],
    pacing: Pacing,
    report: Reporter,
    phase: Phase,
) -> None:
    """Write the register where that only helps the guard: a failure is reported, and fails nothing."""
    why = ""
    for attempt in range(ATTEMPTS):
        if attempt:
            pacing.sleep(min(pacing.poll_s, 2.0**attempt))
        try:
            register.update(session, name, change)
            return
        except CredentialsError as error:
            why = error.message
            break
        except PeagleError as error:
            why = error.message
    report(phase, f"the guard's register was not written; the guard finds out by itself ({why})")
