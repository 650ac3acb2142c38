"""`peagle-sm local`: start, inspect and stop the SageMaker on this machine."""

from __future__ import annotations

import logging
import sys
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from peagle_sm.cli.base import Command, Entry, LazyGroup, State, global_options
from peagle_sm.cli.console import emit, note, to_json, until_ctrl_c
from peagle_sm.cli.terminal import render_fields, render_table
from peagle_sm.core.errors import NotFound

if TYPE_CHECKING:
    from peagle_sm.aws.session.local_server import LocalStatus


ENTRIES = (
    Entry("up", "commands.local:up", "Start the local SageMaker."),
    Entry(
        "status",
        "commands.local:status",
        "Show the local server's URL, role, images, artifacts and engines.",
    ),
    Entry("logs", "commands.local:logs", "Print the log of the local server, or of an engine."),
    Entry("clock", "commands.local_faults:clock", "Move the local server's clock forward."),
    Entry("fault", "commands.local_faults:fault", "Inject faults into answers, to test a client."),
    Entry(
        "interrupt",
        "commands.local_faults:interrupt",
        "Take a training job's Spot instances away.",
    ),
    Entry(
        "down",
        "commands.local:down",
        "Stop the local server and every process that it started.",
    ),
)


@click.group(cls=LazyGroup, entries=ENTRIES)
@global_options
def local() -> None:
    """Run a local SageMaker on this machine.

    It serves the AWS API on one port of the loopback address. Behind each endpoint it runs the real vLLM on
    this machine's CPU, with SmolLM2-135M-Instruct or your own model. Endpoints of JumpStart's models have
    small stand-in weights, which continue Python code. Needs the package sagemaker-local. `peagle-sm local
    down` deletes everything in it.
    """


def render_local(status: LocalStatus) -> str:
    """Render one local server: its URL, the role and images for scripts, its engines."""

    data = status.to_dict()
    fields = [
        ("endpoint URL", str(data["endpoint_url"])),
        ("region", f"{data['region']}, account {data.get('account', 'unknown')}"),
        ("role", str(data["role_arn"])),
        ("images", "\n".join(f"{name}: {uri}" for name, uri in data["image_uris"].items())),
        ("artifacts", "\n".join(f"{name}: {uri}" for name, uri in data["artifacts"].items())),
        ("weights", status.weights),
        ("process", f"{data.get('pid', 'unknown')}, log {data.get('log_path', 'unknown')}"),
        ("engines", "\n".join(_engine(each) for each in data.get("engines") or ()) or "none"),
    ]
    if status.faults:
        fields.append(("faults", render_faults(status.faults)))
    return render_fields(fields)


def _engine(engine: Mapping[str, Any]) -> str:
    from peagle_sm.service.inventory.endpoint_status import engine_words

    component = f", component {engine['component']}" if engine.get("component") else ""
    first = f"{engine['endpoint']}{component}: {engine.get('status') or 'unknown'}, {engine_words(engine)}"
    return "\n".join([first, *(f"  {line}" for line in engine.get("overrides") or ())])


@click.command(cls=Command)
@click.option(
    "--port", type=click.IntRange(1, 65535), help="Port on the loopback address.  [default: a free one]"
)
@click.option("--detach", "-d", is_flag=True, help="Run in the background; return when the server is ready.")
@global_options
@click.pass_obj
def up(state: State, port: int | None, detach: bool) -> None:
    """Start the local SageMaker.

    In the foreground, the server prints its log until Ctrl-C, which stops it and all its engines; a pipe
    behind it ends with it. With --detach, it runs in the background, and the command and its pipe end when
    it is ready; `peagle-sm local down` stops it. If a server runs already, --detach
    prints its status; --port starts a second one. The first start builds the engine environment from the
    shipped lock (about 2.5 GB, once). To use an existing one, set PEAGLE_SM_ENGINE_PYTHON to its Python.
    """
    from peagle_sm.aws.session.local_server import ensure_engine, refuse_taken
    from peagle_sm.aws.session.local_server import status as servers
    from peagle_sm.aws.session.local_server import up as start

    def say(line: str) -> None:
        note(state, line)

    def ready(status: LocalStatus) -> None:
        _print(state, status)
        others = _others_note(status.port)
        if others:
            say(others)
        if not detach:
            say("Ctrl-C stops it and all its engines.")

    python = state.environ.get("PEAGLE_SM_ENGINE_PYTHON")
    at = port if port is not None else state.local_port
    if at is not None:
        refuse_taken(at)  # before the environment is built, which takes minutes
    else:
        running = servers()
        if running and not detach:
            refuse_taken(running[0].port)
        if running:
            note(state, f"a local SageMaker is already running at port {running[0].port}: using it")
            _print(state, running[0])
            return
    if not detach:
        _show_log(state)
    start(
        at,
        detach=detach,
        progress=say,
        engine_python=Path(python) if python else ensure_engine(say),
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
        f"note: another local SageMaker is already running at {named}; "
        f"--local alone is now ambiguous: use --local-port {port} for this one"
    )


class _Notes(logging.Handler):
    """Log handler that prints the server's log on its terminal."""

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


@click.command(cls=Command)
@global_options
@click.pass_obj
def status(state: State) -> None:
    """Show the local server's URL, role, images, artifacts and engines.

    With --format json, prints one object, as `local up` does; a list of objects if several servers run and
    --local-port is not given. Exit code 4 if no server runs.
    """
    from peagle_sm.aws.session.local_server import find_server
    from peagle_sm.aws.session.local_server import status as servers

    running = servers(state.local_port)
    if len(running) < 2:
        running = [find_server(state.local_port)]  # raises NotFound if none runs
    emit(
        state,
        table=lambda: "\n\n".join(render_local(each) for each in running),
        data=lambda: running[0].to_dict() if len(running) == 1 else [each.to_dict() for each in running],
        names=[each.endpoint_url for each in running],
    )


POLL_S = 0.25


@click.command(cls=Command)
@click.argument("name", required=False)
@click.option("--follow", "-f", is_flag=True, help="Keep printing new lines until Ctrl-C (server log only).")
@click.option("--tail", type=click.IntRange(1, 100000), default=100, help="Start with the last N lines.")
@global_options
@click.pass_obj
def logs(state: State, name: str | None, follow: bool, tail: int) -> None:
    """Print the log of the local server, or of an engine.

    Without NAME, prints the server's log; with NAME, the last lines of that endpoint's engine. To follow an
    engine's log, use `peagle-sm logs NAME --follow --local`.
    """
    from peagle_sm.aws.session.local_server import endpoint_logs, find_server

    server = find_server(state.local_port)
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
    raise NotFound(
        f"there is no log at {path}: a server in the foreground writes its log to its terminal",
        next_step="read it there, or start it with --detach; for an engine: peagle-sm local logs NAME",
    )


def read_file(path: Path, tail: int, follow: bool, state: State) -> Iterator[str]:
    """Yield the last `tail` lines of a file; with `follow`, then each new line."""
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


@click.command(cls=Command)
@global_options
@click.pass_obj
def down(state: State) -> None:
    """Stop the local server and every process that it started.

    Without --local-port, stops all your local servers on this machine, with all their endpoints. The command
    checks that each process has ended before it lists it.
    """
    from peagle_sm.aws.session.local_server import down as stop

    ended = stop(state.local_port)
    rows = [(str(each.port), each.kind, each.name, str(each.pid), each.how) for each in ended]
    emit(
        state,
        table=lambda: (
            render_table(("port", "kind", "name", "pid", "ended"), rows, right=("port", "pid"))
            if rows
            else "no local server was running"
        ),
        data=lambda: {"ended": [asdict(each) for each in ended]},
        names=[str(each.pid) for each in ended],
    )


_COMMON = ("id", "kind", "endpoint", "operation", "times", "probability", "seed", "struck", "left")


def render_faults(faults: Sequence[Mapping[str, Any]]) -> str:
    """Render one row for each fault, in the order in which they apply: oldest first."""
    if not faults:
        return "no fault is set"
    headers = ("id", "kind", "endpoint", "operation", "options", "injected", "remaining")
    return render_table(headers, [_row(fault) for fault in faults], right=("injected", "remaining"))


def _row(fault: Mapping[str, Any]) -> tuple[str, ...]:
    left = "∞" if fault["left"] is None else str(fault["left"])
    operation = fault["operation"] or "all"
    return (
        fault["id"],
        fault["kind"],
        fault["endpoint"],
        operation,
        _options(fault),
        str(fault["struck"]),
        left,
    )


def _options(fault: Mapping[str, Any]) -> str:
    own = [f"{name}={_shown(value)}" for name, value in fault.items() if name not in _COMMON]
    if fault["probability"] != 1:
        own.append(f"probability={fault['probability']:g}")
    if fault["seed"]:
        own.append(f"seed={fault['seed']}")
    return " ".join(own) or "-"


def _shown(value: Any) -> str:
    if isinstance(value, str) and " " in value:
        return f"'{value}'"
    return (
        f"{value:g}"
        if isinstance(value, float)
        else str(value).lower()
        if isinstance(value, bool)
        else str(value)
    )
