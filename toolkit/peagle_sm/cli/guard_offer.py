"""Offer the guard where a command refuses because there is none."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, TypeVar

from peagle_sm.cli.confirm import confirmed
from peagle_sm.cli.output import note, say
from peagle_sm.cli.progress import Follower
from peagle_sm.cli.state import State
from peagle_sm.core.errors import GuardMissing

if TYPE_CHECKING:
    from peagle_sm.aws.session.session import Session
    from peagle_sm.service import Pacing
    from peagle_sm.service.guard.installation import InstallPlan

Result = TypeVar("Result")


def with_guard(
    state: State,
    session: Session,
    follow: Follower,
    yes: bool,
    action: Callable[[], Result],
    pacing: Pacing | None = None,
) -> Result:
    """Run ``action``; where it needs a guard and there is none, install one and run it again.

    The local SageMaker gets the guard without a question, since it costs nothing there. On AWS the guard is
    shown with its price, and installed after a yes on a terminal. --yes answers the command's own question
    and not this one, so a script is refused as before.

    Raises:
        GuardMissing: the guard was not installed; nothing was created.
    """
    try:
        return action()
    except GuardMissing as missing:
        absent = missing.details.get("found_status") is None
        if not absent or not (session.is_local or (not yes and state.stdin_is_tty())):
            raise
        if not _installed(state, session, follow, pacing):
            raise
    return action()


def _installed(state: State, session: Session, follow: Follower, pacing: Pacing | None) -> bool:
    from peagle_sm.cli.guard_text import render_install_plan
    from peagle_sm.service.guard import installation as guard

    def ask(plan: InstallPlan) -> bool:
        follow.pause()
        if plan.local:
            note(state, "note: no guard is installed; installing it (the local SageMaker costs nothing)")
            return True
        say(
            f"No guard is installed in {plan.region}. It turns idle endpoints off, and is needed once in an "
            f"account and region:\n\n{render_install_plan(plan)}\n"
        )
        return confirmed(state, "Install the guard now?", False)

    return guard.install(session, confirm=ask, progress=follow, pacing=pacing) is not None
