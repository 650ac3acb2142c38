"""`peagle-sm guard uninstall`: refused while it is needed, unless that is spelled out."""

from __future__ import annotations

from collections.abc import Sequence

import click

from peagle_sm.cli.confirm import confirmed
from peagle_sm.cli.lazy import Command
from peagle_sm.cli.options import global_options
from peagle_sm.cli.output import emit, note
from peagle_sm.cli.state import State


@click.command(cls=Command)
@click.option("--yes", "-y", is_flag=True, help="Do not ask.")
@click.option(
    "--yes-leave-endpoints-unguarded",
    "leave_unguarded",
    is_flag=True,
    help="Also while endpoints run: nobody turns them off then, and they are billed until you delete them.",
)
@global_options
@click.pass_obj
def uninstall(state: State, yes: bool, leave_unguarded: bool) -> None:
    """Remove the guard from this region.

    Its stack goes, and the bucket that its package lay in. Refused while endpoints of peagle-sm run, and
    while endpoint stacks import from it.
    """
    from peagle_sm.cli.confirm import need_terminal
    from peagle_sm.cli.connect import open_session
    from peagle_sm.cli.guard_text import render_uninstalled
    from peagle_sm.cli.progress import follower
    from peagle_sm.service.guard import installation as guard

    need_terminal(state, yes, f"peagle-sm guard status{state.flags}")
    session = open_session(state)
    with follower(state) as follow:

        def ask(unguarded: Sequence[str]) -> bool:
            follow.pause()
            if unguarded:
                note(state, f"These run on without a guard and without a limit: {', '.join(unguarded)}.")
            return confirmed(state, f"Remove the guard from {session.region}?", yes)

        report = guard.uninstall(session, leave_unguarded=leave_unguarded, confirm=ask, progress=follow)
    if report is None:
        from peagle_sm.core.errors import Declined

        raise Declined("Nothing was changed: it was not confirmed.", next_step="Run it again and confirm.")
    emit(
        state,
        table=lambda: render_uninstalled(report),
        data=report.to_dict,
        names=[report.to_dict()["stack"]],
    )
