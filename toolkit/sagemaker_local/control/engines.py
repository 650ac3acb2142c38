"""One engine: started until it answers /ping, watched until it dies, stopped when it is idle."""

import asyncio
import itertools
import logging
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import timedelta
from pathlib import Path

from sagemaker_local.clock import LocalClock
from sagemaker_local.engine.launch import EngineLauncherProtocol, EngineProcessProtocol, EngineRequest

from .events import Kind
from .health import Health
from .launching import EnginePlan
from .settings import Timing
from .wording import launch_failed, no_download, no_ping, no_ping_exited

Tell = Callable[["Engine", Kind, str], None]

_log = logging.getLogger(__name__)
_numbers = itertools.count(1)


class StartupFailed(Exception):
    """An engine did not come up; the text is the endpoint's FailureReason."""


class _TooLate(Exception):
    """The local clock passed the limit; not TimeoutError, which a launcher may raise itself."""


class Engine:
    """The engine of one variant, or of one inference component.

    Args:
        plan: what to run.
        endpoint: name of the endpoint it serves.
        root: the endpoint's directory; the engine gets one of its own below it.
        tell: called with (engine, kind of event, message).
    """

    def __init__(
        self,
        plan: EnginePlan,
        *,
        endpoint: str,
        root: Path,
        launcher: EngineLauncherProtocol,
        clock: LocalClock,
        timing: Timing,
        tell: Tell,
    ) -> None:
        self.plan = plan
        self.engine_id = f"i-{next(_numbers):017x}"
        self.root = root / self.engine_id
        self._endpoint = endpoint
        self._launcher = launcher
        self._clock = clock
        self._timing = timing
        self._tell = tell
        self._process: EngineProcessProtocol | None = None
        self._stopped = False
        self._in_flight = 0
        self._idle = asyncio.Event()
        self._idle.set()

    @property
    def process(self) -> EngineProcessProtocol:
        """The process; only after `start`."""
        if self._process is None:
            raise RuntimeError(f"engine {self.engine_id} of {self._endpoint} has not been started")
        return self._process

    @property
    def launched(self) -> bool:
        """Whether there is a process, running or ended."""
        return self._process is not None

    @property
    def alive(self) -> bool:
        """Whether the process runs."""
        return self._process is not None and self._process.exited is None

    async def start(self) -> None:
        """Returns when the engine answers /ping; stops it otherwise.

        Raises:
            StartupFailed: it exited, did not answer in time, or could not be launched.
        """
        try:
            await self._launch()
            await self._until_healthy()
        except BaseException:
            await self.stop()
            raise
        self._tell(self, "engine-healthy", "/ping answers")

    async def _launch(self) -> None:
        try:
            self.root.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise StartupFailed(launch_failed(self.plan.serves, error)) from error
        request = EngineRequest(
            name=f"{self._endpoint}-{self.plan.component or self.plan.variant}",
            image=self.plan.image,
            environment=dict(self.plan.environment),
            root=self.root,
            model_sources=list(self.plan.sources),
        )
        launching = asyncio.create_task(self._launcher.launch(request, self._line))
        try:
            await self._within(launching, self.plan.download_timeout_s)
        except _TooLate:
            raise StartupFailed(no_download(self.plan.serves, self.plan.download_timeout_s)) from None
        except Exception as error:
            raise StartupFailed(launch_failed(self.plan.serves, error)) from error
        finally:
            # Also when we were cancelled just as the launch ended: else nobody would stop that process.
            if not launching.cancelled() and launching.exception() is None:
                self._process = launching.result()
        self._tell(self, "engine-started", f"process {self.process.pid} at {self.process.url}")

    async def _within(self, task: "asyncio.Task[EngineProcessProtocol]", seconds: float) -> None:
        """Waits for the task by the local clock, so that moving the clock forward counts."""
        deadline = self._clock.now() + timedelta(seconds=seconds)
        try:
            while not task.done():
                await asyncio.wait([task], timeout=self._timing.poll_s)
                if not task.done() and self._clock.now() >= deadline:
                    raise _TooLate
            task.result()
        finally:
            if not task.done():
                task.cancel()
                with suppress(asyncio.CancelledError, Exception):
                    await task

    async def _until_healthy(self) -> None:
        deadline = self._clock.now() + timedelta(seconds=self.plan.startup_timeout_s)
        while not await self.process.ping():
            if self.process.exited is not None:
                raise StartupFailed(
                    no_ping_exited(self.plan.serves, self.process.exited, self.process.last_words())
                )
            if self._clock.now() >= deadline:
                raise StartupFailed(
                    no_ping(self.plan.serves, self.plan.startup_timeout_s, self.process.last_words())
                )
            await asyncio.sleep(self._timing.poll_s)

    async def died(self) -> str:
        """Waits until the engine is dead and returns how it died, in words."""
        now = asyncio.get_running_loop().time
        pinged_at = now()
        health = Health(self._timing, pinged_at)
        while True:
            if self.process.exited is not None:
                return f"exited with status {self.process.exited}"
            began = now()
            if began - pinged_at >= self._timing.ping_s:
                healthy = await self.process.ping()
                pinged_at = now()
                verdict = health.pinged(healthy, pinged_at - began, pinged_at)
                if verdict is not None and self.process.exited is None:
                    return verdict
            await asyncio.sleep(self._timing.watch_s)

    @contextmanager
    def hold(self) -> Iterator[None]:
        """Counts a request in flight, so that an update lets it finish."""
        self._in_flight += 1
        self._idle.clear()
        try:
            yield
        finally:
            self._in_flight -= 1
            if self._in_flight == 0:
                self._idle.set()

    async def drain(self) -> None:
        """Waits until nothing is in flight, the engine is dead, or the time for draining is over."""
        if self.alive:
            with suppress(TimeoutError):
                await asyncio.wait_for(self._idle.wait(), self._timing.drain_s)

    async def stop(self) -> None:
        """Ends the process group; safe to call twice. What would not end is told, not raised."""
        if self._process is None or self._stopped:
            return
        try:
            await self._process.stop()
        except Exception as error:
            _log.error("engine %s of endpoint %s: %s", self.engine_id, self._endpoint, error)
            self._tell(self, "line", f"[peagle-sm local] {error}")
            return
        self._stopped = True
        self._tell(self, "engine-stopped", f"process {self._process.pid} ended")

    def _line(self, line: str) -> None:
        self._tell(self, "line", line)


async def forget(engine: Engine) -> None:
    """Removes the directory of an engine that has ended."""
    with suppress(OSError):
        await asyncio.to_thread(shutil.rmtree, engine.root, ignore_errors=True)
