"""Builds environments in a separate process, which can be ended like an engine."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from sagemaker_local.engine.trainer_env import train_command
from sagemaker_local.errors import EngineError
from sagemaker_local.process.spawn import server_environment

OnLine = Callable[[str], None]
Started = Callable[[int, str], None]

COMMAND = (sys.executable, "-P", "-m", "sagemaker_local.engine.env")
TRAINER_COMMAND = (sys.executable, "-P", "-m", "sagemaker_local.engine.trainer_env")
_LAST_LINES = 15


async def build_trainer(on_line: OnLine, started: Started) -> list[str]:
    """Build the trainer's environment if needed and return what trains in it; as `build_environment`."""
    return train_command(await build_environment(on_line, started, TRAINER_COMMAND, "trainer environment"))


async def build_engine(on_line: OnLine, started: Started, version: str) -> Path:
    """Build the environment of this vLLM if needed and return its Python; as `build_environment`."""
    return await build_environment(on_line, started, (*COMMAND, version), "engine environment")


async def build_environment(on_line: OnLine, started: Started, command: tuple[str, ...], what: str) -> Path:
    """Build an environment if needed and return its Python.

    Args:
        on_line: gets each line of progress.
        started: gets the id of the process that builds, which leads a group of its own, and a name.
        command: prints progress on stderr and at the end the Python on stdout.
        what: is built, for messages.

    Raises:
        EngineError: it cannot be built; the message ends with the last lines.
    """
    process = await asyncio.create_subprocess_exec(
        *command,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        start_new_session=True,
        env=server_environment(),
    )
    started(process.pid, what)
    assert process.stdout is not None
    assert process.stderr is not None
    tail: deque[str] = deque(maxlen=_LAST_LINES)
    try:
        async for raw in process.stderr:
            line = raw.decode(errors="replace").rstrip()
            tail.append(line)
            on_line(f"[peagle-sm local] {line}")
        printed = (await process.stdout.read()).decode().strip()
        status = await process.wait()
    finally:
        if process.returncode is None:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            await process.wait()
    if status != 0 or not printed:
        raise EngineError(f"the {what} could not be built:\n" + "\n".join(tail))
    return Path(printed.splitlines()[-1])
