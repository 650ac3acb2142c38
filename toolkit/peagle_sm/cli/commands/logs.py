"""`peagle-sm logs`."""

from __future__ import annotations

import click

from peagle_sm.cli.endpoint_name import endpoint_argument
from peagle_sm.cli.lazy import Command
from peagle_sm.cli.options import global_options
from peagle_sm.cli.output import to_json
from peagle_sm.cli.state import State


@click.command(cls=Command)
@endpoint_argument
@click.option("--follow", "-f", is_flag=True, help="Go on printing new lines until Ctrl-C.")
@click.option(
    "--tail",
    type=click.IntRange(1, 10000),
    default=100,
    show_default=True,
    help="Begin with the last N lines.",
)
@global_options
@click.pass_obj
def logs(state: State, name: str, follow: bool, tail: int) -> None:
    """Print what the engine behind an endpoint wrote.

    With --format json each line is a JSON object of its own; with quiet, the message alone.
    """
    from peagle_sm.cli.connect import open_session
    from peagle_sm.cli.signals import until_ctrl_c
    from peagle_sm.service import logs as read_logs

    with until_ctrl_c(state, follow):
        for line in read_logs(name, session=open_session(state), follow=follow, limit=tail):
            moment = line.timestamp.isoformat(timespec="milliseconds")
            if state.format == "json":
                fields = {"timestamp": moment, "stream": line.stream, "message": line.message}
                click.echo(to_json(fields, indent=None))
            else:
                click.echo(line.message if state.format == "quiet" else f"{moment}  {line.message}")
