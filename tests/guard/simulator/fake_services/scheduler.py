"""The simulated EventBridge Scheduler: rate(10 minutes) from a start to an end, whatever the guard does."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field

from tests.guard.simulator.fake_services.errors import AwsFault
from tests.guard.simulator.fake_services.events import Events

RATE_S = 600
AGAIN_S = 25

Target = Callable[[int], None]
"""Called at each firing; an AwsFault goes to the dead-letter queue, and the next firing comes anyway."""


@dataclass(slots=True)
class Schedule:
    """One armed schedule."""

    name: str
    start: int
    end: int
    target: Target
    removed: bool = False
    fired: int = 0
    armed_at: int = 0


@dataclass(slots=True)
class Scheduler:
    """Schedules by name; arming a name again replaces it."""

    events: Events
    delivery_s: int = 0
    """How late a firing is delivered; what is on its way comes although the schedule was moved or removed."""
    twice: bool = False
    """Each firing is delivered twice: at least once is what EventBridge Scheduler promises."""
    armed: dict[str, Schedule] = field(default_factory=dict)
    log: list[tuple[int, str, int]] = field(default_factory=list)
    """(when, name, start) of each arming."""

    def arm(self, name: str, start: int, end: int, target: Target) -> None:
        """Create or rewrite a schedule that fires every ten minutes from ``start`` to ``end``."""
        self.remove(name)
        schedule = Schedule(name, start, end, target, armed_at=self.events.now)
        self.armed[name] = schedule
        self.log.append((self.events.now, name, start))
        self.events.at(max(start, self.events.now), lambda now: self._fire(schedule, now))

    def remove(self, name: str) -> bool:
        """Delete a schedule; False when there was none."""
        schedule = self.armed.pop(name, None)
        if schedule is not None:
            schedule.removed = True
        return schedule is not None

    def _fire(self, schedule: Schedule, now: int) -> None:
        if schedule.removed or now >= schedule.end:
            return
        schedule.fired += 1
        self.events.at(now + RATE_S, lambda moment: self._fire(schedule, moment))
        if self.delivery_s:
            self.events.at(now + self.delivery_s, lambda moment: self._deliver(schedule, moment))
        else:
            self._deliver(schedule, now)
        if self.twice:
            again = now + self.delivery_s + AGAIN_S * (schedule.fired % 4 + 1)
            self.events.at(again, lambda moment: self._deliver(schedule, moment))

    def _deliver(self, schedule: Schedule, now: int) -> None:
        with suppress(AwsFault):
            schedule.target(now)
