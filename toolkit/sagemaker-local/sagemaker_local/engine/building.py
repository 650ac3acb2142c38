"""Builds environments in a separate process, which can be ended like an engine."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections import deque
from collections.abc import Callable, Coroutine
from contextlib import suppress
from pathlib import Path
from typing import Generic, TypeVar

from sagemaker_local.engine.env import ERROR, NEXT
from sagemaker_local.engine.trainer_env import train_command
from sagemaker_local.errors import EngineError
from sagemaker_local.process.spawn import server_environment

OnLine = Callable[[str], None]
Started = Callable[[int, str], None]
T = TypeVar("T")

COMMAND = (sys.executable, "-P", "-m", "sagemaker_local.engine.env")
TRAINER_COMMAND = (sys.executable, "-P", "-m", "sagemaker_local.engine.trainer_env")
_LAST_LINES = 15
LOG_PREFIX = "[peagle-sm local] "
"""Begins each line of progress in the logs of an endpoint or a job, among the lines of its container."""


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
        EngineError: it cannot be built; message and next step are the command's own if it printed them, as
            `print_python` does, else the message ends with the last lines.
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
            on_line(f"{LOG_PREFIX}{line}")
        printed = (await process.stdout.read()).decode().strip()
        status = await process.wait()
    finally:
        if process.returncode is None:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            await process.wait()
    if status < 0:
        raise EngineError(
            f"the {what} could not be built: signal {-status} ended it.", next_step="Run the command again."
        )
    if status != 0 or not printed:
        raise _failure(what, list(tail))
    return Path(printed.splitlines()[-1])


def _failure(what: str, tail: list[str]) -> EngineError:
    """Read what `print_python` prints at the end: the error, maybe of several lines, and the next step."""
    starts = [at for at, line in enumerate(tail) if line.startswith(ERROR)]
    if not starts or not tail[-1].startswith(NEXT):
        return EngineError(f"the {what} could not be built:\n" + "\n".join(tail))
    message = "\n".join(tail[starts[-1] : -1]).removeprefix(ERROR)
    return EngineError(message, next_step=tail[-1].removeprefix(NEXT))


class SharedBuild(Generic[T]):
    """One piece of work for which several callers may wait, each with its own reader of the progress."""

    def __init__(self, start: Callable[[OnLine], Coroutine[object, object, T]]) -> None:
        self._listeners: list[OnLine] = []
        self._last: str | None = None
        self._task = asyncio.create_task(start(self._tell))

    @property
    def failed(self) -> bool:
        """Whether it ended without a result."""
        return self._task.done() and (self._task.cancelled() or self._task.exception() is not None)

    async def wait(self, on_line: OnLine) -> T:
        """Return the result; a caller that leaves does not cancel the work for the others.

        A caller that comes later gets the last line at once.
        """
        self._listeners.append(on_line)
        if self._last is not None:
            on_line(self._last)
        try:
            return await asyncio.shield(self._task)
        finally:
            self._listeners.remove(on_line)

    async def cancel(self) -> None:
        """End the work."""
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)

    def _tell(self, line: str) -> None:
        self._last = line
        for listener in self._listeners:
            listener(line)
