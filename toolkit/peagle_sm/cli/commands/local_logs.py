"""`peagle-sm local logs`: the server's own log, or an endpoint's engine."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from pathlib import Path

import click

from peagle_sm.cli.lazy import Command
from peagle_sm.cli.local_options import chosen_port, need_local_extra, port_option
from peagle_sm.cli.options import global_options
from peagle_sm.cli.output import to_json
from peagle_sm.cli.state import State

POLL_S = 0.25


@click.command(cls=Command)
@click.argument("name", required=False)
@click.option(
    "--follow", "-f", is_flag=True, help="Go on printing new lines until Ctrl-C (the server's log)."
)
@click.option(
    "--tail",
    type=click.IntRange(1, 100000),
    default=100,
    show_default=True,
    help="Begin with the last N lines.",
)
@port_option
@global_options
@click.pass_obj
def logs(state: State, name: str | None, follow: bool, tail: int, port: int | None) -> None:
    """Print what the server wrote, or an endpoint's engine.

    Without NAME: the server's own log. With NAME: the last lines of that endpoint's engine; with --local,
    `peagle-sm logs` reads them as CloudWatch has them, and can follow.
    """
    need_local_extra()
    from peagle_sm.aws.session.local_server import endpoint_logs, find_server
    from peagle_sm.cli.signals import until_ctrl_c

    server = find_server(chosen_port(state, port))
    lines: Iterable[str]
    if name is not None:
        if follow:
            raise click.UsageError(f"--follow reads the server's log; use: peagle-sm logs {name} -f --local")
        lines = endpoint_logs(server.port, name, tail)
    else:
        lines = read_file(_existing(Path(server.log_path)), tail, follow, state)
    with until_ctrl_c(state, follow):
        for line in lines:
            click.echo(to_json({"message": line}, indent=None) if state.format == "json" else line)


def _existing(path: Path) -> Path:
    if path.is_file():
        return path
    from peagle_sm.core.errors import NotFound

    raise NotFound(
        f"there is no log at {path}: a server in the foreground writes to its terminal",
        next_step="look there, or start it with --detach; an endpoint's engine: peagle-sm local logs NAME",
    )


def read_file(path: Path, tail: int, follow: bool, state: State) -> Iterator[str]:
    """The last `tail` lines of a file, then, with `follow`, whatever is added to it."""
    with path.open(encoding="utf-8", errors="replace") as stream:
        yield from (line.rstrip("\n") for line in deque(stream, maxlen=tail))
        part = ""
        while follow:
            part += stream.readline()
            if part.endswith("\n"):
                yield part.rstrip("\n")
                part = ""
            else:
                state.sleep(POLL_S)
