"""Progress of a tuning: which window of how many is measured, and about how long the rest takes."""

from __future__ import annotations

import time
from collections.abc import Callable

from peagle_sm.measure.bench_watch import Spending, Watch
from peagle_sm.measure.records import Load, RequestRecord
from peagle_sm.service.events import Event, Progress

STATUS = "window"  #: the same for all windows, so that a log gets a line every 30 s and not one a window


class Pace:
    """Counts the windows; ``most`` is about how many there are."""

    def __init__(
        self,
        progress: Progress | None,
        most: int,
        *,
        every_s: float = 0.5,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._progress = progress or _silent
        self._most = most
        self._every_s = every_s
        self._spending = Spending(None, monotonic)
        self._begun = 0

    def skip(self) -> None:
        """Count a window that an earlier run has measured."""
        self._begun += 1

    def window(self, arm: str, load: Load, total: int) -> Watch:
        """Begin the next window and return its observer."""
        self._begun += 1
        most = max(self._most, self._begun)
        return Watch(
            load,
            _keep,
            self._progress,
            self._spending,
            total=total,
            every_s=self._every_s,
            status=STATUS,
            title=f"{STATUS} {self._begun} of about {most}: {arm} {load.label}",
            windows_after=most - self._begun,
        )


def _silent(event: Event) -> None:
    """Ignore it."""


def _keep(record: RequestRecord) -> None:
    """A window's records are written together once it is whole."""
