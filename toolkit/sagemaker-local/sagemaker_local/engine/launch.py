"""One endpoint's engine: the real vLLM as a group of processes instead of a container."""

import asyncio
import errno
import os
import random
import shutil
import signal
import socket
import sys
import tempfile
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Protocol

from sagemaker_local.aws_facts import published_by_aws
from sagemaker_local.engine import warden
from sagemaker_local.engine.checks import EngineCheck, installed_checks, refusal_of
from sagemaker_local.engine.env import engine_locks
from sagemaker_local.engine.model import read_model
from sagemaker_local.engine.output import OutputLines, last_words
from sagemaker_local.engine.settings import (
    LocalSettings,
    engine_of,
    local_settings,
    parse_image,
    refusal,
)
from sagemaker_local.errors import EngineError
from sagemaker_local.paths import cache_dir, container_dir

Fetch = Callable[[str, Path], Awaitable[None]]
OnLine = Callable[[str], None]
# Below the range from which the kernel takes ports for outgoing connections, so that none is taken between
# choosing a port here and vLLM's binding it.
PORTS = range(20000, 32000)
PING_TIMEOUT_S = 2.0  # what SageMaker allows for an answer to /ping
_MODEL_MOUNT = "/opt/ml/model"


class LaunchError(EngineError):
    """An engine was not started: unsupported image, or missing model data."""


@dataclass(frozen=True)
class EngineRequest:
    """CreateModel's definition of one container, and its directory.

    Attributes:
        name: for messages only.
        image: the image URI asked for.
        environment: the container's environment.
        root: the engine's own directory; ``/opt/ml`` lies in it as ``opt/ml``.
        model_sources: where each S3 address is mounted, as (mount below ``/opt/ml``, S3 URI).
    """

    name: str
    image: str
    environment: Mapping[str, str]
    root: Path
    model_sources: list[tuple[str, str]]


class EngineProcessProtocol(Protocol):
    """One running engine, as `EngineProcess` is."""

    @property
    def url(self) -> str:
        """Base URL on loopback, without a slash at the end."""

    @property
    def pid(self) -> int:
        """Process id of the leader of the engine's group."""

    @property
    def started_at(self) -> datetime:
        """When the process was started, in UTC."""

    @property
    def overrides(self) -> list[str]:
        """A sentence for each local override of the environment."""

    @property
    def engine_version(self) -> str:
        """The version that runs, whatever the image's tag says."""

    @property
    def exited(self) -> int | None:
        """Exit status, None while it runs."""

    async def ping(self) -> bool:
        """True when /ping answers 200 within AWS's 2 s."""

    def last_words(self, n: int = 15) -> str:
        """The last `n` lines of output."""

    async def stop(self) -> None:
        """Ends the whole process group; safe to call twice."""


class EngineLauncherProtocol(Protocol):
    """Makes engines, as `EngineLauncher` does."""

    async def launch(self, request: EngineRequest, on_line: Callable[[str], None]) -> EngineProcessProtocol:
        """Fetches the model's data and starts the process; it answers pings later.

        Raises:
            Exception: the image is unknown, an artifact is missing, the process cannot start. The text goes
                into the endpoint's FailureReason.
        """


class EngineProcess:
    """A started engine. Its processes end with it, with ``stop`` and with this process, however that ends.

    Attributes:
        url: base URL on loopback, without a slash at the end.
        started_at: UTC.
        overrides: each local override of the environment, in words.
        engine_version: the vLLM that runs.
        image_version: the vLLM that the image's tag asks for.
    """

    def __init__(
        self,
        process: asyncio.subprocess.Process,
        port: int,
        scratch: Path,
        request: EngineRequest,
        on_line: OnLine,
    ) -> None:
        self.url = f"http://127.0.0.1:{port}"
        self.started_at = datetime.now(UTC)
        self.overrides: list[str] = []
        self.engine_version = ""
        self.image_version = parse_image(request.image).version
        self._name = request.name
        self._port = port
        self._process = process
        self._scratch = scratch
        self._output = OutputLines(on_line)
        self._exited: int | None = None
        self._watch = asyncio.create_task(self._until_exit(), name=f"engine {request.name}")

    @property
    def pid(self) -> int:
        """The process that leads the engine's group."""
        return self._process.pid

    @property
    def exited(self) -> int | None:
        """Exit status, 128 + the signal's number if one ended it; None while it runs."""
        return self._exited

    def last_words(self, n: int = 15) -> str:
        """Return at most ``n`` lines of its output that say why it failed, else its last ones."""
        killed_by = None
        if self._exited is not None and self._exited > 128:
            with suppress(ValueError):
                killed_by = signal.Signals(self._exited - 128).name
        return last_words(self._output.lines, n, killed_by)

    def processes(self) -> list[int]:
        """Return the ids of its living processes."""
        return warden.members(self.pid)

    async def ping(self) -> bool:
        """Whether ``/ping`` answers 200 within the time that SageMaker allows."""
        try:
            async with asyncio.timeout(PING_TIMEOUT_S):
                return await _get_status("127.0.0.1", self._port, "/ping") == 200
        except (OSError, TimeoutError, ValueError, IndexError):
            return False

    async def wait(self) -> int:
        """Wait until it has ended, and return the exit status."""
        await asyncio.shield(self._watch)
        return self._exited or 0

    async def stop(self) -> None:
        """End every process of the engine, gently first; safe to call twice.

        Raises:
            EngineError: some process would not end.
        """
        if self._watch.done():
            return  # all of it has ended, so its ids may belong to others by now
        left = await asyncio.shield(asyncio.to_thread(warden.end_group, self.pid))
        if left:
            raise EngineError(
                f"engine {self._name}: processes {left} did not end, even after SIGKILL",
                next_step=f"end them with: kill -9 {' '.join(map(str, left))}",
            )
        await self.wait()

    async def _until_exit(self) -> None:
        assert self._process.stdout is not None
        reading = asyncio.create_task(self._read(self._process.stdout))
        await _ended(self.pid)
        # The warden has ended the others, unless it was itself killed.
        await asyncio.to_thread(warden.end_group, self.pid, 0)
        shutil.rmtree(self._scratch, ignore_errors=True)
        code = await self._process.wait()
        with suppress(TimeoutError):
            await asyncio.wait_for(reading, timeout=2)
        self._output.close()
        if self._process.stdin is not None:
            self._process.stdin.close()
        self._exited = code if code >= 0 else 128 - code

    async def _read(self, stream: asyncio.StreamReader) -> None:
        while chunk := await stream.read(64 * 1024):
            self._output.feed(chunk)


class EngineLauncher:
    """Starts engines.

    Args:
        python: the Python of an engine's environment (``ensure_engine``), the one that runs the images of
            its requests (``engine_of``).
        fetch: copies what lies below an S3 URI into a directory; raises when there is nothing.
        container: the directory with ``serve``, by default the project's own.
        checks: what may refuse an engine before it starts, by default what installed packages register.
    """

    def __init__(
        self,
        python: Path,
        fetch: Fetch,
        container: Path | None = None,
        checks: Sequence[EngineCheck] | None = None,
    ) -> None:
        self._python = python
        self._fetch = fetch
        self._container = container or container_dir()
        self._checks = installed_checks() if checks is None else checks

    async def launch(self, request: EngineRequest, on_line: OnLine) -> EngineProcess:
        """Fetch the model's data and start the process, which answers pings some 10 seconds later.

        Args:
            request: what to run.
            on_line: gets each line of output, on the event loop.

        Raises:
            LaunchError: the image is not one that this engine can stand in for, data is missing, or a
                check refuses the engine.
        """
        versions = tuple(engine_locks(self._container))
        reason = refusal(request.image, versions)
        if reason:
            raise LaunchError(reason, next_step="change the model's image")
        for mount, uri in request.model_sources:
            await self._mount(request, mount, uri)
        fault = refusal_of(self._checks, request.environment, request.root)
        if fault:
            raise LaunchError(fault, next_step="upload the whole head, then create the endpoint again")
        port = free_port()
        settings = local_settings(
            request.environment,
            ml_root=request.root / "opt" / "ml",
            port=port,
            model=read_model(_local_path(request.root, _MODEL_MOUNT)),
            aws_image=published_by_aws(request.image),
        )
        # vLLM leaves its sockets in the directory for temporary files, and their paths must be short.
        scratch = Path(tempfile.mkdtemp(prefix="peagle-engine-"))
        try:
            process = await self._spawn(request, settings, scratch)
        except OSError as error:
            shutil.rmtree(scratch, ignore_errors=True)
            raise LaunchError(f"the engine's process could not be started: {error}") from error
        engine = EngineProcess(process, port, scratch, request, on_line)
        engine.engine_version = engine_of(request.image, versions)
        engine.overrides = list(settings.overrides)
        for sentence in settings.overrides:
            on_line(f"peagle-sm local override: {sentence}")
        return engine

    async def _mount(self, request: EngineRequest, mount: str, uri: str) -> None:
        directory = _local_path(request.root, mount)
        directory.mkdir(parents=True, exist_ok=True)
        try:
            await self._fetch(uri, directory)
        except OSError as error:
            if error.errno in (errno.ENOSPC, errno.EDQUOT):
                raise LaunchError(f"{disk_full(directory)}; {uri} could not be copied to {mount}") from error
            raise LaunchError(f"cannot download {uri} for {mount}: {error}") from error
        except Exception as error:
            raise LaunchError(f"cannot download {uri} for {mount}: {error}") from error
        if not any(directory.iterdir()):
            raise LaunchError(
                f"no objects at {uri} (to be mounted at {mount})",
                next_step="upload the files there, or correct the S3 URI; a prefix ends in a slash",
            )

    async def _spawn(
        self, request: EngineRequest, settings: LocalSettings, scratch: Path
    ) -> asyncio.subprocess.Process:
        command = [str(self._python), str(self._container / "serve")]
        request.root.mkdir(parents=True, exist_ok=True)
        return await asyncio.create_subprocess_exec(
            sys.executable,
            "-I",
            "-S",
            warden.__file__,
            str(scratch),
            *command,
            env=_process_environment(self._python, request.root, scratch) | settings.environment,
            cwd=request.root,
            stdin=asyncio.subprocess.PIPE,  # never written to: its closing tells the warden that we are gone
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
            start_new_session=True,
        )


def free_port() -> int:
    """Return a loopback port that nothing listens on.

    Raises:
        EngineError: a hundred tries found none.
    """
    for port in random.SystemRandom().sample(PORTS, 100):
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
            return port
    raise EngineError(
        f"no free port between {PORTS.start} and {PORTS.stop}",
        next_step="stop programs that listen on these ports, then try again",
    )


def disk_full(directory: Path) -> str:
    """Return the error for a full disk, with the free space."""
    free = shutil.disk_usage(directory).free
    return f"No space left on device: the disk of {directory} has {free / 1e6:.0f} MB free"


def _local_path(root: Path, mount: str) -> Path:
    return root / mount.lstrip("/")


def _process_environment(python: Path, root: Path, scratch: Path) -> dict[str, str]:
    """Return the process's environment without the user's credentials and settings."""
    return {
        "PATH": f"{python.parent}:{os.environ.get('PATH', os.defpath)}",
        "HOME": str(root),
        "LANG": "C.UTF-8",
        "TMPDIR": str(scratch),
        "PEAGLE_SM_MODEL_DIR": str(_local_path(root, _MODEL_MOUNT)),
        # Shared by all engines, so that what one compiles serves the next. What vLLM knows of a model's class
        # is in a file that another version would overwrite.
        "VLLM_CACHE_ROOT": str(cache_dir() / "vllm" / python.parents[1].name),
        "TORCHINDUCTOR_CACHE_DIR": str(cache_dir() / "vllm" / "inductor"),
    }


async def _ended(pid: int) -> None:
    """Wait until the process has ended (asyncio's wait would also wait for holders of its output)."""
    try:
        descriptor = os.pidfd_open(pid)
    except ProcessLookupError:
        return
    loop = asyncio.get_running_loop()
    ended = asyncio.Event()
    loop.add_reader(descriptor, ended.set)
    try:
        await ended.wait()
    finally:
        loop.remove_reader(descriptor)
        os.close(descriptor)


async def _get_status(host: str, port: int, path: str) -> int:
    reader, writer = await asyncio.open_connection(host, port)
    try:
        writer.write(f"GET {path} HTTP/1.1\r\nHost: {host}:{port}\r\nConnection: close\r\n\r\n".encode())
        await writer.drain()
        return int((await reader.readline()).split()[1])
    finally:
        writer.close()
