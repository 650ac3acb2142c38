"""`peagle-sm local up`."""

from __future__ import annotations

import logging
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from peagle_sm.cli.lazy import Command
from peagle_sm.cli.local_options import need_local_extra, render_local
from peagle_sm.cli.options import global_options
from peagle_sm.cli.output import emit, note
from peagle_sm.cli.state import State

if TYPE_CHECKING:
    from peagle_sm.aws.session.local_server import LocalStatus

_PYTHON = "PEAGLE_SM_ENGINE_PYTHON"


@click.command(cls=Command)
@click.option(
    "--port", type=click.IntRange(1, 65535), help="Port on the loopback address.  [default: a free one]"
)
@click.option("--detach", "-d", is_flag=True, help="Return when it is ready, and leave it running.")
@click.option(
    "--engine-python",
    type=click.Path(dir_okay=False, path_type=Path),
    help=f"Python of an engine environment that is there already.  [env: {_PYTHON}]",
)
@global_options
@click.pass_obj
def up(state: State, port: int | None, detach: bool, engine_python: Path | None) -> None:
    """Start the local SageMaker.

    In the foreground it says what it runs until Ctrl-C, which ends everything. With --detach it prints its
    status when it is ready and stays; `peagle-sm local down` ends it. One that runs already is used; --port
    starts a second one. The first start builds the engine's environment from the shipped lock (about
    2.5 GB, once).
    """
    need_local_extra()
    from peagle_sm.aws.session.local_server import ensure_engine, refuse_taken, servers
    from peagle_sm.aws.session.local_server import up as start

    def say(line: str) -> None:
        note(state, line)

    def ready(status: LocalStatus) -> None:
        _print(state, status)
        others = _others_note(status.port)
        if others:
            say(others)
        if not detach:
            say("Ctrl-C ends it, with every engine that it runs.")

    named = engine_python or (Path(state.environ[_PYTHON]) if state.environ.get(_PYTHON) else None)
    at = port if port is not None else state.local_port
    if at is not None:
        refuse_taken(at)  # before minutes are spent on the environment
    else:
        running = servers()
        if running and not detach:
            refuse_taken(running[0].port)
        if running:
            note(state, f"a local SageMaker runs already, at port {running[0].port}: using it")
            _print(state, running[0])
            return
    if not detach:
        _show_log(state)
    start(
        at,
        detach=detach,
        progress=say,
        engine_python=named or ensure_engine(say),
        on_ready=ready,
    )


def _print(state: State, status: LocalStatus) -> None:
    emit(
        state,
        table=lambda: render_local(status) + f"\n\nuse it:  peagle-sm list --local-port {status.port}",
        data=status.to_dict,
        names=[status.endpoint_url],
    )
    sys.stdout.flush()


def _others_note(port: int) -> str | None:
    from peagle_sm.aws.session.local_server import known_servers

    others = [known for known in known_servers() if known.port != port and known.server.alive]
    if not others:
        return None
    named = " and ".join(f"port {known.port} (process {known.server.pid})" for known in others)
    return (
        f"note: another local SageMaker runs already, at {named}; "
        f"from now on --local alone is refused: write --local-port {port} for this one"
    )


class _Notes(logging.Handler):
    """Hands the server's own log to the terminal that it runs in."""

    def __init__(self, state: State) -> None:
        super().__init__(logging.INFO)
        self._state = state

    def emit(self, record: logging.LogRecord) -> None:
        """Print one record as a note."""
        note(self._state, record.getMessage())


def _show_log(state: State) -> None:
    from peagle_sm.aws.session.local_server import LOGGER

    logger = logging.getLogger(LOGGER)
    logger.setLevel(logging.INFO)
    logger.addHandler(_Notes(state))
