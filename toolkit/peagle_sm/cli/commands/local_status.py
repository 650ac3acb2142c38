"""`peagle-sm local status`."""

from __future__ import annotations

import click

from peagle_sm.cli.lazy import Command
from peagle_sm.cli.local_options import chosen_port, need_local_extra, port_option, render_local
from peagle_sm.cli.options import global_options
from peagle_sm.cli.output import emit
from peagle_sm.cli.state import State


@click.command(cls=Command)
@port_option
@global_options
@click.pass_obj
def status(state: State, port: int | None) -> None:
    """Show where it listens, what a script needs to use it, and its engines.

    With --format json: one object, as `local up` prints it; a list of them when several run and no port is
    given. Exit code 4 when none runs.
    """
    need_local_extra()
    from peagle_sm.aws.session.local_server import find_server, servers

    wanted = chosen_port(state, port)
    found = servers(wanted)
    if len(found) < 2:
        found = [find_server(wanted)]  # it has the words for "none runs"
    emit(
        state,
        table=lambda: "\n\n".join(render_local(each) for each in found),
        data=lambda: found[0].to_dict() if len(found) == 1 else [each.to_dict() for each in found],
        names=[each.endpoint_url for each in found],
    )
