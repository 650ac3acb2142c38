"""Asynchronous invocations on the local clock: a queue of events, with retries as Lambda makes them."""

from __future__ import annotations

import asyncio
import logging
import uuid
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from sagemaker_local.clock import LocalClock
from sagemaker_local.control import ApiError
from sagemaker_local.lambdas.records import Function
from sagemaker_local.lambdas.runner import Outcome

log = logging.getLogger(__name__)

# "Lambda attempts to run it two more times, with a one-minute wait between the first two attempts, and two
# minutes between the second and third attempts" (Lambda developer guide, asynchronous errors).
_AFTER_ERROR = (timedelta(minutes=1), timedelta(minutes=2))
# Throttles and faults of the service: "exponentially from 1 second after the first attempt to a maximum of 5
# minutes" (same page).
_LONGEST_WAIT_S = 300.0
# Interpreters that asynchronous events may start at once on this machine; the others wait, unthrottled.
_MOST_AT_ONCE = 8


@dataclass
class Event:
    """One accepted event.

    Attributes:
        due: when it is to be tried next, on the local clock.
        errors: attempts that ended in an error of the function.
        refusals: attempts that did not reach the function.
        attempts: attempts that reached the function.
    """

    function: Function
    payload: Any
    accepted: datetime
    due: datetime
    request_id: str = field(default_factory=lambda: str(uuid.uuid4()))
    errors: int = 0
    refusals: int = 0
    attempts: int = 0


class EventQueue:
    """Queue of waiting and running events."""

    def __init__(
        self,
        *,
        clock: LocalClock,
        attempt: Callable[[Event], Awaitable[Outcome]],
        give_up: Callable[[Event, Outcome | ApiError, str], None],
    ) -> None:
        self._clock = clock
        self._attempt = attempt
        self._give_up = give_up
        self._waiting: list[Event] = []
        self._trying: set[asyncio.Task[None]] = set()
        self._places = asyncio.Semaphore(_MOST_AT_ONCE)

    def add(self, function: Function, payload: Any) -> None:
        """Accept an event and start it."""
        now = self._clock.now()
        self._waiting.append(Event(function, payload, now, now))
        self.start_due()

    @property
    def busy(self) -> bool:
        """Whether an event is running."""
        return bool(self._trying)

    def due(self) -> datetime | None:
        """Time of the next attempt; None if no event waits."""
        return min((event.due for event in self._waiting), default=None)

    def start_due(self) -> None:
        """Start every event that is due."""
        now = self._clock.now()
        for event in [waiting for waiting in self._waiting if waiting.due <= now]:
            self._waiting.remove(event)
            task = asyncio.create_task(self._try(event), name=f"event for {event.function.name}")
            self._trying.add(task)
            task.add_done_callback(self._trying.discard)

    async def settle(self) -> None:
        """Wait until no event is running."""
        while self._trying:
            await asyncio.wait(set(self._trying))

    async def close(self) -> None:
        """Drop waiting events and end running ones."""
        self._waiting.clear()
        for task in self._trying:
            task.cancel()
        await asyncio.gather(*self._trying, return_exceptions=True)

    async def _try(self, event: Event) -> None:
        answer: Outcome | ApiError
        try:
            async with self._places:
                answer = await self._attempt(event)
        except ApiError as error:
            answer = error
        except Exception as error:
            log.exception("an invocation of %s failed", event.function.name)
            answer = ApiError("ServiceException", f"{type(error).__name__}: {error}", 500)
        if isinstance(answer, Outcome) and answer.error is None:
            return
        wait = self._wait_after(event, answer)
        if wait is None:
            self._give_up(event, answer, "RetriesExhausted")
        elif self._clock.now() + wait - event.accepted > timedelta(seconds=event.function.oldest_s):
            self._give_up(event, answer, "EventAgeExceeded")
        else:
            event.due = self._clock.now() + wait
            self._waiting.append(event)

    def _wait_after(self, event: Event, answer: Outcome | ApiError) -> timedelta | None:
        if isinstance(answer, Outcome):
            event.attempts += 1
            event.errors += 1
            allowed = event.errors <= event.function.retries
            return _AFTER_ERROR[event.errors - 1] if allowed else None
        if answer.status == 404:  # deleted in the meantime: nobody is left to run it
            return None
        event.refusals += 1
        return timedelta(seconds=min(2.0 ** (event.refusals - 1), _LONGEST_WAIT_S))
