"""The guard's state and its effect on an endpoint.

`require_guard` checks that the guard works: without it nothing turns an idle endpoint off before its
lifetime ends. `limit_acts` checks that the lifetime schedule can delete. `rest_of` returns why an endpoint
is off and since when. `lease_of` and `prolonged` apply the lease of `keep`, which also holds after a pause
or an update; the later end counts.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from peagle_sm.aws.control import guard_resources
from peagle_sm.aws.control import sagemaker as control
from peagle_sm.aws.control.guard_resources import RegisterEntry, Value
from peagle_sm.aws.control.lifetime import Lifetime
from peagle_sm.aws.control.stacks import GONE, StackFacts, describe, stack_status
from peagle_sm.aws.session.session import Session
from peagle_sm.core.errors import CredentialsError, GuardMissing, PeagleError
from peagle_sm.core.guard import GUARD_STACK, scheduler_role
from peagle_sm.core.plan.tags_and_schedules import PAUSED, SCHEDULER_ROLE
from peagle_sm.service.inventory.resources import Belongings, Note
from peagle_sm.service.progress import Pacing, Phase, Reporter

# After a rollback a stack runs its old version; during an update it runs one of the two.
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
    """Return whether a working guard is installed in the account and region."""
    return is_working(stack_status(session, GUARD_STACK))


def is_working(stack_status: str | None) -> bool:
    """Return whether a guard works if its stack has this status."""
    return stack_status in _WORKING


def guards_own(session: Session, role_arn: str | None) -> bool:
    """Return whether the role is the guard's for schedules; its stack owns that role."""
    return (role_arn or "").rpartition("/")[2] == scheduler_role(session.region)


def limit_acts(session: Session, limit: Lifetime) -> bool:
    """Return whether the role of a lifetime schedule exists; True if unknown."""
    return not guards_own(session, limit.role_arn) or guards_role_acts(session)


def guards_role_acts(session: Session) -> bool:
    """Return whether the guard's role for lifetime schedules exists; True if unknown."""
    with suppress(CredentialsError):
        status = stack_status(session, GUARD_STACK)
        return status is not None and not status.startswith(("DELETE_", "ROLLBACK_"))
    return True


def install_step(session: Session) -> str:
    """Return the step that installs the guard, with its cost on AWS."""
    cost = "" if session.local_url is not None else ", for cents a month"
    return f"Install it once{cost}: `peagle-sm guard install{session.command_flags()}`."


def renewal(stack: StackFacts, flags: str) -> str:
    """Return the command that brings an installed guard up to date."""
    by_cdk = "AssetKey" not in stack.parameters
    return f"cdk deploy {GUARD_STACK}" if by_cdk else f"peagle-sm guard install{flags}"


def require_guard(session: Session, *, training: bool = False) -> None:
    """Refuse a deploy, or a ``training`` job, if no guard works.

    Raises:
        GuardMissing: no guard is installed, or its stack's status means that it does not work.
    """
    stack = describe(session, GUARD_STACK)
    status = None if stack is None or stack.status == GONE else stack.status
    if status in _WORKING:
        return
    state = "is not installed" if status is None else f"does not work (its stack is {status})"
    loss = "nothing would turn an idle endpoint off before its lifetime ends"
    rest = "; the lifetime schedule is still created"
    if training:
        loss, rest = "only SageMaker's own limits would stop a training job", ""
    raise GuardMissing(
        f"The guard {state} in {session.region}: {loss}. Nothing was created.",
        next_step=f"{install_step(session)} To go on without it, add --unguarded (unguarded=True){rest}.",
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
    """Reason why an endpoint is off, and since when, if known."""

    why: str
    since: datetime | None = None


def rest_of(belongings: Belongings, entry: RegisterEntry | None) -> Rest | None:
    """Return why the endpoint is off; None if it exists, or if no reason is recorded."""
    if belongings.endpoint is not None or not belongings.configs:
        return None
    if belongings.kept_config is not None:
        return Rest(BY_HAND, belongings.paused_at)
    if entry is not None and entry.gone_at is not None and entry.off_by in _BY_THE_GUARD and not entry.paused:
        return Rest(_BY_THE_GUARD[entry.off_by], entry.gone_at)
    if belongings.is_off:
        by_hand = entry is not None and entry.paused
        return Rest(
            BY_HAND if by_hand else f"its stack {belongings.stack} turned it off",
            entry.gone_at if entry else None,
        )
    return None


def known_entries(session: Session, note: Note | None = None) -> dict[str, RegisterEntry]:
    """Return the guard's register; empty without a guard, or if it cannot be read.

    A list of endpoints is useful without it; ``note`` receives what the list then lacks.
    """
    try:
        return guard_resources.entries(session)[0]
    except CredentialsError:
        return {}
    except PeagleError as error:
        if note is not None:
            note(
                f"{error.message}; without the guard's register no lease of `keep` is shown, and an endpoint "
                "that the guard turned off may be shown as Orphaned"
            )
        return {}


def known_entry(session: Session, name: str) -> RegisterEntry | None:
    """Return the guard's entry of one name; None without a guard or a permission."""
    try:
        return guard_resources.get(session, name)
    except CredentialsError:
        return None


def forget(session: Session, name: str) -> None:
    """Remove a deleted name from the guard's register, if there is a register."""
    with suppress(PeagleError):  # at worst the guard tries to start it and fails, since its config is gone
        guard_resources.forget(session, name)


def awake(session: Session, config_arn: str) -> None:
    """Remove the tags that `pause` wrote on a config; its endpoint is on again."""
    control.remove_tags(session, config_arn, (PAUSED, SCHEDULER_ROLE))


ATTEMPTS = 3


def lease_of(session: Session, name: str, created: datetime | None = None) -> datetime | None:
    """Return the lease's end for a paused endpoint, or the one ``created`` then."""
    entry = known_entry(session, name)
    if entry is None or not (entry.paused or (created is not None and entry.is_of(created))):
        return None
    return entry.keep_until


def prolonged(schedule: Mapping[str, Any], lease: datetime | None) -> dict[str, Any]:
    """Return a CreateSchedule request that starts no earlier than the lease ends."""
    start = schedule["StartDate"]
    if lease is None or lease <= start:
        return dict(schedule)
    return {**schedule, "StartDate": lease, "EndDate": schedule["EndDate"] + (lease - start)}


def unpaused(seen: RegisterEntry, ends: datetime | None) -> Mapping[str, Value]:
    """Return the register's changes for a resumed endpoint.

    ``ends`` is the start of its schedule. The guard replaces an entry that has another creation time; without
    a creation time the entry, and so the lease, is kept.
    """
    if not seen.paused:
        return {}
    if seen.keep_until is None or ends is None:
        return {"paused": False}
    return {"paused": False, "created_at": None, "expires_at": ends}


def note(
    session: Session,
    name: str,
    change: Callable[[RegisterEntry], Mapping[str, Value]],
    pacing: Pacing,
    report: Reporter,
    phase: Phase,
) -> None:
    """Write the guard's register; report a failure, but do not raise it."""
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
    report(phase, f"could not write the guard's register ({why}); the next sweep finds the change")
