"""`peagle-sm local down`."""

from __future__ import annotations

from dataclasses import asdict

import click

from peagle_sm.cli.lazy import Command
from peagle_sm.cli.local_options import chosen_port, need_local_extra, port_option
from peagle_sm.cli.options import global_options
from peagle_sm.cli.output import emit
from peagle_sm.cli.state import State
from peagle_sm.cli.table import render_table


@click.command(cls=Command)
@port_option
@global_options
@click.pass_obj
def down(state: State, port: int | None) -> None:
    """Stop it, and end every process that it started.

    Without a port every server of yours on this machine is stopped, with all its endpoints. Each process
    is looked for again afterwards, so that what is listed as ended is proven gone.
    """
    need_local_extra()
    from peagle_sm.aws.session.local_server import down as stop

    ended = stop(chosen_port(state, port))
    rows = [(str(each.port), each.kind, each.name, str(each.pid), each.how) for each in ended]
    emit(
        state,
        table=lambda: (
            render_table(("port", "kind", "name", "pid", "ended"), rows, right=("port", "pid"))
            if rows
            else "nothing was running"
        ),
        data=lambda: {"ended": [asdict(each) for each in ended]},
        names=[str(each.pid) for each in ended],
    )
