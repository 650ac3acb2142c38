"""`peagle-sm status`."""

from __future__ import annotations

import click

from peagle_sm.cli.lazy import Command
from peagle_sm.cli.options import global_options
from peagle_sm.cli.output import emit
from peagle_sm.cli.state import State


@click.command(cls=Command)
@click.argument("name")
@global_options
@click.pass_obj
def status(state: State, name: str) -> None:
    """Show one endpoint: state, mode, config, cost, end of life."""
    from peagle_sm.cli.connect import open_session
    from peagle_sm.cli.deploy_result import is_stand_in, status_data
    from peagle_sm.cli.status_text import render_status
    from peagle_sm.service import status as read_status

    found = read_status(name, session=open_session(state))
    emit(
        state,
        table=lambda: render_status(found, stand_in=is_stand_in(state, found)),
        data=lambda: status_data(state, found),
        names=[found.summary.name],
    )
