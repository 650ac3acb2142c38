"""What people do with the toolkit in a guarded account: deploy, delete and redeploy, keep.

The lifetime is armed by the shipped code (``peagle_guard.lifetime`` and its provider); ``keep`` does what
``peagle-sm keep`` does: the schedules first, the later one before the earlier, then the register.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import Any

from peagle_guard.lifetime import Arming, arm, disarm, schedules
from peagle_guard.lifetime_provider import provide
from peagle_guard.records import Record
from peagle_guard.schedules import schedule_name
from peagle_guard.settings import Settings
from stacks.guard.simulator.account import ACCOUNT, REGION, Account, stack_name
from stacks.guard.simulator.clients import SchedulerClient
from stacks.guard.simulator.cloudformation import Stack
from stacks.guard.simulator.fake_aws import FakeRegister, moment
from stacks.guard.simulator.worlds import Lease, Plan

PREFIX = f"arn:aws:lambda:{REGION}:{ACCOUNT}:function:"
SETTINGS = Settings(
    table="peagle-guard",
    topic_arn=f"arn:aws:sns:{REGION}:{ACCOUNT}:peagle-guard-notices",
    switch_function="peagle-guard-switch",
    lifetime_function="peagle-guard-lifetime",
    scheduler_role_arn=f"arn:aws:iam::{ACCOUNT}:role/peagle-scheduler-{REGION}",
    dead_letters_arn=f"arn:aws:sqs:{REGION}:{ACCOUNT}:peagle-guard-dead-letters",
)


@dataclass
class GuardedAccount(Account):
    """An account in which every endpoint of ours has its lifetime armed before it is created."""

    register: FakeRegister = field(init=False)
    schedules: SchedulerClient = field(init=False)
    kept: dict[int, list[Lease]] = field(default_factory=dict)
    """The leases of each life (by its identity) that reached the register."""

    def arming(self, plan: Plan, now: int) -> None:
        """Arm the lifetime by the shipped code; people try until it works, a function only once."""
        if plan.owner == "stack":
            event = {"RequestType": "Create", "ResourceProperties": self._properties(plan)}
            provide(self.schedules, self.register, SETTINGS, event, moment(now))
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
            armed = schedules(self._arming(plan, self.events.now))
            disarm(self.schedules, [request["Name"] for request in armed])
            return
        event = {
            "RequestType": "Delete",
            "PhysicalResourceId": schedule_name(plan.name),
            "ResourceProperties": self._properties(plan),
        }
        provide(self.schedules, self.register, SETTINGS, event, moment(self.events.now))

    def turn(self, stack: Stack, state: str, now: int) -> None:
        """A stack's update: its lifetime goes once its endpoint has begun to go."""
        with self.patience():
            super().turn(stack, state, now)
            life = self.sagemaker.live.get(stack.endpoint)
            if state == "off" and (life is None or life.deleting_at is not None) and self.functions_run(now):
                self.disarm(self.plans[stack.endpoint])

    def keep(self, lease: Lease, now: int) -> None:
        """``peagle-sm keep``: a lost lease never reaches the register."""
        life = self.sagemaker.live.get(lease.endpoint)
        if lease.lost or life is None or life.deleting_at is not None or not life.plan.ours:
            return
        plan = life.plan
        record = self.register.records.get(plan.name, Record(plan.name))
        # It never shortens what was promised before, and a promise ends with the endpoint it was made of.
        current = record.created_at in (None, moment(life.created_at))
        record = record if current else Record(plan.name, version=record.version)
        before = record.keep_until
        until = max(moment(lease.until), before or moment(lease.until))
        promised = moment(life.created_at) + timedelta(hours=plan.lifetime_hours)
        expires = max(until, promised, record.expires_at or until)
        with self.patience():
            for request in reversed(schedules(replace(self._arming(plan, now), expires_at=expires))):
                if request["Name"] in self.scheduler.armed:
                    self.schedules.update_schedule(**request)
        self.register.records[plan.name] = replace(
            record, keep_until=until, expires_at=expires, version=record.version + 1
        )
        self.kept.setdefault(id(life), []).append(lease)

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
