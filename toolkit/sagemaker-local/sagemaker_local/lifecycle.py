"""Starting, finding and ending local servers, from any process: `peagle-sm local up | status | down`."""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Callable
from pathlib import Path
from time import sleep

from sagemaker_local.errors import EngineError, InvalidRequest, NotFound
from sagemaker_local.process import client, ending, spawn, state
from sagemaker_local.process.client import (
    add_fault,
    clear_faults,
    endpoint_logs,
    endpoint_metrics,
    faults,
    interrupt_training,
)
from sagemaker_local.process.ending import Ended
from sagemaker_local.process.status import LocalStatus

__all__ = [
    "Ended",
    "LocalStatus",
    "add_fault",
    "advance_clock",
    "clear_faults",
    "down",
    "endpoint_logs",
    "endpoint_metrics",
    "faults",
    "find_server",
    "interrupt_training",
    "killed_servers",
    "refuse_taken",
    "status",
    "up",
]

Progress = Callable[[str], None]

_ADVANCE_STEP_S = 1800.0
_LONGEST_ADVANCE_S = 366 * 86_400.0

# A process that was killed closes its connections a moment before it is gone.
_LAST_BREATH_S = 0.5


def up(
    port: int | None = None,
    *,
    detach: bool = True,
    progress: Progress = lambda _: None,
    engine_python: Path | None = None,
    on_ready: Callable[[LocalStatus], None] = lambda _: None,
) -> LocalStatus:
    """Start a server, wait until it answers, and return its status.

    Args:
        port: where to listen on loopback; a free port when None.
        detach: leave it running as a process of its own. Otherwise it runs in this one, ``on_ready``
            is called once it answers, and this returns after SIGINT, SIGTERM or ``down``.
        progress: called with a sentence for people at each step.
        engine_python: Python of a ready engine environment; else ``PEAGLE_SM_ENGINE_PYTHON``, else the
            environment is built at the first CreateEndpoint.
        on_ready: see ``detach``.

    Raises:
        EngineError: the port is taken, or the server ended before it answered.
        InvalidRequest: the port is not one, or the engine's Python does not exist.
    """
    if port is not None and not 1 <= port <= 65_535:
        raise InvalidRequest(f"port: found {port}; allowed: 1 to 65535")
    python = _engine_python(engine_python)
    if port is not None:
        refuse_taken(port)
    if detach:
        started = spawn.detached(port, python, progress)
        on_ready(started)
        return started
    return _foreground(port or spawn.free_port(), python, on_ready)


def status(port: int | None = None) -> list[LocalStatus]:
    """Return the status of the running servers, or of the one at a port; empty if none runs."""
    chosen = (known for known in state.read_all() if port is None or known.port == port)
    answers = (_answer(known) for known in chosen if known.server.alive)
    return [answer for answer in answers if answer is not None]


def find_server(port: int | None = None) -> LocalStatus:
    """Find the server at a port, or the only one that runs.

    Raises:
        NotFound: no server runs (at that port).
        InvalidRequest: several run and no port was given.
        EngineError: it runs but does not answer.
    """
    running = [known for known in state.read_all() if known.server.alive]
    ports = [known.port for known in running]
    if port is not None and port not in ports:
        others = f"; ports in use: {', '.join(map(str, ports))}" if ports else ""
        raise NotFound(
            f"no local SageMaker is running on port {port}{others}",
            next_step=f"start it: peagle-sm local up --detach --port {port}",
        )
    if not ports:
        raise NotFound(
            " ".join(["no local SageMaker is running.", *killed_servers()]).removesuffix("."),
            next_step="start one: peagle-sm local up --detach",
        )
    if port is None and len(ports) > 1:
        raise InvalidRequest(
            f"{len(ports)} local SageMakers run, at ports {', '.join(map(str, ports))}",
            next_step=f"choose one: --local-port {ports[0]}",
        )
    answer = _answer(running[ports.index(port) if port is not None else 0])
    if answer is None:
        raise NotFound(
            "the local SageMaker has just ended", next_step="start one: peagle-sm local up --detach"
        )
    return answer


def killed_servers() -> list[str]:
    """Describe, in a sentence each, the servers that ended without `local down`, and where their logs are."""
    sentences = []
    for known in state.read_all():
        if not known.server.alive:
            names = ", ".join(sorted({engine.name for engine in known.engines})) or "nothing"
            sentences.append(
                f"The server at port {known.port} (process {known.server.pid}) ended unexpectedly; "
                f"it served: {names}; its log: {known.log_path}."
            )
    return sentences


def down(port: int | None = None, *, progress: Progress = lambda _: None) -> list[Ended]:
    """End the server at a port, or every server, with every process that it started.

    A server that was killed is known by its state file, and what it left behind is ended as well.
    Ended when this returns means proven: the processes are gone.

    Raises:
        EngineError: a process would not end, even when killed.
    """
    ended: list[Ended] = []
    for known in list(state.read_all()):
        if port is None or known.port == port:
            progress(f"ending the server at port {known.port}")
            ended += ending.end_server(known)
    return ended


def advance_clock(
    port: int, seconds: float, progress: Callable[[float], None] = lambda advanced_s: None
) -> str:
    """Move a server's clock forward; return its new time in ISO 8601.

    Every schedule that comes due on the way runs, so hours can take minutes. ``progress`` gets the seconds of
    the local clock that have passed, every half an hour of them.

    Raises:
        InvalidRequest: the clock only goes forward, by at most a year at a time.
        EngineError: the server does not answer.
    """
    if not 0 <= seconds <= _LONGEST_ADVANCE_S:
        raise InvalidRequest(
            f"the local clock cannot be moved by {seconds:g} s: it only goes forward, by at most a year",
            next_step="peagle-sm local clock advance 2h",
        )
    advanced = 0.0
    while True:
        step = min(_ADVANCE_STEP_S, seconds - advanced)
        now, advanced = client.advance_clock(port, step), advanced + step
        progress(advanced)
        if advanced >= seconds:
            return now


def _answer(known: state.ServerState) -> LocalStatus | None:
    """Fetch a server's status; None if it is just ending."""
    try:
        return client.status(known.port)
    except EngineError:
        sleep(_LAST_BREATH_S)
        if known.server.alive and state.read(known.port) is not None:
            raise
        return None


def _foreground(port: int, python: Path | None, on_ready: Callable[[LocalStatus], None]) -> LocalStatus:
    from sagemaker_local.assembly import Options
    from sagemaker_local.server import run

    last: list[LocalStatus] = []

    def ready(answering: LocalStatus) -> None:
        last.append(answering)
        on_ready(answering)

    kept = logging.FileHandler(state.log_path(port), mode="w")
    kept.setFormatter(logging.Formatter(state.LOG_FORMAT))
    logger = logging.getLogger("sagemaker_local")
    logger.setLevel(logging.INFO)
    logger.addHandler(kept)
    try:
        asyncio.run(run(Options(port=port, engine_python=python, embedded=True), ready))
    except OSError as error:
        raise EngineError(
            f"the local SageMaker cannot listen on port {port}: {error.strerror}",
            next_step="choose another port, or none for a free one",
        ) from error
    finally:
        logger.removeHandler(kept)
        kept.close()
    return last[-1]


def _engine_python(given: Path | None) -> Path | None:
    named = os.environ.get("PEAGLE_SM_ENGINE_PYTHON")
    python = given or (Path(named) if named else None)
    if python is not None and not python.is_file():
        raise InvalidRequest(
            f"no Python found at {python}",
            next_step="give the Python of an existing engine environment, or omit it to build one",
        )
    return python.absolute() if python else None


def refuse_taken(port: int) -> None:
    """Refuse a port that a server, or any other program, listens on.

    Raises:
        EngineError: with what has the port.
    """
    known = state.read(port)
    if known is not None and known.server.alive:
        raise EngineError(
            f"a local SageMaker already runs at port {port} (process {known.server.pid})",
            next_step=f"use it, or end it: peagle-sm local down --local-port {port}",
        )
    if not spawn.is_free(port):
        raise EngineError(
            f"port {port} is used by another program",
            next_step="choose another port, or none for a free one",
        )
