"""EventBridge Scheduler on the local clock: schedules kept by moto really call their targets.

A function is only handed its event, as AWS does: what it makes of it, in which time, and its own retries are
Lambda's business, so a function may call back while it runs.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from sagemaker_local.clock import LocalClock
from sagemaker_local.control import ApiError
from sagemaker_local.scheduler.schedules import (
    Schedule,
    filled_input,
    first_due,
    is_supported,
    iso,
    next_due,
    retry_delay,
)
from sagemaker_local.scheduler.targets import Call, Functions, Invocation, Targets, Trusts

log = logging.getLogger(__name__)

# A clock moved far ahead stops at so many due times; beyond them it jumps.
_MOST_STEPS = 2_000

DeadLetter = Callable[[str, str, Mapping[str, str]], None]


@dataclass(frozen=True)
class _Attempt:
    """A failed invocation that will be retried."""

    invocation: Invocation
    at: datetime


@dataclass
class _Watch:
    """Known state of one schedule between polls."""

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
        functions: Functions | None = None,
        trusts: Trusts = lambda role, service: True,
    ) -> None:
        """Set up with the clock, the store of schedules, and the targets (SageMaker and Lambda).

        ``dead_letter`` gets (queue ARN, body, attributes); ``remove`` deletes a completed schedule;
        ``trusts(role ARN, service)`` says whether a role is there and lets a service assume it.
        """
        self._clock = clock
        self._schedules = schedules
        self._targets = Targets(call=call, functions=functions, trusts=trusts)
        self._remove = remove
        self._dead_letter = dead_letter
        self._functions = functions
        self._watched: dict[tuple[str, str], _Watch] = {}
        self._turn = asyncio.Lock()

    def observe(self) -> None:
        """Read which schedules were created, changed or deleted."""
        now = self._clock.now()
        kept = {schedule.key: schedule for schedule in self._schedules()}
        for key in self._watched.keys() - kept.keys():
            del self._watched[key]
        for key, schedule in kept.items():
            known = self._watched.get(key)
            if known is None or known.schedule != schedule:
                if not is_supported(schedule.expression):
                    log.warning("schedule %s: %s never fires locally", schedule.name, schedule.expression)
                self._watched[key] = _Watch(schedule, first_due(schedule, now))

    async def tick(self) -> None:
        """Fire every schedule that is due, in the order of the due times.

        It does not wait for functions: one that makes a schedule comes back here while it runs.
        """
        async with self._turn:
            self.observe()
            while (watch := self._most_due()) is not None:
                await self._fire(watch)
        if self._functions is not None:
            self._functions.start_due()

    async def advance(self, seconds: float) -> datetime:
        """Move the clock forward, stopping at every due time on the way; return the new time.

        At each stop it waits for the functions that were called, so what they did is there when this returns.
        """
        goal = self._clock.now() + timedelta(seconds=seconds)
        for _ in range(_MOST_STEPS):
            await self._come_to_rest()
            following = self._following()
            if following is None or following > goal:
                break
            self._clock.advance(max(0.0, (following - self._clock.now()).total_seconds()))
            await asyncio.sleep(0)
        else:
            self._pass_over(goal)
        self._clock.advance(max(0.0, (goal - self._clock.now()).total_seconds()))
        await self._come_to_rest()
        return self._clock.now()

    async def _come_to_rest(self) -> None:
        """Fire what is due, and what the called functions make due."""
        await self.tick()
        while self._functions is not None and self._functions.busy:
            await self._functions.settle()
            await self.tick()

    def _pass_over(self, goal: datetime) -> None:
        """Drop occurrences of rates before ``goal``: firing them all at once is useless."""
        for watch in self._active():
            if watch.due is not None and watch.due < goal and watch.schedule.expression.startswith("rate"):
                watch.due = first_due(watch.schedule, goal)

    def _following(self) -> datetime | None:
        """Time of the next event: a schedule, or a retry of a function."""
        moments = [watch.wants() for watch in self._active()]
        if self._functions is not None:
            moments.append(self._functions.due())
        return min((moment for moment in moments if moment is not None), default=None)

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
            await self._invoke(watch, retry.invocation)
        elif watch.due is not None:
            scheduled = watch.due
            watch.due = next_due(schedule, scheduled)
            await self._invoke(watch, Invocation(scheduled))
        if watch.wants() is None and schedule.delete_after_completion:
            self._remove(schedule)
            self._watched.pop(schedule.key, None)

    async def _invoke(self, watch: _Watch, this: Invocation) -> None:
        schedule = watch.schedule
        text = filled_input(schedule, this.scheduled, this.execution_id, this.number + 1)
        try:
            await self._targets.invoke(schedule, text, this)
        except ApiError as error:
            log.warning("schedule %s: %s: %s", schedule.name, error.code, error.message)
            if error.status == 429 or error.status >= 500:
                self._try_again(watch, text, this, error)
            else:  # the request itself is wrong: AWS does not try it again (assumed)
                self._give_up(schedule, text, this, error, "")
        else:
            log.info("schedule %s called %s", schedule.name, schedule.target.get("Arn"))

    def _try_again(self, watch: _Watch, text: str, this: Invocation, error: ApiError) -> None:
        policy = watch.schedule.target.get("RetryPolicy", {})
        retry = replace(this, number=this.number + 1)
        at = self._clock.now() + retry_delay(retry.number)
        oldest = timedelta(seconds=int(policy.get("MaximumEventAgeInSeconds", 86_400)))
        if retry.number > int(policy.get("MaximumRetryAttempts", 185)):
            self._give_up(watch.schedule, text, this, error, "MaximumRetryAttempts")
        elif at - this.scheduled > oldest:
            self._give_up(watch.schedule, text, this, error, "MaximumEventAgeInSeconds")
        else:
            watch.retry = _Attempt(retry, at)

    def _give_up(
        self, schedule: Schedule, text: str, this: Invocation, error: ApiError, exhausted: str
    ) -> None:
        queue = schedule.target.get("DeadLetterConfig", {}).get("Arn")
        if not queue:
            return
        attributes = {
            "ERROR_CODE": error.code,
            "ERROR_MESSAGE": error.message,
            "EXECUTION_ID": this.execution_id,
            "RETRY_ATTEMPTS": str(this.number),
            "SCHEDULED_TIME": iso(this.scheduled),
            "SCHEDULE_ARN": schedule.arn,
            "TARGET_ARN": str(schedule.target.get("Arn")),
        }
        if exhausted:
            attributes["EXHAUSTED_RETRY_CONDITION"] = exhausted
        self._dead_letter(queue, text or "{}", attributes)
