"""One engine: its plan; started until it answers /ping, watched until it dies, stopped when it is idle."""

import asyncio
import itertools
import logging
import shutil
from collections.abc import Awaitable, Callable, Coroutine, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

from sagemaker_local.clock import LocalClock
from sagemaker_local.engine.launch import EngineLauncherProtocol, EngineProcessProtocol, EngineRequest

from .errors import launch_failed, no_download, no_ping, no_ping_exited
from .records import Kind

# ContainerStartupHealthCheckTimeoutInSeconds when the variant says nothing: AWS's knowledge centre says
# that an endpoint fails "within four minutes after the container starts up".
DEFAULT_STARTUP_TIMEOUT_S = 240.0
# ModelDataDownloadTimeoutInSeconds when the variant says nothing; assumed, AWS gives no default.
DEFAULT_DOWNLOAD_TIMEOUT_S = 1200.0

MODEL_MOUNT = "/opt/ml/model"
CHANNEL_MOUNT = "/opt/ml/additional-model-data-sources"


@dataclass(frozen=True)
class EnginePlan:
    """One engine to run: a variant with the model it names, or a component, as they were then.

    `component` is the inference component that it runs; None for a variant with a model.
    """

    variant: str
    model: str
    image: str
    environment: Mapping[str, str]
    sources: tuple[tuple[str, str], ...]
    startup_timeout_s: float
    download_timeout_s: float
    component: str | None = None

    @property
    def serves(self) -> str:
        """What the engine serves, in words."""
        if self.component is not None:
            return f"inference component {self.component}"
        return f"production variant {self.variant}"


def engine_plan(variant: Mapping[str, Any], model: Mapping[str, Any]) -> EnginePlan:
    """The plan from a production variant and the CreateModel body that it names."""
    return _plan(variant["VariantName"], None, variant["ModelName"], _container(model), variant)


def component_plan(
    component: str, variant: str, specification: Mapping[str, Any], model: Mapping[str, Any] | None
) -> EnginePlan:
    """The plan from an inference component's specification and the CreateModel body that it may name."""
    if model is not None:
        name, container = specification["ModelName"], _container(model)
    else:
        name, own = "", specification["Container"]
        container = {"Image": own["Image"], "Environment": own.get("Environment", {})}
        if "ArtifactUrl" in own:
            container["ModelDataUrl"] = own["ArtifactUrl"]
    return _plan(variant, component, name, container, specification.get("StartupParameters", {}))


def _container(model: Mapping[str, Any]) -> dict[str, Any]:
    container: dict[str, Any] = model.get("PrimaryContainer") or model["Containers"][0]
    return container


def _plan(
    variant: str,
    component: str | None,
    model: str,
    container: Mapping[str, Any],
    limits: Mapping[str, Any],
) -> EnginePlan:
    return EnginePlan(
        variant=variant,
        component=component,
        model=model,
        image=container["Image"],
        environment=dict(container.get("Environment", {})),
        sources=tuple(model_sources(container)),
        startup_timeout_s=float(
            limits.get("ContainerStartupHealthCheckTimeoutInSeconds", DEFAULT_STARTUP_TIMEOUT_S)
        ),
        download_timeout_s=float(limits.get("ModelDataDownloadTimeoutInSeconds", DEFAULT_DOWNLOAD_TIMEOUT_S)),
    )


def model_sources(container: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Where the container finds each of its S3 sources: (mount, S3 URI) in the order of the request."""
    sources = []
    if "ModelDataUrl" in container:
        sources.append((MODEL_MOUNT, container["ModelDataUrl"]))
    main = container.get("ModelDataSource", {}).get("S3DataSource")
    if main:
        sources.append((MODEL_MOUNT, main["S3Uri"]))
    for channel in container.get("AdditionalModelDataSources", []):
        sources.append((f"{CHANNEL_MOUNT}/{channel['ChannelName']}", channel["S3DataSource"]["S3Uri"]))
    return sources


# Called with one S3 URI; False when nothing is there.
ModelDataExists = Callable[[str], Awaitable[bool]]


@dataclass(frozen=True)
class Timing:
    """Timeouts and intervals in seconds of real time.

    Attributes:
        poll_s: between two looks at an engine that starts.
        watch_s: between two looks at the process of an engine that serves.
        ping_s: between two pings of an engine that serves; engines log each ping.
        unhealthy_after_s: an engine that runs but refuses every ping for so long counts as dead. With
            watch_s and ping_s it stays below the 10 s in which a dead engine must be noticed.
        unhealthy_pings: and at least so many pings in a row must have been refused.
        fast_ping_s: a failed ping that took longer was not refused; it may be the machine that is busy.
        silent_after_s: an engine that answers no ping for so long counts as dead, busy machine or not.
        rolling_back_s: how long RollingBack is to be seen at least.
        deleting_s: how long Deleting is to be seen at least.
        drain_s: how long an engine that an update replaces may finish what it is serving; AWS lets a
            response stream last 8 minutes.
    """

    poll_s: float = 0.25
    watch_s: float = 0.5
    ping_s: float = 1.5
    unhealthy_after_s: float = 6.0
    unhealthy_pings: int = 3
    fast_ping_s: float = 1.0
    silent_after_s: float = 60.0
    rolling_back_s: float = 1.0
    deleting_s: float = 0.5
    drain_s: float = 480.0


class Health:
    """Health of one engine, from its pings.

    A ping that is refused, or answered by anything but 200, fails fast and means a broken engine. One that
    runs into its time limit may only mean a busy machine, so it takes far longer to condemn an engine.
    """

    def __init__(self, timing: Timing, now: float) -> None:
        self._timing = timing
        self._healthy_at = now
        self._refused = 0

    def pinged(self, healthy: bool, took_s: float, now: float) -> str | None:
        """Record one ping's result; return how the engine died, or None while it lives."""
        if healthy:
            self._healthy_at, self._refused = now, 0
            return None
        self._refused = self._refused + 1 if took_s < self._timing.fast_ping_s else 0
        failing = now - self._healthy_at
        broken = self._refused >= self._timing.unhealthy_pings and failing >= self._timing.unhealthy_after_s
        if broken or failing >= self._timing.silent_after_s:
            return f"failed every /ping for {failing:.0f} s"
        return None


async def guarded(transition: Coroutine[Any, Any, None], what: str, fail: Callable[[str], None]) -> None:
    """Run a transition of ``what``; an internal error must not leave it in progress for ever."""
    try:
        await transition
    except Exception as fault:
        _log.exception("%s: a transition failed", what)
        fail(f"The local SageMaker failed: {type(fault).__name__}: {fault}")


async def stopped(watch: asyncio.Task[None] | None) -> None:
    """Cancel a watch, if there is one, and wait until it has ended."""
    if watch is not None:
        watch.cancel()
        with suppress(asyncio.CancelledError):
            await watch


Tell = Callable[["Engine", Kind, str], None]

_log = logging.getLogger(__name__)
_numbers = itertools.count(1)


class StartupFailed(Exception):
    """An engine failed to start; the text is the endpoint's FailureReason."""


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
        """Wait until the engine answers /ping; stop it if it does not.

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
        """Wait for the task by the local clock, so that moving the clock forward counts."""
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
        """Wait until the engine is dead and return how it died, as text."""
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
        """Count a request in flight, so that an update lets it finish."""
        self._in_flight += 1
        self._idle.clear()
        try:
            yield
        finally:
            self._in_flight -= 1
            if self._in_flight == 0:
                self._idle.set()

    async def drain(self) -> None:
        """Wait until nothing is in flight, the engine is dead, or the drain timeout is over."""
        if self.alive:
            with suppress(TimeoutError):
                await asyncio.wait_for(self._idle.wait(), self._timing.drain_s)

    async def stop(self) -> None:
        """End the process group; safe to call twice. A failure is logged, not raised."""
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

    async def end(self) -> None:
        """Stop it and remove its directory."""
        await self.stop()
        with suppress(OSError):
            await asyncio.to_thread(shutil.rmtree, self.root, ignore_errors=True)

    def _line(self, line: str) -> None:
        self._tell(self, "line", line)
