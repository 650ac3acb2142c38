"""Ends a server with all its processes, and verifies that none is left."""

from __future__ import annotations

import os
import shutil
import signal
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict, dataclass
from time import monotonic, sleep
from typing import Any, Literal

import psutil

from sagemaker_local.errors import EngineError
from sagemaker_local.process import client, state
from sagemaker_local.process.state import Process, ServerState, group_members

# Seconds for a server to end its engines in good order, then for SIGTERM, then for SIGKILL.
_ASKED_S = 30.0
_TERMINATED_S = 5.0
_KILLED_S = 5.0


@dataclass(frozen=True)
class Ended:
    """One ended process, and how it ended."""

    kind: Literal["server", "engine"]
    name: str
    port: int
    pid: int
    how: Literal["shut down", "terminated", "killed", "already gone"]

    def to_dict(self) -> dict[str, Any]:
        """Return everything as plain JSON values."""
        return asdict(self)


def end_server(known: ServerState) -> list[Ended]:
    """End one server with its engines; EngineError when a process survives being killed."""
    latest = state.read(known.port) or known
    engines = [engine for engine in latest.engines if group_members(engine)]
    how = _end(latest)
    ended = [Ended("server", "local SageMaker", known.port, latest.server.pid, how)]
    newest = state.read(known.port)  # an engine may have been started in the meantime
    engines += [e for e in (newest.engines if newest else ()) if e not in engines and group_members(e)]
    for engine in engines:
        left = bool(group_members(engine))
        _end_group(engine)
        ended.append(Ended("engine", engine.name, known.port, engine.pid, "killed" if left else "shut down"))
    state.forget(known.port)
    shutil.rmtree(state.work_dir(known.port), ignore_errors=True)
    return ended


def _end(known: ServerState) -> Literal["shut down", "terminated", "killed", "already gone"]:
    server, port = known.server, known.port
    if not server.alive:
        return "already gone"
    with suppress(EngineError):
        client.shut_down(port)
        if _until(lambda: _has_left(known), _ASKED_S):
            return "shut down"
    _signal(server, signal.SIGTERM)
    if _until(lambda: not server.alive, _TERMINATED_S):
        return "terminated"
    _signal(server, signal.SIGKILL)
    if _until(lambda: not server.alive, _KILLED_S):
        return "killed"
    raise EngineError(
        f"the server at port {port} (process {server.pid}) did not end", next_step=f"kill -9 {server.pid}"
    )


def _end_group(engine: Process) -> None:
    """Kill the rest of an engine's process group after its server has ended."""
    deadline = monotonic() + _KILLED_S
    while members := group_members(engine):
        for process in members:
            with suppress(psutil.Error):
                process.kill()
        if monotonic() > deadline:
            pids = " ".join(str(process.pid) for process in members)
            raise EngineError(
                f"processes of engine {engine.name} did not end: {pids}", next_step=f"kill -9 {pids}"
            )
        sleep(0.05)


def _signal(process: Process, number: int) -> None:
    if process.alive:
        with suppress(ProcessLookupError):
            os.kill(process.pid, number)


def _has_left(known: ServerState) -> bool:
    """Whether the process has ended or, if it only embeds the server, removed the state file."""
    return not known.server.alive or (known.embedded and state.read(known.port) is None)


def _until(condition: Callable[[], bool], seconds: float) -> bool:
    deadline = monotonic() + seconds
    while not condition():
        if monotonic() > deadline:
            return False
        sleep(0.05)
    return True
