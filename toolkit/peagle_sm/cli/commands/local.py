"""`peagle-sm local`: start, show and stop the SageMaker on this machine."""

from __future__ import annotations

import logging
import sys
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from peagle_sm.cli.arguments import need_local_extra
from peagle_sm.cli.base import Command, Entry, LazyGroup, State, global_options
from peagle_sm.cli.console import emit, note, to_json
from peagle_sm.cli.endpoint_status import engine_words
from peagle_sm.cli.terminal import render_fields, render_table

if TYPE_CHECKING:
    from peagle_sm.aws.session.local_server import LocalStatus


ENTRIES = (
    Entry("up", "peagle_sm.cli.commands.local:up", "Start the local SageMaker."),
    Entry(
        "status",
        "peagle_sm.cli.commands.local:status",
        "Show where it listens, what a script needs to use it, and its engines.",
    ),
    Entry(
        "logs", "peagle_sm.cli.commands.local:logs", "Print what the server wrote, or an endpoint's engine."
    ),
    Entry("clock", "peagle_sm.cli.commands.local_faults:clock", "Move its clock forward."),
    Entry(
        "fault",
        "peagle_sm.cli.commands.local_faults:fault",
        "Make answers go wrong on demand, to test a client.",
    ),
    Entry("down", "peagle_sm.cli.commands.local:down", "Stop it, and end every process that it started."),
)


@click.group(cls=LazyGroup, entries=ENTRIES)
@global_options
def local() -> None:
    """Run a SageMaker on this machine.

    It speaks the AWS API on one port of the loopback address, and behind each endpoint it runs the real vLLM
    on small stand-in weights. Needs the extra `local`. Nothing survives `down`.
    """


F = TypeVar("F", bound=Callable[..., Any])


def port_option(function: F) -> F:
    """`--port`, by which two servers are told apart."""
    return click.option(
        "--port",
        type=click.IntRange(1, 65535),
        help="Which server, when several run.",
    )(function)


def chosen_port(state: State, port: int | None) -> int | None:
    """`--port`, else the global `--local-port` or its environment variable."""
    return port if port is not None else state.local_port


def render_local(status: LocalStatus) -> str:
    """One local server: address, what a script needs, engines."""
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
    component = f", component {engine['component']}" if engine.get("component") else ""
    first = f"{engine['endpoint']}{component}: {engine.get('status') or 'unknown'}, {engine_words(engine)}"
    return "\n".join([first, *(f"  {line}" for line in engine.get("overrides") or ())])


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
    from peagle_sm.cli.console import until_ctrl_c

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


_COMMON = ("id", "kind", "endpoint", "operation", "times", "probability", "seed", "struck", "left")


def render_faults(faults: Sequence[Mapping[str, Any]]) -> str:
    """One row a fault, oldest first: the one that strikes before the others."""
    if not faults:
        return "no fault is set"
    headers = ("id", "kind", "endpoint", "operation", "options", "struck", "left")
    return render_table(headers, [_row(fault) for fault in faults], right=("struck", "left"))


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
