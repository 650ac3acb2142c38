"""Schedule of requests: closed loops (a fixed number in flight) and open loops (Poisson arrivals).

The schedule says which request is next and to which phase it belongs (warm-up, measured, after). It is pure:
its caller passes the time.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from peagle_bench.load.answer import Answer
from peagle_bench.load.http_client import Sender, Target
from peagle_bench.load.work import Clock, LoadOptions, LoadStopped, Observer, WorkItem
from peagle_bench.results.records import Load, Phase, RequestRecord
from peagle_sm.core.errors import PeagleError
from peagle_sm.core.slice_values import slices_of_body


def arrivals(rate_per_s: float, *, seed: int) -> Iterator[float]:
    """Yield the arrival times of a Poisson process in seconds from its start, without end."""
    draws = random.Random(f"arrivals {seed}")
    expected = 0.0
    while True:
        expected += draws.expovariate(1.0)
        yield expected / rate_per_s


@dataclass(frozen=True)
class Ticket:
    """Permission to send one item (and the following turns of its conversation)."""

    item: WorkItem
    phase: Phase


class Schedule:
    """Source of tickets: warm-up first, then the window, then (with ``drain="keep"``) the drain.

    The window begins with the first measured request. It ends after ``seconds``; or, in a closed loop, when
    the last of ``requests`` has been sent and a slot finds no more work, since then fewer are in flight than
    the load requires; in an open loop, at the time of the arrival after the last one.
    """

    def __init__(
        self,
        load: Load,
        options: LoadOptions,
        items: Iterator[WorkItem],
        on_phase: Callable[[Phase], None],
    ) -> None:
        """``on_phase`` is called as each phase begins."""
        wanted = options.warm_up_requests
        self._warm_up_left = load.concurrency or 0 if wanted is None else wanted
        self._options = options
        self._items = items
        self._on_phase = on_phase
        self._measured = 0
        self._in_flight = 0
        self._phase: Phase | None = None
        self.window_start: float | None = None
        self.window_end: float | None = None

    def next(self, now: float) -> Ticket | None:
        """Return the next ticket at ``now`` (an arrival's due time, or when a slot is free), or None."""
        if self.window_end is None and self._is_over(now):
            self.end(now)
        if self.window_end is not None and (self._options.drain == "finish" or not self._in_flight):
            return None
        item = next(self._items, None)
        if item is None:
            self.end(now)
            return None
        phase = self._next_phase()
        self._enter(phase, now)
        if phase == "measured":
            self._measured += 1
            self._in_flight += 1
        elif phase == "warm-up":
            self._warm_up_left -= 1
        return Ticket(item, phase)

    def done(self, ticket: Ticket) -> None:
        """Note that a ticket's requests have ended."""
        if ticket.phase == "measured":
            self._in_flight -= 1

    def later_phase(self, ticket: Ticket) -> Phase:
        """Return the phase of a following turn in a ticket's conversation."""
        return "drain" if self.window_end is not None and ticket.phase == "measured" else ticket.phase

    def end(self, now: float) -> None:
        """End the window now, or earlier if its seconds are over; later calls change nothing."""
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

    def _next_phase(self) -> Phase:
        if self.window_end is not None:
            return "drain"
        return "warm-up" if self._warm_up_left > 0 else "measured"

    def _enter(self, phase: Phase, now: float) -> None:
        if phase != self._phase:
            self._phase = phase
            if phase == "measured":
                self.window_start = now
            self._on_phase(phase)


#: Connection errors. Only these end an open loop, whose purpose is to show the effects of overload.
_UNREACHABLE = ("ConnectionFailed", "ConnectionLost", "Timeout")
_GIVE_UP_AFTER = 20


class Drive:
    """Sender of scheduled requests: keeps the records, and stops when the endpoint fails every request."""

    def __init__(
        self,
        load: Load,
        options: LoadOptions,
        sender: Sender,
        observer: Observer,
        clock: Clock,
        began: float,
    ) -> None:
        """``began`` is the zero of the records' times, on the clock."""
        self.records: list[RequestRecord] = []
        self._load = load
        self._options = options
        self._sender = sender
        self._observer = observer
        self._clock = clock
        self._began = began
        self._failed_in_a_row = 0
        self._patience = options.give_up_after or max(_GIVE_UP_AFTER, 2 * (load.concurrency or 0))

    async def send(
        self, target: Target, item: WorkItem, phase: Phase, due: float, block: int
    ) -> tuple[RequestRecord, Answer]:
        """Send one request that was due at ``due`` and keep its record.

        Raises:
            LoadStopped: too many requests in a row failed.
            SpecError: the request cannot be sent at all.
        """
        answer = await self._sender.send(target, item.body)
        record = self._record(target.arm, item, answer, phase, due, block)
        self.records.append(record)
        self._observer.request(record)
        self._count_failures(record)
        return record, answer

    async def converse(
        self, target: Target, item: WorkItem, due: float, block: int, phase: Callable[[], Phase]
    ) -> bool:
        """Send an item and its following turns; return whether all succeeded."""
        turn: WorkItem | None = item
        while turn is not None:
            record, answer = await self.send(target, turn, phase(), due, block)
            if record.error is not None:
                return False
            turn = turn.then(answer.text) if turn.then is not None else None
            due = self._clock()
        return True

    async def closed(self, target: Target, schedule: Schedule) -> None:
        """Keep the load's concurrency in flight until the schedule ends."""

        async def place() -> None:
            task = asyncio.current_task()
            free = self._clock()
            # A library that swallows a cancellation must not keep a load running after Ctrl-C.
            while not (task and task.cancelling()):
                ticket = schedule.next(free)
                if ticket is None:
                    return
                if not await self._serve(target, schedule, ticket, free):
                    await asyncio.sleep(self._options.pause_after_error_s)
                free = self._clock()

        async with asyncio.TaskGroup() as group:
            for _ in range(self._load.concurrency or 1):
                group.create_task(place())

    async def open(self, target: Target, schedule: Schedule) -> int:
        """Send at the load's rate, however many are in flight; return the largest number in flight."""
        options = self._options
        start = self._clock()
        in_flight = most = 0

        def ended(_: object) -> None:
            nonlocal in_flight
            in_flight -= 1

        async with asyncio.TaskGroup() as group:
            for offset in arrivals(self._load.rate_per_s or 1.0, seed=options.seed):
                due = start + offset
                while (wait := due - self._clock()) > 0:  # a timer may fire a little early
                    await asyncio.sleep(wait)
                ticket = schedule.next(due)
                if ticket is None:
                    return most
                in_flight += 1
                most = max(most, in_flight)
                group.create_task(self._serve(target, schedule, ticket, due)).add_done_callback(ended)
        return most

    async def _serve(self, target: Target, schedule: Schedule, ticket: Ticket, due: float) -> bool:
        first = True

        def phase() -> Phase:
            nonlocal first
            now: Phase = ticket.phase if first else schedule.later_phase(ticket)
            first = False
            return now

        try:
            return await self.converse(target, ticket.item, due, self._options.block, phase)
        finally:
            schedule.done(ticket)

    def _count_failures(self, record: RequestRecord) -> None:
        if record.error is None:
            self._failed_in_a_row = 0
        elif self._load.kind == "closed" or record.error in _UNREACHABLE:
            self._failed_in_a_row += 1
        if self._failed_in_a_row >= self._patience:
            raise LoadStopped(
                f"{record.arm}: the last {self._failed_in_a_row} requests failed;"
                f" last error: {record.error}: {record.error_message}",
                tuple(self.records),
                next_step="Check the endpoint with `peagle-sm status`. Earlier measurements are kept.",
            )

    def _record(
        self, arm: str, item: WorkItem, answer: Answer, phase: Phase, due: float, block: int
    ) -> RequestRecord:
        began = self._began
        return RequestRecord(
            arm=arm,
            load=self._load,
            prompt_id=item.prompt_id,
            phase=phase,
            due_s=due - began,
            sent_s=answer.sent - began,
            first_s=None if answer.first is None else answer.first - began,
            last_s=None if answer.last is None else answer.last - began,
            done_s=answer.done - began,
            input_tokens=answer.input_tokens,
            output_tokens=answer.output_tokens,
            chunks=answer.chunks,
            gaps_ms=answer.gaps_ms,
            category=item.category,
            turn=item.turn,
            block=block,
            finish_reason=answer.finish_reason,
            error=answer.error,
            error_message=answer.error_message,
            drafts=answer.drafts,
            accepted=answer.accepted,
            histogram=answer.histogram,
            output_sha256=answer.output_sha256,
            text=answer.text if self._options.keep_text else None,
            client_lag_ms=(answer.sent - due) * 1000,
            distinct_4_grams=answer.distinct_4_grams,
            cached_tokens=answer.cached_tokens,
            slices=slices_of_body(item.body, item.labels),
            conversation=item.conversation,
        )


def unwrapped(group: BaseExceptionGroup[BaseException]) -> BaseException:
    """Choose the most informative error of a group: a PeagleError if there is one, else the first."""
    flat: list[BaseException] = []

    def collect(error: BaseException) -> None:
        if isinstance(error, BaseExceptionGroup):
            for inner in error.exceptions:
                collect(inner)
        else:
            flat.append(error)

    collect(group)
    return next((error for error in flat if isinstance(error, PeagleError)), flat[0])
