"""EventBridge Scheduler on the local clock: schedules kept by moto really call their targets.

Of targets it calls the universal one for SageMaker, ``arn:aws:scheduler:::aws-sdk:sagemaker:<action>``.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from peagle_sm.local.clock import LocalClock
from peagle_sm.local.control import ApiError
from peagle_sm.local.schedules import Schedule, first_due, is_supported, next_due, retry_delay

log = logging.getLogger(__name__)

_UNIVERSAL = "arn:aws:scheduler:::aws-sdk:sagemaker:"
# A clock moved far ahead stops at so many due times; beyond them it jumps.
_MOST_STEPS = 2_000

Call = Callable[[str, dict[str, Any]], Awaitable[object]]
DeadLetter = Callable[[str, str, Mapping[str, str]], None]


@dataclass
class _Attempt:
    """An invocation that failed and is to be tried again."""

    scheduled: datetime
    number: int
    at: datetime


@dataclass
class _Watch:
    """What is known of one schedule between two looks."""

    schedule: Schedule
    due: datetime | None
    retry: _Attempt | None = None

    def wants(self) -> datetime | None:
        moments = [m for m in (self.due, self.retry.at if self.retry else None) if m is not None]
        return min(moments, default=None)


class Scheduler:
    """Fires due schedules."""

    def __init__(
        self,
        *,
        clock: LocalClock,
        schedules: Callable[[], Sequence[Schedule]],
        call: Call,
        remove: Callable[[Schedule], None],
        dead_letter: DeadLetter,
    ) -> None:
        """Take the clock, where schedules are kept, and what calls SageMaker.

        ``dead_letter`` gets (queue ARN, body, attributes); ``remove`` deletes a completed schedule.
        """
        self._clock = clock
        self._schedules = schedules
        self._call = call
        self._remove = remove
        self._dead_letter = dead_letter
        self._watched: dict[tuple[str, str], _Watch] = {}
        self._turn = asyncio.Lock()

    def observe(self) -> None:
        """Take note of schedules that were made, changed or deleted."""
        now = self._clock.now()
        kept = {schedule.key: schedule for schedule in self._schedules()}
        for key in self._watched.keys() - kept.keys():
            del self._watched[key]
        for key, schedule in kept.items():
            known = self._watched.get(key)
            if known is None or known.schedule != schedule:
                if not is_supported(schedule.expression):
                    log.warning("schedule %s: %s is not fired locally", schedule.name, schedule.expression)
                self._watched[key] = _Watch(schedule, first_due(schedule, now))

    async def tick(self) -> None:
        """Fire everything that is due by now, in the order of the due times."""
        async with self._turn:
            self.observe()
            while (watch := self._most_due()) is not None:
                await self._fire(watch)

    async def advance(self, seconds: float) -> datetime:
        """Move the clock forward, stopping at every due time on the way; return the new time."""
        goal = self._clock.now() + timedelta(seconds=seconds)
        for _ in range(_MOST_STEPS):
            await self.tick()
            moments = [m for m in (watch.wants() for watch in self._active()) if m is not None]
            following = min(moments, default=None)
            if following is None or following > goal:
                break
            self._clock.advance(max(0.0, (following - self._clock.now()).total_seconds()))
            await asyncio.sleep(0)
        self._clock.advance(max(0.0, (goal - self._clock.now()).total_seconds()))
        await self.tick()
        return self._clock.now()

    def _active(self) -> list[_Watch]:
        return [watch for watch in self._watched.values() if watch.schedule.enabled]

    def _most_due(self) -> _Watch | None:
        now = self._clock.now()
        due = [(at, watch) for watch in self._active() if (at := watch.wants()) is not None and at <= now]
        return min(due, key=lambda pair: pair[0])[1] if due else None

    async def _fire(self, watch: _Watch) -> None:
        schedule, retry = watch.schedule, watch.retry
        if retry is not None and (watch.due is None or retry.at <= watch.due):
            watch.retry = None
            await self._invoke(watch, retry.scheduled, retry.number)
        elif watch.due is not None:
            scheduled = watch.due
            watch.due = next_due(schedule, scheduled)
            await self._invoke(watch, scheduled, 0)
        if watch.wants() is None and schedule.delete_after_completion:
            self._remove(schedule)
            self._watched.pop(schedule.key, None)

    async def _invoke(self, watch: _Watch, scheduled: datetime, attempt: int) -> None:
        schedule = watch.schedule
        try:
            action, parameters = _universal_target(schedule.target)
            await self._call(action, parameters)
        except ApiError as error:
            log.warning("schedule %s: %s: %s", schedule.name, error.code, error.message)
            if error.status < 500:  # the request itself is wrong: AWS does not try it again (assumed)
                self._give_up(schedule, scheduled, attempt, error, "")
            else:
                self._try_again(watch, scheduled, attempt + 1, error)
        else:
            log.info("schedule %s called %s", schedule.name, schedule.target.get("Arn"))

    def _try_again(self, watch: _Watch, scheduled: datetime, attempt: int, error: ApiError) -> None:
        policy = watch.schedule.target.get("RetryPolicy", {})
        at = self._clock.now() + retry_delay(attempt)
        oldest = timedelta(seconds=int(policy.get("MaximumEventAgeInSeconds", 86_400)))
        if attempt > int(policy.get("MaximumRetryAttempts", 185)):
            self._give_up(watch.schedule, scheduled, attempt - 1, error, "MaximumRetryAttempts")
        elif at - scheduled > oldest:
            self._give_up(watch.schedule, scheduled, attempt - 1, error, "MaximumEventAgeInSeconds")
        else:
            watch.retry = _Attempt(scheduled, attempt, at)

    def _give_up(
        self, schedule: Schedule, scheduled: datetime, retries: int, error: ApiError, exhausted: str
    ) -> None:
        queue = schedule.target.get("DeadLetterConfig", {}).get("Arn")
        if not queue:
            return
        attributes = {
            "ERROR_CODE": error.code,
            "ERROR_MESSAGE": error.message,
            "RETRY_ATTEMPTS": str(retries),
            "SCHEDULED_TIME": scheduled.strftime("%Y-%m-%dT%H:%M:%SZ"),
            "SCHEDULE_ARN": schedule.arn,
            "TARGET_ARN": str(schedule.target.get("Arn")),
        }
        if exhausted:
            attributes["EXHAUSTED_RETRY_CONDITION"] = exhausted
        self._dead_letter(queue, str(schedule.target.get("Input", "{}")), attributes)


def _universal_target(target: Mapping[str, Any]) -> tuple[str, dict[str, Any]]:
    arn = str(target.get("Arn", ""))
    if not arn.startswith(_UNIVERSAL):
        raise ApiError(
            "ValidationException", f"the local scheduler calls {_UNIVERSAL}<action> only, found {arn}"
        )
    action = arn.removeprefix(_UNIVERSAL)
    try:
        parameters = json.loads(target.get("Input") or "{}")
    except json.JSONDecodeError as error:
        raise ApiError("ValidationException", f"the target's Input is not JSON: {error}") from error
    return action[:1].upper() + action[1:], parameters
