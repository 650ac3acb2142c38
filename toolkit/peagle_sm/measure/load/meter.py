"""What the client itself takes: how late its event loop comes to a signal, and CPU time."""

from __future__ import annotations

import asyncio
import ctypes
import os
import struct
import sys
import time
from collections.abc import Callable

from peagle_sm.measure.load.work import Clock

#: At one chunk every 10 ms a signal as often would cost more CPU than the chunks.
EVERY_S = 0.05
_CLOCK_MONOTONIC, _NONBLOCK_CLOEXEC = 1, 0o4000 | 0o2000000


class Meter:
    """Samples the loop's lag from `start` to `stop`; each sample is (time by ``clock``, lag in ms)."""

    def __init__(
        self, clock: Clock = time.perf_counter, cpu: Callable[[], float] = time.process_time
    ) -> None:
        """``cpu`` returns the process's CPU seconds so far."""
        self.samples: list[tuple[float, float]] = []
        self._clock = clock
        self._cpu = cpu
        self._stop: Callable[[], None] = lambda: None

    def cpu_s(self) -> float:
        """CPU seconds of this process so far."""
        return self._cpu()

    def start(self) -> None:
        """Begin to sample, in the running loop."""
        loop = asyncio.get_running_loop()
        if sys.platform == "linux" and self._clock is time.perf_counter:
            self._stop = _kernel_signal(loop, self._clock, self.samples)
        else:
            self._stop = _timer_signal(loop, self._clock, self.samples)

    def stop(self) -> None:
        """Sample no more."""
        self._stop()

    def lags_between(self, start: float, end: float) -> tuple[float, ...]:
        """The lags in milliseconds that were sampled in a stretch of the clock."""
        return tuple(lag for at, lag in self.samples if start <= at <= end)


def _timer_signal(
    loop: asyncio.AbstractEventLoop, clock: Clock, samples: list[tuple[float, float]]
) -> Callable[[], None]:
    """By the loop's own timers: uvloop's count whole milliseconds, so a lag may read 1 ms too much."""
    handle: asyncio.TimerHandle

    def tick(due: float) -> None:
        nonlocal handle
        now = clock()
        samples.append((now, max(now - due, 0.0) * 1000))
        handle = loop.call_later(EVERY_S, tick, now + EVERY_S)

    handle = loop.call_later(EVERY_S, tick, clock() + EVERY_S)
    return lambda: handle.cancel()


def _kernel_signal(
    loop: asyncio.AbstractEventLoop, clock: Clock, samples: list[tuple[float, float]]
) -> Callable[[], None]:
    """By a timer of the kernel that makes a descriptor readable, as data makes a socket: exact to 0.1 ms.

    os.timerfd_create is there from Python 3.13 on only. ``clock`` must be CLOCK_MONOTONIC, which
    ``time.perf_counter`` is on Linux.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    descriptor = libc.timerfd_create(_CLOCK_MONOTONIC, _NONBLOCK_CLOEXEC)
    if descriptor < 0:
        return _timer_signal(loop, clock, samples)
    first = clock() + EVERY_S
    whole = struct.pack("@qqqq", 0, round(EVERY_S * 1e9), int(first), int(first % 1 * 1e9))
    libc.timerfd_settime(descriptor, 1, whole, None)  # 1: the first expiry is a time, not a span
    passed = 0

    def ready() -> None:
        nonlocal passed
        now = clock()
        try:
            (count,) = struct.unpack("@Q", os.read(descriptor, 8))
        except BlockingIOError:
            return
        # Every expiry that waited is a sample: a signal that fell into a long stall counts for its wait.
        for number in range(passed, passed + count):
            samples.append((now, max(now - first - number * EVERY_S, 0.0) * 1000))
        passed += count

    loop.add_reader(descriptor, ready)

    def stop() -> None:
        loop.remove_reader(descriptor)
        os.close(descriptor)

    return stop
