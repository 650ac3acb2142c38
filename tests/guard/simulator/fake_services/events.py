"""What will happen, in order of time: the heart of a discrete-event simulation."""

from __future__ import annotations

import heapq
from collections.abc import Callable
from dataclasses import dataclass, field

Event = Callable[[int], None]
"""Called with the moment at which it happens."""


@dataclass(slots=True)
class Events:
    """A queue of events and the moment that the world has reached (seconds since 1970)."""

    now: int
    _queue: list[tuple[int, int, Event]] = field(default_factory=list)
    _count: int = 0

    def at(self, moment: int, event: Event) -> None:
        """Let something happen at a moment, after what was announced for it before."""
        self._count += 1
        heapq.heappush(self._queue, (moment, self._count, event))

    def run_until(self, end: int) -> None:
        """Let everything happen that is due by ``end``; an event may announce further ones, or call this."""
        while self._queue and self._queue[0][0] <= end:
            moment, _, event = heapq.heappop(self._queue)
            self.now = max(self.now, moment)
            event(self.now)
        self.now = max(self.now, end)
