"""`peagle-sm status`."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import click

from peagle_sm.cli.endpoint_name import endpoint_argument
from peagle_sm.cli.lazy import Command
from peagle_sm.cli.options import global_options
from peagle_sm.cli.output import emit, note, to_json
from peagle_sm.cli.state import State

if TYPE_CHECKING:
    from peagle_sm.aws.session.session import Session
    from peagle_sm.service import EndpointStatus

_LEAST_PAUSE_S = 1.0


@click.command(cls=Command)
@endpoint_argument
@click.option("--watch", "-w", is_flag=True, help="Show it again and again until Ctrl-C.")
@click.option("--verbose", "-v", is_flag=True, help="Also a long failure reason and the overrides, whole.")
@global_options
@click.pass_obj
def status(state: State, name: str, watch: bool, verbose: bool) -> None:
    """Show one endpoint: state, mode, config, cost, end of life.

    With --watch a terminal is redrawn; a pipe gets one line for each change, with --format json one object
    on a line. It ends at Ctrl-C, or when the endpoint no longer exists. To wait in a script, use
    `peagle-sm wait`. Without NAME it is the endpoint of ./peagle.yaml.
    """
    from peagle_sm.cli.connect import open_session
    from peagle_sm.cli.signals import until_ctrl_c
    from peagle_sm.service import status as read_status

    session = open_session(state)
    found = read_status(name, session=session)
    if not watch:
        _show(state, session, found, verbose)
        return
    with until_ctrl_c(state, follow=True):
        watch_status(state, session, found, verbose)


def _show(state: State, session: Session, found: EndpointStatus, verbose: bool = False) -> None:
    from peagle_sm.cli.deploy_result import is_stand_in, status_data
    from peagle_sm.cli.status_text import render_status

    emit(
        state,
        table=lambda: render_status(
            found, stand_in=is_stand_in(state, found), now=session.now(), verbose=verbose
        ),
        data=lambda: status_data(state, found),
        names=[found.summary.name],
    )


def watch_status(state: State, session: Session, found: EndpointStatus, verbose: bool = False) -> None:
    """Show the status and its changes until the endpoint is gone; Ctrl-C raises KeyboardInterrupt."""
    from peagle_sm.aws.session.errors import is_unsettled
    from peagle_sm.core.errors import NotFound, PeagleError
    from peagle_sm.service import Pacing
    from peagle_sm.service import status as read_status

    pause_s = max(_LEAST_PAUSE_S, Pacing.for_session(session).poll_s)
    redraw = sys.stdout.isatty() and state.format == "table" and state.environ.get("TERM") != "dumb"
    shown: str | None = None
    while True:
        if redraw:
            click.clear()
            _show(state, session, found, verbose)
            note(state, "\nCtrl-C ends the watch; the endpoint is not changed.")
        else:
            shown = _line_if_new(state, session, found, shown)
        state.sleep(pause_s)
        try:
            found = read_status(found.summary.name, session=session)
        except NotFound as error:
            note(state, f"note: {error.message}")
            return
        except PeagleError as error:
            if not is_unsettled(error):
                raise
            note(state, f"note: the status could not be read, trying again: {error.message}")


def _line_if_new(state: State, session: Session, found: EndpointStatus, shown: str | None) -> str:
    from peagle_sm.cli.deploy_result import status_data
    from peagle_sm.cli.status_text import change_line

    line = change_line(found)
    if line != shown:
        if state.format == "json":
            click.echo(to_json(status_data(state, found), indent=None))
        elif state.format == "quiet":
            click.echo(found.summary.name)
        else:
            click.echo(f"{session.now():%Y-%m-%d %H:%M:%S} UTC  {line}")
        sys.stdout.flush()
    return line
