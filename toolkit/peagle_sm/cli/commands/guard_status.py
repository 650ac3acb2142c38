"""`peagle-sm guard status`."""

from __future__ import annotations

import click

from peagle_sm.cli.lazy import Command
from peagle_sm.cli.options import global_options
from peagle_sm.cli.output import emit
from peagle_sm.cli.state import State


@click.command(cls=Command)
@global_options
@click.pass_obj
def status(state: State) -> None:
    """Show its version, its last sweep, its alarms and the endpoints it knows.

    Exit code 4 when no guard is installed in this region.
    """
    from peagle_sm.cli.connect import open_session
    from peagle_sm.cli.guard_text import render_guard_status
    from peagle_sm.service.guard.status import guard_status

    session = open_session(state)
    found = guard_status(session)
    emit(
        state,
        table=lambda: render_guard_status(found, session.now(), session.command_flags()),
        data=found.to_dict,
        names=[row.name for row in found.endpoints],
    )
