"""Engines as the server starts them: environment built when first needed, processes written down."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from threading import Lock

import psutil

from peagle_sm.local.control import EngineLauncherProtocol, EngineProcessProtocol
from peagle_sm.local.engine import EngineRequest
from peagle_sm.local.metrics import Utilisation
from peagle_sm.local.state import Process, ServerState, group_members, write

Fetch = Callable[[str, Path], Awaitable[None]]
MakeLauncher = Callable[[Path], EngineLauncherProtocol]
EnsureEngine = Callable[[Callable[[str], None]], Path]


class StateBook:
    """The server's state file, kept up to date as engines start."""

    def __init__(self, state: ServerState) -> None:
        """Take the state of a server that has just started, and write it."""
        self._state = state
        self._lock = Lock()
        write(state)

    def add(self, pid: int, name: str) -> None:
        """Write down an engine, so that it can be ended even when this server was killed."""
        engine = Process.of(pid, name)
        if engine is not None:
            with self._lock:
                self._state = self._state.with_engine(engine)
                write(self._state)

    @property
    def engines(self) -> tuple[Process, ...]:
        """The engines written down that may still run."""
        return self._state.engines


@dataclass
class LazyLauncher:
    """Launches engines; the first launch builds their environment, in a thread.

    That is the place for it because the server must answer within seconds, and a deploy is what needs
    the engine: meanwhile the endpoint is Creating and its log says what is going on.
    """

    make: MakeLauncher
    ensure: EnsureEngine
    started: Callable[[int, str], None]
    python: Path | None = None
    _inner: EngineLauncherProtocol | None = None

    def __post_init__(self) -> None:
        """One environment is built at a time."""
        self._building = asyncio.Lock()

    async def launch(self, request: EngineRequest, on_line: Callable[[str], None]) -> EngineProcessProtocol:
        """Start an engine and write its process down."""
        async with self._building:
            if self._inner is None:
                self._inner = self.make(self.python or await self._build(on_line))
        process = await self._inner.launch(request, on_line)
        self.started(process.pid, request.name)
        return process

    async def _build(self, on_line: Callable[[str], None]) -> Path:
        loop = asyncio.get_running_loop()

        def progress(text: str) -> None:
            loop.call_soon_threadsafe(on_line, f"[peagle-sm local] engine environment: {text}")

        return await asyncio.to_thread(self.ensure, progress)


class UtilisationSampler:
    """CPU and memory of engines' whole process groups, between two calls of ``sample``."""

    def __init__(self, engines: Callable[[], Mapping[int, tuple[str, str]]]) -> None:
        """Take what lists the running engines: leader's process id -> (endpoint, variant)."""
        self._engines = engines
        self._known: dict[int, psutil.Process] = {}

    def sample(self) -> list[Utilisation]:
        """Measure every engine. CPU is in percent of one core, as AWS has it; the first sample reads 0."""
        used = []
        seen: dict[int, psutil.Process] = {}
        total = psutil.virtual_memory().total
        for pid, (endpoint, variant) in self._engines().items():
            leader = Process.of(pid)
            cpu, memory = 0.0, 0
            for process in group_members(leader) if leader else []:
                process = seen[process.pid] = self._known.get(process.pid, process)
                try:
                    cpu += process.cpu_percent(None)
                    memory += process.memory_info().rss
                except psutil.Error:
                    continue
            used.append(Utilisation(endpoint, variant, cpu, 100 * memory / total))
        self._known = seen
        return used
