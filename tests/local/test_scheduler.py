"""Schedules fire on the local clock: when, how often, with which retries, and what happens in the end."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from peagle_sm.local.clock import LocalClock
from peagle_sm.local.control import ApiError
from peagle_sm.local.scheduler import Scheduler
from peagle_sm.local.schedules import Schedule, first_due, next_due, retry_delay

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


class World:
    """A scheduler with a clock that stands still unless moved, and a record of what it did."""

    def __init__(self, *schedules: Schedule) -> None:
        self.kept = list(schedules)
        self.calls: list[tuple[str, str, dict[str, Any]]] = []
        self.dead: list[tuple[str, str, Mapping[str, str]]] = []
        self.faults: list[ApiError] = []
        self.clock = LocalClock(wall=lambda: NOW)
        self.scheduler = Scheduler(
            clock=self.clock,
            schedules=lambda: list(self.kept),
            call=self._call,
            remove=self.kept.remove,
            dead_letter=lambda *letter: self.dead.append(letter),
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
        {**TARGET, "Arn": "arn:aws:lambda:us-east-1:123456789012:function:f"},
        {**TARGET, "Input": "{not json"},
    ],
)
async def test_a_target_that_cannot_be_called_is_given_up(target: dict[str, Any]) -> None:
    queue = {"Arn": "arn:aws:sqs:us-east-1:123456789012:dead"}
    world = World(schedule("at(2026-11-20T12:00:00)", target={**target, "DeadLetterConfig": queue}))
    await world.scheduler.tick()
    assert world.calls == []
    assert world.dead[0][2]["ERROR_CODE"] == "ValidationException"


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
