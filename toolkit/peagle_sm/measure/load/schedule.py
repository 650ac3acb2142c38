"""Which request is next, and to which phase it belongs. Pure: it is told the time."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from peagle_sm.measure.load.work import LoadOptions, WorkItem
from peagle_sm.measure.records import Load, Phase


@dataclass(frozen=True)
class Ticket:
    """Leave to send one item (and the conversation that follows from it)."""

    item: WorkItem
    phase: Phase


class Schedule:
    """Hands out tickets: warm-up first, then the window, then (with ``drain="keep"``) the drain.

    The window begins with the first measured request. It ends after ``seconds``; or when the last of
    ``requests`` has been sent and a place finds nothing more to do, since from then on fewer are in flight
    than the load says; in an open loop when the arrival after the last one would have come.
    """

    def __init__(
        self,
        load: Load,
        options: LoadOptions,
        items: Iterator[WorkItem],
        start: float,
        on_phase: Callable[[Phase], None],
    ) -> None:
        """``start``: the load's begin by the clock; ``on_phase`` is called as each phase begins."""
        default = load.concurrency or 0 if load.kind == "closed" and not options.warm_up_s else 0
        asked = options.warm_up_requests
        self._warm_up_left = default if asked is None else asked
        self._warm_until = start + max(options.warm_up_s, options.ramp_s)
        self._options = options
        self._items = items
        self._on_phase = on_phase
        self._measured = 0
        self._in_flight = 0
        self._phase: Phase | None = None
        self.window_start: float | None = None
        self.window_end: float | None = None

    def next(self, now: float) -> Ticket | None:
        """Return the next ticket at ``now`` (an arrival's due time, or when a place is free), or None."""
        if self.window_end is None and self._is_over(now):
            self.end(now)
        if self.window_end is not None and (self._options.drain == "finish" or not self._in_flight):
            return None
        item = next(self._items, None)
        if item is None:
            self.end(now)
            return None
        phase = self._phase_at(now)
        self._enter(phase, now)
        if phase == "measured":
            self._measured += 1
            self._in_flight += 1
        elif phase == "warm-up":
            self._warm_up_left -= 1
        return Ticket(item, phase)

    def done(self, ticket: Ticket) -> None:
        """A ticket's requests have ended."""
        if ticket.phase == "measured":
            self._in_flight -= 1

    def later_phase(self, ticket: Ticket) -> Phase:
        """The phase of a turn that follows in a ticket's conversation."""
        return "drain" if self.window_end is not None and ticket.phase == "measured" else ticket.phase

    def end(self, now: float) -> None:
        """End the window, at the latest now; later calls change nothing."""
        if self.window_end is not None:
            return
        seconds = self._options.seconds
        if self.window_start is None:
            self.window_start = now
        self.window_end = now if seconds is None else min(now, self.window_start + seconds)
        self._enter("drain", now)

    def _is_over(self, now: float) -> bool:
        if self.window_start is None:
            return False
        if self._options.requests is not None:
            return self._measured >= self._options.requests
        return now >= self.window_start + (self._options.seconds or 0.0)

    def _phase_at(self, now: float) -> Phase:
        if self.window_end is not None:
            return "drain"
        return "warm-up" if self._warm_up_left > 0 or now < self._warm_until else "measured"

    def _enter(self, phase: Phase, now: float) -> None:
        if phase != self._phase:
            self._phase = phase
            if phase == "measured":
                self.window_start = now
            self._on_phase(phase)
