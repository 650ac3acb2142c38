"""Engines as the server starts them: environment built on first use, processes recorded."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from threading import Lock
from typing import Any

import psutil

from sagemaker_local.engine.building import OnLine, SharedBuild, Started
from sagemaker_local.engine.launch import EngineLauncherProtocol, EngineProcessProtocol, EngineRequest
from sagemaker_local.engine.settings import engine_of
from sagemaker_local.process.state import Process, ServerState, group_members, write

Fetch = Callable[[str, Path], Awaitable[None]]
MakeLauncher = Callable[[Path], EngineLauncherProtocol]
Prepare = Callable[[str, OnLine], Awaitable[None]]
Build = Callable[[OnLine, Started, str], Coroutine[object, object, Path]]


class StateBook:
    """The server's state file, kept up to date as engines start."""

    def __init__(self, state: ServerState) -> None:
        self._state = state
        self._lock = Lock()
        write(state)

    def add(self, pid: int, name: str) -> None:
        """Record an engine, so that it can be ended even if this server was killed."""
        engine = Process.of(pid, name)
        if engine is not None:
            with self._lock:
                self._state = self._state.with_engine(engine)
                write(self._state)

    @property
    def engines(self) -> tuple[Process, ...]:
        """The recorded engines that may still run."""
        return self._state.engines


class LazyLauncher:
    """Launches engines; the first launch of each version has its environment built.

    That is the place for it because the server must answer within seconds, and a deploy is what needs
    the engine: meanwhile the endpoint is Creating and its log says what is going on.
    """

    def __init__(
        self,
        *,
        make: MakeLauncher,
        build: Build,
        started: Started,
        prepare: Prepare,
        versions: Sequence[str],
        python: Path | None = None,
    ) -> None:
        """Set up with the factory of launchers, the environments' builder, and the state file.

        ``prepare`` gets each S3 URI that an engine reads, before: some files are downloaded only then.
        ``versions`` of vLLM can be run, the first by default; ``python`` is a ready one of the first.
        """
        self._make = make
        self._build = build
        self._started = started
        self._prepare = prepare
        self._versions = versions
        self._python = python
        self._launchers: dict[str, EngineLauncherProtocol] = {}
        self._builds: dict[str, SharedBuild[Path]] = {}

    async def launch(self, request: EngineRequest, on_line: OnLine) -> EngineProcessProtocol:
        """Start an engine and record its process."""
        version = engine_of(request.image, self._versions)
        if version not in self._launchers:
            ready = self._python if version == self._versions[0] else None
            self._launchers[version] = self._make(ready or await self._built(version, on_line))
        for _, uri in request.model_sources:
            await self._prepare(uri, on_line)
        process = await self._launchers[version].launch(request, on_line)
        self._started(process.pid, request.name)
        return process

    async def close(self) -> None:
        """End running builds."""
        for build in self._builds.values():
            await build.cancel()

    async def _built(self, version: str, on_line: OnLine) -> Path:
        build = self._builds.get(version)
        if build is None or build.failed:
            build = self._builds[version] = SharedBuild(
                lambda tell: self._build(tell, self._started, version)
            )
        return await build.wait(on_line)


@dataclass(frozen=True)
class Served:
    """What an engine serves; for an inference component also what it reserved (None: the whole machine)."""

    endpoint: str
    variant: str
    component: str | None = None
    cpu_cores: float | None = None
    memory_mb: float | None = None

    @classmethod
    def of(cls, row: Mapping[str, Any]) -> Served:
        """Read a row of the control plane's engines."""
        reserved = row.get("reserved", {})
        return cls(
            row["endpoint"],
            row["variant"],
            row.get("component"),
            reserved.get("cpu_cores"),
            reserved.get("memory_mb"),
        )


@dataclass(frozen=True)
class Utilisation:
    """Usage of one engine: CPU in percent of one core, memory in percent of the machine's.

    For an inference component also percent of what it reserved, 0 to 100.
    """

    endpoint: str
    variant: str
    cpu_percent: float
    memory_percent: float
    component: str | None = None
    cpu_normalised: float = 0.0
    memory_normalised: float = 0.0


class UtilisationSampler:
    """CPU and memory of engines' whole process groups, between two calls of ``sample``."""

    def __init__(self, engines: Callable[[], Mapping[int, Served]]) -> None:
        self._engines = engines
        self._known: dict[int, psutil.Process] = {}

    def sample(self) -> list[Utilisation]:
        """Measure every engine. CPU is in percent of one core, as AWS has it; the first sample reads 0."""
        used = []
        seen: dict[int, psutil.Process] = {}
        total = psutil.virtual_memory().total
        for pid, served in self._engines().items():
            leader = Process.of(pid)
            cpu, memory = 0.0, 0
            for process in group_members(leader) if leader else []:
                process = seen[process.pid] = self._known.get(process.pid, process)
                try:
                    cpu += process.cpu_percent(None)
                    memory += process.memory_info().rss
                except psutil.Error:
                    continue
            cores = served.cpu_cores or psutil.cpu_count() or 1
            room = served.memory_mb * 2**20 if served.memory_mb else total
            used.append(
                Utilisation(
                    served.endpoint,
                    served.variant,
                    cpu,
                    100 * memory / total,
                    served.component,
                    min(100.0, cpu / cores),
                    min(100.0, 100 * memory / room),
                )
            )
        self._known = seen
        return used
