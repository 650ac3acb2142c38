"""What the guard means for an endpoint.

`require_guard` and `limit_acts`: whether the guard works, and whether the lifetime schedule can act;
without the guard nothing turns an idle endpoint off before its lifetime ends. `rest_of`: why an endpoint is
off, since when, and which config brings it back. `lease_of` and `prolonged`: what `keep` promised; it
outlasts a pause and an update, and the later end counts.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from peagle_sm.aws.control import guard_resources
from peagle_sm.aws.control import sagemaker as control
from peagle_sm.aws.control.guard_resources import Entry, Value
from peagle_sm.aws.control.lifetime import Lifetime
from peagle_sm.aws.control.stacks import stack_status
from peagle_sm.aws.session.session import Session
from peagle_sm.core.errors import CredentialsError, GuardMissing, PeagleError
from peagle_sm.core.guard import GUARD_STACK, scheduler_role
from peagle_sm.core.plan.tags import PAUSED, SCHEDULER_ROLE
from peagle_sm.service.inventory.resources import Belongings, Note
from peagle_sm.service.progress import Pacing, Phase, Reporter

# A stack that rolled an update back runs its old version; one that is being updated runs one of the two.
_WORKING = frozenset(
    {
        "CREATE_COMPLETE",
        "IMPORT_COMPLETE",
        "UPDATE_COMPLETE",
        "UPDATE_COMPLETE_CLEANUP_IN_PROGRESS",
        "UPDATE_IN_PROGRESS",
        "UPDATE_ROLLBACK_COMPLETE",
        "UPDATE_ROLLBACK_COMPLETE_CLEANUP_IN_PROGRESS",
        "UPDATE_ROLLBACK_IN_PROGRESS",
    }
)


def guard_works(session: Session) -> bool:
    """Whether the guard is installed in the session's account and region."""
    return is_working(stack_status(session, GUARD_STACK))


def is_working(stack_status: str | None) -> bool:
    """Whether a guard whose stack has that status does its work."""
    return stack_status in _WORKING


def guards_own(session: Session, role_arn: str | None) -> bool:
    """Whether a role is the one by which the guard's schedules act; it goes with the guard's stack."""
    return (role_arn or "").rpartition("/")[2] == scheduler_role(session.region)


def limit_acts(session: Session, limit: Lifetime) -> bool:
    """Whether the role by which a lifetime limit deletes is there, as far as may be known."""
    return not guards_own(session, limit.role_arn) or guards_role_acts(session)


def guards_role_acts(session: Session) -> bool:
    """Whether the guard's role for lifetime limits is there, as far as may be known."""
    with suppress(CredentialsError):
        status = stack_status(session, GUARD_STACK)
        return status is not None and not status.startswith(("DELETE_", "ROLLBACK_"))
    return True


def install_step(session: Session) -> str:
    """What to do where no guard is: on the local SageMaker it costs nothing."""
    cost = "" if session.local_url is not None else ", for cents a month"
    return f"Install it once{cost}: `peagle-sm guard install{session.command_flags()}`."


def require_guard(session: Session) -> None:
    """Let a deploy go on only where the guard is installed.

    Raises:
        GuardMissing: it is not, or its stack is not in a state in which it works.
    """
    status = stack_status(session, GUARD_STACK)
    if status in _WORKING:
        return
    found = "is not installed" if status is None else f"does not work (its stack is {status})"
    raise GuardMissing(
        f"The guard {found} in {session.region}: nothing would turn an idle endpoint off before its "
        "lifetime is over. Nothing was created.",
        next_step=f"{install_step(session)} To do without it: "
        "--unguarded (unguarded=True); the lifetime limit is armed all the same.",
        details={"stack": GUARD_STACK, "found_status": status},
    )


BY_HAND = "by hand"
_BY_THE_GUARD = {
    "idle": "idle",
    "lifetime": "its lifetime was over",
    "budget": "its budget was spent",
    "hours": "outside its hours",
    "failed": "it had failed",
}


@dataclass(frozen=True)
class Rest:
    """Why an endpoint is off, and since when as far as is known."""

    why: str
    since: datetime | None = None


def rest_of(one: Belongings, entry: Entry | None) -> Rest | None:
    """Return why the endpoint is off; None when it is there, or when what is left has no such reason."""
    if one.endpoint is not None or not one.configs:
        return None
    if one.kept_config is not None:
        return Rest(BY_HAND, one.paused_at)
    if entry is not None and entry.gone_at is not None and entry.off_by in _BY_THE_GUARD and not entry.paused:
        return Rest(_BY_THE_GUARD[entry.off_by], entry.gone_at)
    if one.is_off:
        by_hand = entry is not None and entry.paused
        return Rest(
            BY_HAND if by_hand else f"{one.stack} has it turned off", entry.gone_at if entry else None
        )
    return None


def known_entries(session: Session, note: Note | None = None) -> dict[str, Entry]:
    """Return the guard's register; empty where there is no guard, or where it could not be read.

    A list of endpoints is worth showing without it; ``note`` is called with what it then lacks.
    """
    try:
        return guard_resources.entries(session)
    except CredentialsError:
        return {}
    except PeagleError as error:
        if note is not None:
            note(
                f"{error.message}; without the guard's register no lease of `keep` is shown, and an endpoint "
                "that the guard turned off may be shown as Orphaned"
            )
        return {}


def known_entry(session: Session, name: str) -> Entry | None:
    """Return the guard's entry of one name; None where there is no guard, or where it may not be read."""
    try:
        return guard_resources.get(session, name)
    except CredentialsError:
        return None


def forget(session: Session, name: str) -> None:
    """Take a name that was deleted for good out of the guard's register, where there is one."""
    with suppress(PeagleError):  # at worst the guard tries to wake it, and fails for want of its config
        guard_resources.forget(session, name)


def awake(session: Session, config_arn: str) -> None:
    """Take off a config what `pause` wrote on it: its endpoint is there again, or about to be."""
    control.remove_tags(session, config_arn, (PAUSED, SCHEDULER_ROLE))


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
            guard_resources.update(session, name, change)
            return
        except CredentialsError as error:
            why = error.message
            break
        except PeagleError as error:
            why = error.message
    report(phase, f"the guard's register was not written; the guard finds out by itself ({why})")
