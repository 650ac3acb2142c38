"""`peagle-sm pause`: what costs goes, what brings the endpoint back stays."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from peagle_sm.cli.confirm import confirmed, need_terminal
from peagle_sm.cli.endpoint_name import endpoint_argument
from peagle_sm.cli.lazy import Command
from peagle_sm.cli.options import global_options
from peagle_sm.cli.output import emit, say, to_json
from peagle_sm.cli.state import State

if TYPE_CHECKING:
    from peagle_sm.service import EndpointSummary


@click.command(cls=Command)
@endpoint_argument
@click.option("--yes", "-y", is_flag=True, help="Do not ask.")
@global_options
@click.pass_obj
def pause(state: State, name: str, yes: bool) -> None:
    """Turn an endpoint off, and keep what brings it back.

    The endpoint goes, and with it the instances' cost; config and model stay, for nothing. An endpoint of a
    stack is turned off by its stack, so that nothing drifts; the stack's key, alarms and dashboard stay, for
    a few USD a month. Its timetable does not wake it before `peagle-sm resume`. The command
    waits until AWS says that the endpoint is gone.
    """
    from peagle_sm.cli.connect import open_session
    from peagle_sm.cli.pause_text import render_paused, render_running
    from peagle_sm.cli.progress import follower
    from peagle_sm.cli.signals import termination_is_ctrl_c
    from peagle_sm.service import pause as turn_off

    need_terminal(state, yes, f"peagle-sm status {name}{state.flags}")
    session = open_session(state)
    with termination_is_ctrl_c(), follower(state) as follow:

        def ask(running: EndpointSummary) -> bool:
            follow.pause()
            if state.format == "json":
                click.echo(to_json({"pausing": running.to_dict()}, indent=None), err=True)
            elif not yes or state.format == "table":
                say(render_running(running) + "\n")
            return confirmed(state, f"Pause {name}? It stops answering.", yes)

        report = turn_off(name, session=session, confirm=ask, progress=follow)
    emit(
        state,
        table=lambda: render_paused(report, session.command_flags()),
        data=report.to_dict,
        names=[report.name],
    )
