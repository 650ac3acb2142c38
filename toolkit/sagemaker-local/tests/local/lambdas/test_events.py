"""Asynchronous events on the local clock: when they are tried again, and when they are given up."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta

import pytest

from sagemaker_local.clock import LocalClock
from sagemaker_local.control import ApiError
from sagemaker_local.lambdas.events import Event, EventQueue
from sagemaker_local.lambdas.records import Function
from sagemaker_local.lambdas.runner import Outcome

NOW = datetime(2026, 11, 20, 12, 0, tzinfo=UTC)
WELL = Outcome("r", b"1", None, [], 1.0)
BROKEN = Outcome("r", b'{"errorMessage": "broken"}', "Unhandled", [], 1.0)
THROTTLED = ApiError("TooManyRequestsException", "Rate Exceeded.", 429)
GONE = ApiError("ResourceNotFoundException", "Function not found: f", 404)


def function(retries: int = 2, oldest_s: int = 21_600) -> Function:
    return Function(
        name="f",
        arn="arn:aws:lambda:us-east-1:123456789012:function:f",
        handler="index.handler",
        runtime="python3.13",
        code=b"",
        code_hash="",
        environment={},
        timeout_s=3,
        memory_mb=128,
        reserved=None,
        log_group="/aws/lambda/f",
        role="arn:aws:iam::123456789012:role/f",
        retries=retries,
        oldest_s=oldest_s,
    )


class World:
    """A queue whose attempts end as they are told to, on a clock that moves from one due time to the next."""

    def __init__(self, *answers: Outcome | ApiError) -> None:
        self.answers = list(answers)
        self.times: list[float] = []
        self.given_up: list[tuple[str, Outcome | ApiError]] = []
        self.clock = LocalClock(wall=lambda: NOW)
        self.queue = EventQueue(clock=self.clock, attempt=self._attempt, give_up=self._give_up)

    async def run(self, limit: timedelta = timedelta(days=1)) -> None:
        while True:
            self.queue.start_due()
            await self.queue.settle()
            due = self.queue.due()
            if due is None or due > NOW + limit:
                return
            self.clock.advance((due - self.clock.now()).total_seconds())

    async def _attempt(self, event: Event) -> Outcome:
        self.times.append((self.clock.now() - NOW).total_seconds())
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if isinstance(answer, ApiError):
            raise answer
        return answer

    def _give_up(self, event: Event, answer: Outcome | ApiError, condition: str) -> None:
        self.given_up.append((condition, answer))


async def test_an_error_of_the_function_is_tried_again_after_one_and_after_two_minutes() -> None:
    world = World(BROKEN)
    world.queue.add(function(), {})
    await world.run()
    assert world.times == [0, 60, 180]
    assert world.given_up == [("RetriesExhausted", BROKEN)]


async def test_a_retry_that_goes_well_ends_it() -> None:
    world = World(BROKEN, WELL)
    world.queue.add(function(), {})
    await world.run()
    assert world.times == [0, 60]
    assert world.given_up == []
    assert world.queue.due() is None


@pytest.mark.parametrize(("retries", "attempts"), [(0, 1), (1, 2), (2, 3)])
async def test_the_function_says_how_often(retries: int, attempts: int) -> None:
    world = World(BROKEN)
    world.queue.add(function(retries), {})
    await world.run()
    assert len(world.times) == attempts


async def test_throttles_back_off_up_to_five_minutes_until_the_event_is_too_old() -> None:
    world = World(THROTTLED)
    world.queue.add(function(oldest_s=1200), {})
    await world.run()
    waits = [later - earlier for earlier, later in zip(world.times, world.times[1:], strict=False)]
    assert waits == [1, 2, 4, 8, 16, 32, 64, 128, 256, 300, 300]
    assert world.given_up == [("EventAgeExceeded", THROTTLED)]


async def test_throttles_do_not_use_up_the_retries() -> None:
    world = World(THROTTLED, BROKEN, THROTTLED, BROKEN, BROKEN, WELL)
    world.queue.add(function(), {})
    await world.run()
    assert len(world.times) == 5
    assert world.given_up == [("RetriesExhausted", BROKEN)]


async def test_a_function_deleted_in_the_meantime_is_given_up_at_once() -> None:
    world = World(BROKEN, GONE)
    world.queue.add(function(), {})
    await world.run()
    assert world.times == [0, 60]
    assert world.given_up == [("RetriesExhausted", GONE)]


async def test_closing_ends_what_is_being_tried_and_drops_what_waits() -> None:
    ended = asyncio.Event()

    async def forever(event: Event) -> Outcome:
        try:
            await asyncio.sleep(3600)
        finally:
            ended.set()
        return WELL

    queue = EventQueue(clock=LocalClock(), attempt=forever, give_up=lambda *_: None)
    queue.add(function(), {})
    await asyncio.sleep(0)
    assert queue.busy
    await queue.close()
    assert ended.is_set() or not queue.busy
    assert queue.due() is None
