"""Starts a server as its own process and waits until it answers."""

from __future__ import annotations

import json
import os
import select
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from shutil import disk_usage
from time import monotonic

from sagemaker_local.errors import EngineError
from sagemaker_local.process import state
from sagemaker_local.process.status import LocalStatus

# It takes a second or two; a machine whose cores all train a model may take a hundred times that.
_PATIENCE_S = 180.0
# Between choosing a free port and listening on it somebody else may take it.
_TRIES = 3
_LAST_LINES = 15
# The shipped weights (23 MB and 6 MB of heads) are copied for each endpoint, and logs grow.
_LEAST_FREE_BYTES = 200_000_000


def is_free(port: int) -> bool:
    """Return whether a port on loopback can be listened on."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
        return True


def free_port() -> int:
    """Find a free port on loopback."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def detached(
    port: int | None,
    engine_python: Path | None,
    progress: Callable[[str], None],
    python: str = sys.executable,
) -> LocalStatus:
    """Start a server (with ``python``) that outlives this process; EngineError if it does not start."""
    for attempt in range(1, _TRIES + 1):
        at = port or free_port()
        progress(f"starting the local SageMaker at port {at}")
        try:
            return _start(at, engine_python, python)
        except EngineError:
            if port is not None or attempt == _TRIES or is_free(at):
                raise
    raise AssertionError("the loop above returns or raises")


def _start(port: int, engine_python: Path | None, python: str) -> LocalStatus:
    # -P: a module in the folder in which a user stands must not shadow the standard library.
    command = [python, "-P", "-m", "sagemaker_local.server", "--port", str(port)]
    if engine_python is not None:
        command += ["--engine-python", str(engine_python)]
    reading, writing = os.pipe()
    log = state.log_path(port)
    require_space(log.parent)
    with open(log, "wb") as output:
        process = subprocess.Popen(
            [*command, "--ready-fd", str(writing)],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            pass_fds=(writing,),
            start_new_session=True,
            env=server_environment(),
        )
    os.close(writing)
    try:
        line = _first_line(reading)
    except (
        BaseException
    ):  # Ctrl-C: what does not answer yet is in no state file, so nobody else would find it
        _kill(process)
        raise
    finally:
        os.close(reading)
    if line:
        return LocalStatus.from_dict(json.loads(line))
    status = _kill(process)
    require_space(log.parent)
    lines = [line for line in log.read_text(errors="replace").splitlines() if line.strip()]
    if not lines:
        raise EngineError(
            f"the local SageMaker did not start at port {port}: exit status {status}, no output",
            next_step=f"run it in the foreground to see why: peagle-sm local up --port {port}",
        )
    tail = "\n".join(lines[-_LAST_LINES:])
    raise EngineError(
        f"the local SageMaker did not start at port {port}; its last lines:\n{tail}",
        next_step=f"read the whole log: {log}",
    )


def require_space(
    directory: Path, free_bytes: Callable[[Path], int] = lambda at: disk_usage(at).free
) -> None:
    """Raise an error if the disk has no room for a log and an engine's files.

    Raises:
        EngineError: with the free space, and what to set.
    """
    free = free_bytes(directory)
    if free < _LEAST_FREE_BYTES:
        raise EngineError(
            f"the disk of {directory} is full: {free / 1e6:.0f} MB are free, "
            f"{_LEAST_FREE_BYTES / 1e6:.0f} MB are required",
            next_step="free some space, or set XDG_STATE_HOME to a directory on a larger disk",
        )


def _kill(process: subprocess.Popen[bytes]) -> int:
    """End the process; return its own exit status, or that of the kill."""
    if process.poll() is None:
        process.kill()
    return process.wait()


def _first_line(pipe: int) -> str:
    """Read one line; empty when the other side ended or took too long."""
    deadline = monotonic() + _PATIENCE_S
    received = b""
    while not received.endswith(b"\n"):
        ready, _, _ = select.select([pipe], [], [], max(0.0, deadline - monotonic()))
        chunk = os.read(pipe, 65_536) if ready else b""
        if not chunk:
            return ""
        received += chunk
    return received.decode()


def server_environment() -> dict[str, str]:
    """Return an environment that finds this package and reaches no AWS account."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("AWS_")}
    package_root = str(Path(__file__).resolve().parents[2])
    paths = [package_root, *filter(None, environment.get("PYTHONPATH", "").split(os.pathsep))]
    return {**environment, "PYTHONPATH": os.pathsep.join(paths)}
