"""Schedules fire on the local clock: when, how often, with which retries, and what happens in the end."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sagemaker_local.clock import LocalClock
from sagemaker_local.control import ApiError
from sagemaker_local.scheduler.schedules import Schedule, first_due, next_due, retry_delay
from sagemaker_local.scheduler.service import Scheduler

NOW = datetime(2026, 11, 20, 12, 0, tzinfo=UTC)
TARGET = {
    "Arn": "arn:aws:scheduler:::aws-sdk:sagemaker:deleteEndpoint",
    "RoleArn": "arn:aws:iam::123456789012:role/scheduler",
    "Input": '{"EndpointName": "e"}',
    "RetryPolicy": {"MaximumEventAgeInSeconds": 86_400, "MaximumRetryAttempts": 185},
}


def schedule(expression: str = "rate(10 minutes)", **changes: Any) -> Schedule:
    plain = Schedule(
        group="default",
        name="s",
        arn="arn:aws:scheduler:us-east-1:123456789012:schedule/default/s",
        expression=expression,
        timezone="UTC",
        start=None,
        end=None,
        enabled=True,
        target=TARGET,
        delete_after_completion=False,
        revision=0.0,
    )
    return replace(plain, **changes)


class Functions:
    """Stands in for Lambda: takes events, works a while on each, and notes which events it was given."""

    def __init__(self, clock: LocalClock) -> None:
        self.events: list[tuple[str, str, Any]] = []
        self.done = 0
        self.work_s = 0.01
        self.faults: list[ApiError] = []
        self.during: Callable[[], Awaitable[None]] | None = None
        self._clock = clock
        self._trying: set[asyncio.Task[None]] = set()

    @property
    def busy(self) -> bool:
        return bool(self._trying)

    def send(self, name_or_arn: str, event: Any) -> None:
        if self.faults:
            raise self.faults.pop(0)
        self.events.append((self._clock.now().strftime("%d %H:%M:%S"), name_or_arn.rsplit(":", 1)[-1], event))
        task = asyncio.create_task(self._work())
        self._trying.add(task)
        task.add_done_callback(self._trying.discard)

    def due(self) -> datetime | None:
        return None

    def start_due(self) -> None:
        pass

    async def settle(self) -> None:
        while self._trying:
            await asyncio.wait(set(self._trying))

    async def _work(self) -> None:
        await asyncio.sleep(self.work_s)
        if self.during is not None:
            await self.during()
        self.done += 1


class World:
    """A scheduler with a clock that stands still unless moved, and a record of what it did."""

    def __init__(self, *schedules: Schedule) -> None:
        self.kept = list(schedules)
        self.calls: list[tuple[str, str, dict[str, Any]]] = []
        self.dead: list[tuple[str, str, Mapping[str, str]]] = []
        self.faults: list[ApiError] = []
        self.clock = LocalClock(wall=lambda: NOW)
        self.functions = Functions(self.clock)
        self.trusted = True
        self.scheduler = Scheduler(
            clock=self.clock,
            schedules=lambda: list(self.kept),
            call=self._call,
            remove=self.kept.remove,
            dead_letter=lambda *letter: self.dead.append(letter),
            functions=self.functions,
            trusts=lambda role, service: self.trusted and service == "scheduler.amazonaws.com",
        )

    async def _call(self, action: str, parameters: dict[str, Any]) -> object:
        self.calls.append((self.clock.now().strftime("%d %H:%M:%S"), action, parameters))
        if self.faults:
            raise self.faults.pop(0)
        return {}

    @property
    def times(self) -> list[str]:
        return [at for at, _, _ in self.calls]


async def test_a_rate_without_a_start_fires_at_once_and_then_again() -> None:
    world = World(schedule())
    await world.scheduler.tick()
    assert world.calls == [("20 12:00:00", "DeleteEndpoint", {"EndpointName": "e"})]
    await world.scheduler.advance(25 * 60)
    assert world.times == ["20 12:00:00", "20 12:10:00", "20 12:20:00"]


async def test_the_lifetime_rule_waits_for_its_start_and_ends_a_day_later() -> None:
    start = NOW + timedelta(hours=2)
    world = World(schedule(start=start, end=start + timedelta(minutes=30)))
    await world.scheduler.advance(7199)
    assert world.calls == []
    await world.scheduler.advance(86_400)
    assert world.times == ["20 14:00:00", "20 14:10:00", "20 14:20:00"]


async def test_at_fires_once_in_its_own_time_zone_and_may_delete_itself() -> None:
    once = schedule("at(2026-11-20T14:30:00)", timezone="Europe/Berlin", delete_after_completion=True)
    world = World(once)
    await world.scheduler.advance(7200)
    assert world.times == ["20 13:30:00"]
    assert world.kept == []


async def test_a_disabled_schedule_and_a_cron_one_stay_silent() -> None:
    world = World(schedule(enabled=False), schedule("cron(0 12 * * ? *)", name="c"))
    await world.scheduler.advance(3600)
    assert world.calls == []


async def test_a_changed_schedule_starts_over_and_a_deleted_one_is_forgotten() -> None:
    world = World(schedule(start=NOW + timedelta(minutes=5)))
    await world.scheduler.tick()
    world.kept[:] = [schedule(start=NOW + timedelta(hours=5), revision=1.0)]
    await world.scheduler.advance(3600)
    assert world.calls == []
    world.kept.clear()
    await world.scheduler.advance(86_400)
    assert world.calls == []


async def test_a_fault_is_tried_again_with_growing_delays() -> None:
    world = World(schedule("at(2026-11-20T12:00:00)"))
    world.faults = [ApiError("InternalFailure", "later", 500)] * 3
    await world.scheduler.advance(60)
    assert world.times == ["20 12:00:00", "20 12:00:01", "20 12:00:03", "20 12:00:07"]


@pytest.mark.parametrize(
    ("policy", "calls", "exhausted"),
    [
        ({"MaximumRetryAttempts": 2}, 3, "MaximumRetryAttempts"),
        ({"MaximumEventAgeInSeconds": 60}, 6, "MaximumEventAgeInSeconds"),
    ],
)
async def test_retries_end_in_the_dead_letter_queue(
    policy: dict[str, int], calls: int, exhausted: str
) -> None:
    queue = "arn:aws:sqs:us-east-1:123456789012:dead"
    target = {**TARGET, "RetryPolicy": policy, "DeadLetterConfig": {"Arn": queue}}
    world = World(schedule("at(2026-11-20T12:00:00)", target=target))
    world.faults = [ApiError("InternalFailure", "never", 500)] * 50
    await world.scheduler.advance(3600)
    assert len(world.calls) == calls
    ((to, body, about),) = world.dead
    assert (to, body) == (queue, TARGET["Input"])
    assert about["EXHAUSTED_RETRY_CONDITION"] == exhausted
    assert about["ERROR_CODE"] == "InternalFailure"


async def test_a_refusal_is_not_tried_again() -> None:
    target = {**TARGET, "DeadLetterConfig": {"Arn": "arn:aws:sqs:us-east-1:123456789012:dead"}}
    world = World(schedule("at(2026-11-20T12:00:00)", target=target))
    world.faults = [ApiError("ValidationException", "Cannot update in-progress endpoint")]
    await world.scheduler.advance(3600)
    assert len(world.calls) == 1
    assert world.dead[0][2]["ERROR_MESSAGE"] == "Cannot update in-progress endpoint"


@pytest.mark.parametrize(
    "target",
    [
        {**TARGET, "Arn": "arn:aws:sqs:us-east-1:123456789012:queue"},
        {**TARGET, "Input": "{not json"},
    ],
)
async def test_a_target_that_cannot_be_called_is_given_up(target: dict[str, Any]) -> None:
    queue = {"Arn": "arn:aws:sqs:us-east-1:123456789012:dead"}
    world = World(schedule("at(2026-11-20T12:00:00)", target={**target, "DeadLetterConfig": queue}))
    await world.scheduler.tick()
    assert world.calls == []
    assert world.dead[0][2]["ERROR_CODE"] == "ValidationException"


FUNCTION = {**TARGET, "Arn": "arn:aws:lambda:us-east-1:123456789012:function:sweeper"}
TELLING = {
    "time": "<aws.scheduler.scheduled-time>",
    "schedule": "<aws.scheduler.schedule-arn>",
    "execution": "<aws.scheduler.execution-id>",
    "attempt": "<aws.scheduler.attempt-number>",
}


async def test_a_function_gets_the_input_with_the_context_attributes_filled_in() -> None:
    target = {**FUNCTION, "Input": json.dumps(TELLING)}
    world = World(schedule(target=target, start=NOW + timedelta(minutes=5)))
    await world.scheduler.advance(3600)
    assert len(world.functions.events) == 6
    at, name, event = world.functions.events[1]
    assert (at, name) == ("20 12:15:00", "sweeper")
    assert (event["time"], event["attempt"]) == ("2026-11-20T12:15:00Z", "1")
    assert event["schedule"] == world.kept[0].arn
    executions = {each["execution"] for _, _, each in world.functions.events}
    assert len(executions) == 6


async def test_a_late_event_carries_the_time_it_was_due_at() -> None:
    target = {**FUNCTION, "Input": '{"time": "<aws.scheduler.scheduled-time>"}'}
    world = World(schedule("at(2026-11-20T12:00:30)", target=target))
    await world.scheduler.tick()
    world.clock.advance(600)
    await world.scheduler.tick()
    assert world.functions.events == [("20 12:10:00", "sweeper", {"time": "2026-11-20T12:00:30Z"})]


async def test_a_function_without_input_gets_scheduler_s_own_event() -> None:
    target = {name: value for name, value in FUNCTION.items() if name != "Input"}
    world = World(schedule(target=target))
    await world.scheduler.tick()
    ((_, _, event),) = world.functions.events
    assert (event["source"], event["detail-type"]) == ("aws.scheduler", "Scheduled Event")
    assert (event["time"], event["resources"]) == ("2026-11-20T12:00:00Z", [world.kept[0].arn])


async def test_moving_the_clock_waits_for_the_functions_that_it_called() -> None:
    world = World(schedule(target=FUNCTION))
    await world.scheduler.advance(30 * 60)
    assert len(world.functions.events) == world.functions.done == 4


async def test_a_function_may_make_a_schedule_while_it_runs() -> None:
    """The front lets the scheduler know of every change, so it comes back in the middle of a firing."""
    world = World(schedule("at(2026-11-20T12:05:00)", target=FUNCTION))

    async def make_another() -> None:
        world.functions.during = None
        world.kept.append(schedule("at(2026-11-20T12:06:00)", name="made by the function"))
        await world.scheduler.tick()

    world.functions.during = make_another
    async with asyncio.timeout(5):
        await world.scheduler.advance(3600)
    assert world.times == ["20 12:06:00"]


async def test_a_throttled_function_is_tried_again_with_the_same_execution_id() -> None:
    target = {**FUNCTION, "Input": json.dumps(TELLING)}
    world = World(schedule("at(2026-11-20T12:00:00)", target=target))
    world.functions.faults = [ApiError("TooManyRequestsException", "Rate Exceeded.", 429)] * 2
    await world.scheduler.advance(60)
    ((at, _, event),) = world.functions.events
    assert (at, event["attempt"], event["time"]) == ("20 12:00:03", "3", "2026-11-20T12:00:00Z")


async def test_a_function_that_is_gone_goes_to_the_dead_letters() -> None:
    queue = {"Arn": "arn:aws:sqs:us-east-1:123456789012:dead"}
    world = World(schedule(target={**FUNCTION, "DeadLetterConfig": queue}))
    world.functions.faults = [ApiError("ResourceNotFoundException", "Function not found: f", 404)]
    await world.scheduler.tick()
    ((to, _, about),) = world.dead
    assert to == queue["Arn"]
    assert (about["ERROR_CODE"], about["TARGET_ARN"]) == ("ResourceNotFoundException", FUNCTION["Arn"])


async def test_a_role_that_is_gone_when_the_schedule_fires_stops_it() -> None:
    queue = {"Arn": "arn:aws:sqs:us-east-1:123456789012:dead"}
    world = World(schedule(target={**TARGET, "DeadLetterConfig": queue}))
    world.trusted = False
    await world.scheduler.tick()
    assert world.calls == []
    assert world.dead[0][2]["ERROR_CODE"] == "AccessDeniedException"


async def test_a_jump_over_years_does_not_call_a_function_for_every_minute_of_them() -> None:
    world = World(schedule("rate(1 minute)", target=FUNCTION))
    world.functions.work_s = 0.0
    await world.scheduler.advance(366 * 86_400)
    assert len(world.functions.events) < 2_100
    at, _, _ = world.functions.events[-1]
    assert at == "21 12:00:00"


@given(minutes=st.integers(1, 5000), ago=st.integers(-100_000, 100_000))
def test_a_rate_never_fires_before_it_was_made_and_keeps_step_with_its_start(minutes: int, ago: int) -> None:
    start = NOW - timedelta(seconds=ago)
    rule = schedule(f"rate({minutes} minutes)", start=start)
    due = first_due(rule, NOW)
    assert due is not None
    assert due >= NOW
    assert (due - start) % timedelta(minutes=minutes) == timedelta()
    assert due < max(NOW, start) + timedelta(minutes=minutes)
    assert next_due(rule, due) == due + timedelta(minutes=minutes)


def test_retry_delays_double_up_to_ten_minutes() -> None:
    assert [retry_delay(n).total_seconds() for n in (1, 2, 3, 10, 11, 200)] == [1, 2, 4, 512, 600, 600]
