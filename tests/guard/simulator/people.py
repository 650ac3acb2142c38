"""What people do with the toolkit in a guarded account: deploy, delete and redeploy, keep.

The lifetime is armed by the shipped code (``peagle_guard.lifetime_provider``); ``keep`` does what
``peagle-sm keep`` does: the schedules first, the later one before the earlier, then the register.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import partial
from typing import Any

from peagle_guard.lifetime_provider import Arming, arm, disarm_all, provide, schedules
from peagle_guard.records import Record
from peagle_guard.settings import Settings
from peagle_sm.core.plan.tags_and_schedules import schedule_name
from tests.guard.simulator.fake_services.account import ACCOUNT, REGION, Account, stack_name
from tests.guard.simulator.fake_services.clients import SageMakerClient, SchedulerClient
from tests.guard.simulator.fake_services.cloudformation import Stack
from tests.guard.simulator.fake_services.dynamodb import TableRegister
from tests.guard.simulator.fake_services.fake_aws import moment, seconds
from tests.guard.simulator.fake_services.sagemaker import Life
from tests.guard.simulator.worlds.world import Lease, Plan

PREFIX = f"arn:aws:lambda:{REGION}:{ACCOUNT}:function:"
SETTINGS = Settings(
    table="peagle-guard",
    topic_arn=f"arn:aws:sns:{REGION}:{ACCOUNT}:peagle-guard-notices",
    switch_function="peagle-guard-switch",
    lifetime_function="peagle-guard-lifetime",
    scheduler_role_arn=f"arn:aws:iam::{ACCOUNT}:role/peagle-scheduler-{REGION}",
    dead_letters_arn=f"arn:aws:sqs:{REGION}:{ACCOUNT}:peagle-guard-dead-letters",
)


CLAIM_S = 180
FIRING_S = 120
POLL_S = 10
"""As in ``peagle_sm.service.guard.keep``."""


@dataclass(frozen=True, slots=True)
class Keeping:
    """One ``peagle-sm keep`` under way."""

    lease: Lease
    life: Life
    expired_at: int
    """The start of the lifetime schedule as it was read."""
    called_at: int


@dataclass
class GuardedAccount(Account):
    """An account in which every endpoint of ours has its lifetime armed before it is created."""

    register: TableRegister = field(init=False)
    schedules: SchedulerClient = field(init=False)
    kept: dict[int, list[Lease]] = field(default_factory=dict)
    """The leases of each life (by its identity) that reached the register."""

    def arming(self, plan: Plan, now: int) -> None:
        """Arm the lifetime by the shipped code; people try until it works, a function only once."""
        if plan.owner == "stack":
            event = {"RequestType": "Create", "ResourceProperties": self._properties(plan)}
            provide(self.schedules, SageMakerClient(self), self.register, SETTINGS, event, moment(now))
        else:
            arm(self.schedules, self._arming(plan, now))

    def deploy(self, plan: Plan, now: int) -> None:
        """Deploy with the toolkit or CloudFormation, which repeat what is throttled."""
        with self.patience():
            super().deploy(plan, now)

    def forget(self, name: str) -> None:
        """Remove the schedules with the endpoint: a stack by the shipped provider, the toolkit itself."""
        super().forget(name)
        plan = self.plans.get(name)
        if plan is not None and plan.ours:
            self.disarm(plan)

    def disarm(self, plan: Plan) -> None:
        """Remove the schedules of an endpoint."""
        if plan.owner != "stack":
            disarm_all(self.schedules, schedule_name(plan.name))
            return
        event = {
            "RequestType": "Delete",
            "PhysicalResourceId": schedule_name(plan.name),
            "ResourceProperties": self._properties(plan),
        }
        now = moment(self.events.now)
        provide(self.schedules, SageMakerClient(self), self.register, SETTINGS, event, now)

    def turn(self, stack: Stack, state: str, now: int) -> None:
        """A stack's update: its lifetime goes once its endpoint has begun to go."""
        with self.patience():
            super().turn(stack, state, now)
            life = self.sagemaker.live.get(stack.endpoint)
            if state == "off" and (life is None or life.deleting_at is not None):
                gone_in = 0 if life is None else life.plan.drain_s
                self.events.at(now + gone_in, lambda moment: self._disarm_with_its_stack(stack, moment))

    def _disarm_with_its_stack(self, stack: Stack, now: int) -> None:
        if stack.state == "off" and self.functions_run(now):
            with self.patience():
                self.disarm(self.plans[stack.endpoint])

    def keep(self, lease: Lease, now: int) -> None:
        """``peagle-sm keep``, step by step as ``service.keeping``; each step takes the user's time.

        It refuses what is being turned off, writes the register, moves the schedules, and looks once more.
        Whoever gets an error was promised nothing; a lost lease never reaches the register.
        """
        life = self.sagemaker.live.get(lease.endpoint)
        if lease.lost or life is None or not life.plan.ours or self._goes(life):
            return
        limit = self.scheduler.armed.get(schedule_name(life.plan.name))
        if limit is not None:
            self._after(lease.takes_s, partial(self._claim, Keeping(lease, life, limit.start, now)))

    def _after(self, delay_s: int, event: Callable[[int], None]) -> None:
        if delay_s:
            self.events.at(self.events.now + delay_s, event)
        else:
            event(self.events.now)

    def _goes(self, life: Life) -> bool:
        """Whether DescribeEndpoint or the stack's parameter shows that it is being turned off."""
        stack = self.cloudformation.stacks.get(stack_name(life.plan))
        return (
            self.sagemaker.live.get(life.plan.name) is not life
            or life.deleting_at is not None
            or (stack is not None and stack.state == "off")
        )

    def _claim(self, keeping: Keeping, now: int) -> None:
        """Write the register, unless the guard has just begun to turn the endpoint off: then wait."""
        life = keeping.life
        record = self.register.record(life.plan.name) or Record(life.plan.name)
        fresh = record.created_at in (None, moment(life.created_at))
        claimed = record.off_at is not None and now - seconds(record.off_at) < CLAIM_S
        if fresh and (record.parting or claimed):
            if not record.parting and now < keeping.called_at + 2 * CLAIM_S and not self._goes(life):
                self.events.at(now + POLL_S, partial(self._claim, keeping))
            return
        # A promise ends with the endpoint it was made of.
        record = record if fresh else Record(life.plan.name, version=record.version)
        until = moment(keeping.lease.until)
        expires = max(until, moment(keeping.expired_at))
        kept = replace(
            record,
            keep_until=max(until, record.keep_until or until),
            expires_at=max(expires, record.expires_at or expires),
            version=record.version + 1,
        )
        self.register.store(kept, moment(now))
        self._after(keeping.lease.takes_s, partial(self._move, keeping, expires))

    def _move(self, keeping: Keeping, expires: datetime, now: int) -> None:
        """Move the schedules, the later one before the earlier, and wait out a firing of the old end."""
        plan = keeping.life.plan
        if seconds(expires) > keeping.expired_at:
            with self.patience():
                record = self.register.record(plan.name)
                expires = max(expires, (record and record.expires_at) or expires)
                for request in reversed(schedules(replace(self._arming(plan, now), expires_at=expires))):
                    if request["Name"] in self.scheduler.armed:
                        self.schedules.update_schedule(**request)
            if keeping.expired_at <= now < keeping.expired_at + FIRING_S:
                self.events.at(keeping.expired_at + FIRING_S, partial(self._promise, keeping))
                return
        self._promise(keeping, now)

    def _promise(self, keeping: Keeping, now: int) -> None:
        """The user hears that it is kept, unless it is being turned off by now."""
        end = keeping.life.expires_at
        if end <= now < end + FIRING_S:  # Another `keep` may have moved this end just now.
            self.events.at(end + FIRING_S, partial(self._promise, keeping))
            return
        if not self._goes(keeping.life):
            self.kept.setdefault(id(keeping.life), []).append(keeping.lease)

    def _arming(self, plan: Plan, now: int) -> Arming:
        stacked = plan.owner == "stack"
        return Arming(
            name=schedule_name(plan.name),
            endpoint=plan.name,
            expires_at=moment(now + round(plan.lifetime_hours * 3600)),
            role_arn=SETTINGS.scheduler_role_arn,
            dead_letters_arn=SETTINGS.dead_letters_arn,
            switch_arn=PREFIX + SETTINGS.switch_function if stacked else "",
            stack=stack_name(plan) if stacked else "",
            components=_components(plan),
        )

    def _properties(self, plan: Plan) -> dict[str, Any]:
        return {
            "ServiceToken": PREFIX + SETTINGS.lifetime_function,
            "EndpointName": plan.name,
            "StackName": stack_name(plan),
            "MaxLifetimeHours": str(plan.lifetime_hours),
            "ScheduleName": schedule_name(plan.name),
            "InferenceComponentNames": list(_components(plan)),
        }


def _components(plan: Plan) -> tuple[str, ...]:
    return tuple(name for name, _ in plan.traffic) if plan.components else ()
