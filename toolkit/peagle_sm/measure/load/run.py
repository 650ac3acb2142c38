"""One load on one target: checked, driven, watched."""

from __future__ import annotations

import asyncio
import itertools
import time
from collections.abc import Callable, Iterable, Iterator, Sized
from contextlib import AbstractAsyncContextManager

from peagle_sm.core.errors import SpecError
from peagle_sm.measure.load.drive import Drive, unwrapped
from peagle_sm.measure.load.meter import Meter
from peagle_sm.measure.load.schedule import Schedule
from peagle_sm.measure.load.sender import Sender, open_sender
from peagle_sm.measure.load.targets import Target
from peagle_sm.measure.load.work import (
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
from peagle_sm.measure.records import Load, Phase

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
    """Run one load and return its records, its window, and what the client took.

    Cancelling it (Ctrl-C under `front.measure_point`) closes every connection, those in use too; the records
    so far have been given to ``observer``.

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
        schedule = Schedule(load, options, work, start, watch.phase)
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
    """Reads the CPU clock as the window begins and ends, and ends a window of seconds in time."""

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
            f"{wanted} requests at concurrency {load.concurrency}: so many are never in flight at once.",
            next_step=f"Measure at least {load.concurrency} requests, or lower the concurrency.",
        )
    if isinstance(items, Sized) and wanted is not None:
        warm_up = options.warm_up_requests
        if warm_up is None:
            warm_up = load.concurrency or 0 if not options.warm_up_s else 0
        if len(items) < wanted + warm_up:
            raise SpecError(
                f"the workload has {len(items)} prompts; {load.label} needs {wanted + warm_up}: {wanted}"
                f" to measure and {warm_up} to warm up, none of them twice.",
                next_step="Take a larger workload, fewer requests, or allow that prompts repeat.",
            )
    work = iter(items)
    first = next(work, None)
    if first is None:
        raise SpecError("the workload is empty: no prompt to send.", next_step="Give one with prompts.")
    return itertools.chain([first], work)
