"""Whether the guard stands: without it nobody turns an idle endpoint off before its lifetime is over."""

from __future__ import annotations

from contextlib import suppress

from peagle_sm.aws.control.lifetime import Lifetime
from peagle_sm.aws.control.stacks import stack_status
from peagle_sm.aws.session.session import Session
from peagle_sm.core.errors import CredentialsError, GuardMissing
from peagle_sm.core.guard.names import GUARD_STACK, scheduler_role

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
