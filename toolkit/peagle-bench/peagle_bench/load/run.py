"""Run of one load on one target, with the client's own lag and CPU use; returns its point.

The synchronous entry point runs the event loop (uvloop) and ends cleanly on Ctrl-C.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import itertools
import os
import time
from collections.abc import Callable, Coroutine, Iterable, Iterator, Sequence, Sized
from contextlib import AbstractAsyncContextManager
from typing import Any, TypeVar

from peagle_bench.load.driver import Drive, Schedule, unwrapped
from peagle_bench.load.http_client import Sender, Target, open_sender
from peagle_bench.load.points import Objective, make_point
from peagle_bench.load.work import (
    ClientUsage,
    Clock,
    LoadOptions,
    LoadRun,
    Observer,
    Silent,
    Timeouts,
    Window,
    WorkItem,
    check_load,
)
from peagle_bench.results.records import Acceptance, Load, Phase, PointRecord, RequestRecord
from peagle_sm.core.errors import SpecError

#: Seconds between two samples. At one chunk every 10 ms, samples as frequent would cost more than the chunks.
EVERY_S = 0.05
_EARLY_S = 0.0005  #: uvloop's timers have whole milliseconds, so a signal may come so much too early


class Meter:
    """Sampler of the event loop's lag; each sample is (time on ``clock``, lag in ms)."""

    def __init__(
        self, clock: Clock = time.perf_counter, cpu: Callable[[], float] = time.process_time
    ) -> None:
        """Set up a meter; ``cpu`` returns the CPU seconds that the process has used so far."""
        self.samples: list[tuple[float, float]] = []
        self._clock = clock
        self._cpu = cpu
        self._handle: asyncio.TimerHandle

    def cpu_s(self) -> float:
        """Return the CPU seconds of this process so far."""
        return self._cpu()

    def start(self) -> None:
        """Start sampling in the running loop."""
        self._wait(self._clock() + EVERY_S)

    def _wait(self, due: float) -> None:
        delay = max(due - self._clock(), 0.0)
        self._handle = asyncio.get_running_loop().call_later(delay, self._tick, due)

    def _tick(self, due: float) -> None:
        now = self._clock()
        # Every delayed signal is a sample: in a long stall each counts with its own delay.
        while due <= now + _EARLY_S:
            self.samples.append((now, max(now - due, 0.0) * 1000))
            due += EVERY_S
        self._wait(due)

    def stop(self) -> None:
        """Stop sampling."""
        self._handle.cancel()

    def lags_between(self, start: float, end: float) -> tuple[float, ...]:
        """Return the lags in milliseconds that were sampled between two times."""
        return tuple(lag for at, lag in self.samples if start <= at <= end)


Connect = Callable[[list[Target], Timeouts, int, Clock], AbstractAsyncContextManager[Sender]]
OPEN_LOOP_CONNECTIONS = 1000


async def drive_load(
    target: Target,
    load: Load,
    items: Iterable[WorkItem],
    *,
    options: LoadOptions,
    observer: Observer | None = None,
    clock: Clock = time.perf_counter,
    connect: Connect = open_sender,
    meter: Meter | None = None,
) -> LoadRun:
    """Run one load and return its records, its window, and the client's usage.

    Cancelling it (Ctrl-C under `measure_point`) closes every connection, also those in use; ``observer`` has
    the records so far.

    Raises:
        SpecError: the load or the workload does not fit, or a request cannot be sent at all.
        NotFound: aiohttp is not installed.
        LoadStopped: the endpoint fails every request; it carries the records so far.
    """
    check_load(load)
    work = _checked(items, load, options)
    observer = observer or Silent()
    meter = meter or Meter(clock)
    connections = options.max_connections or load.concurrency or OPEN_LOOP_CONNECTIONS
    async with connect([target], options.timeouts, connections, clock) as sender:
        start = clock()
        began = start if options.began is None else options.began
        watch = _Watch(meter, observer, options)
        schedule = Schedule(load, options, work, watch.phase)
        watch.schedule, watch.clock = schedule, clock
        drive = Drive(load, options, sender, observer, clock, began)
        meter.start()
        most = 0
        try:
            if load.kind == "closed":
                await drive.closed(target, schedule)
            else:
                most = await drive.open(target, schedule)
        except BaseExceptionGroup as group:
            raise unwrapped(group) from None
        finally:
            schedule.end(clock())
            watch.stop()
            meter.stop()
    first, last = schedule.window_start or start, schedule.window_end or start
    return LoadRun(
        target.arm,
        load,
        options.block,
        tuple(drive.records),
        Window(first - began, last - began, last - first),
        ClientUsage(meter.lags_between(first, last), watch.cpu_s, most > connections),
    )


class _Watch:
    """Observer that reads the CPU clock at the window's ends, and ends a timed window on time."""

    schedule: Schedule
    clock: Clock

    def __init__(self, meter: Meter, observer: Observer, options: LoadOptions) -> None:
        self._meter = meter
        self._observer = observer
        self._seconds = options.seconds
        self._timer: asyncio.TimerHandle | None = None
        self._cpu_before = self.cpu_s = 0.0

    def phase(self, phase: Phase) -> None:
        if phase == "measured":
            self._cpu_before = self._meter.cpu_s()
            if self._seconds is not None:
                loop = asyncio.get_running_loop()
                self._timer = loop.call_later(self._seconds, lambda: self.schedule.end(self.clock()))
        elif phase == "drain":
            self.cpu_s = self._meter.cpu_s() - self._cpu_before
        self._observer.phase(phase)

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()


def _checked(items: Iterable[WorkItem], load: Load, options: LoadOptions) -> Iterator[WorkItem]:
    wanted = options.requests
    if load.kind == "closed" and wanted is not None and wanted < (load.concurrency or 1):
        raise SpecError(
            f"{wanted} requests at concurrency {load.concurrency}: this concurrency is never reached.",
            next_step=f"Measure at least {load.concurrency} requests, or lower the concurrency.",
        )
    if isinstance(items, Sized) and wanted is not None:
        warm_up = options.warm_up_requests
        if warm_up is None:
            warm_up = load.concurrency or 0
        if len(items) < wanted + warm_up:
            raise SpecError(
                f"the workload has {len(items)} prompts; {load.label} needs {wanted + warm_up} different"
                f" ones: {wanted} to measure and {warm_up} to warm up.",
                next_step="Use a larger workload or fewer requests, or allow repeated prompts.",
            )
    work = iter(items)
    first = next(work, None)
    if first is None:
        raise SpecError("the workload has no prompts.", next_step="Give one with prompts.")
    return itertools.chain([first], work)


T = TypeVar("T")
#: New objects between two garbage collections: an answer creates a few hundred, and a full collection stops
#: the loop.
_COLLECT_EVERY = 50_000


def measure_point(
    target: Target,
    load: Load,
    items: Iterable[WorkItem],
    options: LoadOptions,
    *,
    observer: Observer | None = None,
    temperature: float | None = None,
    objective: Objective | None = None,
    acceptance: Callable[[Sequence[RequestRecord]], Acceptance | None] | None = None,
    usd_per_hour: float | None = None,
) -> tuple[list[RequestRecord], PointRecord]:
    """Run one load and summarise it; ``acceptance`` computes the acceptance of the measured requests.

    Ctrl-C closes every connection before KeyboardInterrupt is raised; the observer has the records so far.
    ``PointRecord.client.trusted`` says whether the figures may be published.

    Raises:
        SpecError: the load or the workload does not fit.
        LoadStopped: the endpoint fails every request; it carries the records so far.
    """
    run = run_quietly(lambda: drive_load(target, load, items, options=options, observer=observer))
    measured = [record for record in run.records if record.phase == "measured"]
    point = make_point(
        run,
        temperature=temperature,
        objective=objective,
        acceptance=None if acceptance is None else acceptance(measured),
        usd_per_hour=usd_per_hour,
        machine_load=os.getloadavg()[0],
    )
    return list(run.records), point


def run_quietly(main: Callable[[], Coroutine[Any, Any, T]]) -> T:
    """Run a coroutine in a loop for measuring: uvloop, with rare garbage collections.

    Raises:
        NotFound: uvloop is not installed.
    """
    with _seldom_collected(), asyncio.Runner(loop_factory=_loop_factory()) as runner:
        return runner.run(main())


def _loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    if os.name == "nt":
        return None  # uvloop does not exist on Windows; the client's lag shows whether it matters
    import uvloop

    return uvloop.new_event_loop


@contextlib.contextmanager
def _seldom_collected() -> Iterator[None]:
    before = gc.get_threshold()
    gc.collect()
    # A program that has frozen its objects keeps them so. (Python 3.12 itself begins with a few hundred.)
    frozen_by_caller = gc.get_freeze_count() > len(gc.get_objects())
    if not frozen_by_caller:
        gc.freeze()  # scanning the existing objects at each collection would take milliseconds
    gc.set_threshold(_COLLECT_EVERY, *before[1:])
    try:
        yield
    finally:
        gc.set_threshold(*before)
        if not frozen_by_caller:
            gc.unfreeze()
