"""The simulator's AWS in a test's hands: endpoints in any status, and time that passes only as the test says.

Nobody arms a lifetime, and CloudWatch shows a minute as soon as it is over.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

from peagle_guard.lifetime_provider import wake
from peagle_guard.records import Endpoint
from peagle_guard.switch import turn
from tests.guard.simulator.fake_services.account import ACCOUNT, REGION, Account
from tests.guard.simulator.fake_services.clients import SageMakerClient, SchedulerClient
from tests.guard.simulator.fake_services.cloudformation import Stack
from tests.guard.simulator.fake_services.cloudwatch import FOREVER
from tests.guard.simulator.fake_services.dynamodb import TableRegister
from tests.guard.simulator.fake_services.fake_aws import FakeAws, described, moment, seconds
from tests.guard.simulator.fake_services.sagemaker import Life
from tests.guard.simulator.fake_services.scheduler import Schedule
from tests.guard.simulator.making import plan
from tests.guard.simulator.people import SETTINGS
from tests.guard.simulator.worlds.traffic import Traffic
from tests.guard.simulator.worlds.world import CloudWatch, Flap, Plan, World

START = datetime(2026, 11, 16, 8, 0, tzinfo=UTC)  # a Monday
MINUTE = timedelta(minutes=1)
HOUR = timedelta(hours=1)


def arn_of(name: str) -> str:
    return f"arn:aws:sagemaker:{REGION}:{ACCOUNT}:endpoint/{name.lower()}"


def tags_for(name: str, **more: str) -> dict[str, str]:
    """Tags of an endpoint of ours; ``idle_minutes="30"`` becomes ``peagle-sm:idle-minutes``."""
    ours = {"peagle-sm:managed-by": "peagle-sm", "peagle-sm:endpoint": name}
    return ours | {f"peagle-sm:{key.replace('_', '-')}": value for key, value in more.items()}


def interval(begin: datetime, end: datetime | None = None) -> tuple[tuple[int, int], ...]:
    """Return one interval for a rule of CloudWatch; without an end it lasts for good."""
    return ((seconds(begin), FOREVER if end is None else seconds(end)),)


class AwsByHand(FakeAws):
    """AWS as the sweeper and the switch see it, and a test's ways to change it."""

    def __init__(self, now: datetime = START, *, cloudwatch: CloudWatch | None = None, **rules: Any) -> None:
        """Set up an empty account; ``rules`` are those of the simulator's World."""
        metrics = cloudwatch or CloudWatch(lag_s=0)
        world = World(seed=0, begin=seconds(now), end=FOREVER, plans=(), cloudwatch=metrics, **rules)
        account = Account.of(world)
        functions: dict[str, Any] = {}
        super().__init__(account, TableRegister(account.call), functions)
        self.scheduler = SchedulerClient(account, functions)
        self.sagemaker = SageMakerClient(account)
        functions[SETTINGS.switch_function] = lambda event: turn(self, event)
        functions[SETTINGS.lifetime_function] = lambda event: wake(
            self.scheduler, self.sagemaker, self.register, SETTINGS, event
        )

    @property
    def now(self) -> datetime:
        """The present moment; setting it lets everything happen that is due by then."""
        return super().now

    @now.setter
    def now(self, now: datetime) -> None:
        self.account.events.run_until(seconds(now))

    @property
    def endpoints(self) -> dict[str, Life]:
        return self.account.sagemaker.live

    @property
    def stacks(self) -> dict[str, Stack]:
        return self.account.cloudformation.stacks

    @property
    def targets(self) -> dict[str, str]:
        return self.account.sagemaker.targets

    @property
    def faults(self) -> dict[str, list[Exception]]:
        return self.account.faults

    @property
    def deeds(self) -> list[tuple[datetime, str, str]]:
        return [(moment(when), what, name) for when, what, name in self.account.deeds]

    @property
    def did(self) -> list[str]:
        return [what for _, what, _ in self.account.deeds]

    @property
    def schedules(self) -> set[str]:
        return set(self.account.scheduler.armed)

    def view(self, name: str) -> Endpoint:
        """Return an endpoint as DescribeEndpoint shows it, without a call."""
        return described(self.endpoints[name], self.account.events.now)

    def add(
        self,
        name: str = "chat",
        like: Plan | None = None,
        *,
        status: str = "InService",
        age: timedelta = timedelta(),
        **tags: str,
    ) -> None:
        """Add an endpoint of ours that was created ``age`` ago; a tag ``stack`` makes its stack too."""
        created = seconds(self.now - age)
        added = replace(
            like or plan(),
            name=name,
            owner="stack" if tags.get("stack") else "direct",
            created_at=created,
            drain_s=180,
            lifetime_hours=float(tags.get("max_lifetime_hours", 8)),
            tags=tuple(tags_for(name, **{key: value for key, value in tags.items() if value}).items()),
        )
        self.account.plans[name] = added
        life = self.account.sagemaker.create(
            replace(added, creating_s=0), created, dict(added.tags), f"{name}-1"
        )
        life.plan = replace(added, flaps=(Flap(created, FOREVER, status),))
        if added.owner == "stack":
            self.stacks[tags["stack"]] = Stack(tags["stack"], name, ())

    def change(self, name: str, status: str = "", created_at: datetime | None = None, **plan: Any) -> None:
        """Change what an endpoint's description shows, by its plan; its LastModifiedTime becomes now."""
        life, now = self.endpoints[name], self.account.events.now
        if created_at is not None:
            life.created_at = seconds(created_at)
        life.plan = replace(life.plan, flaps=(Flap(now, FOREVER, status or life.status(now)),), **plan)
        life.views.clear()

    def remove(self, name: str) -> None:
        """Delete an endpoint as somebody else does: at once, and no stack hears of it."""
        life = self.endpoints.pop(name)
        life.gone_at = self.account.events.now
        self.account.metrics.served[name].alive[-1][1] = life.gone_at

    def serve(self, name: str, start: datetime, end: datetime, lane: str = "AllTraffic") -> None:
        """Let one request be in flight from ``start`` to the end of the minute before ``end``."""
        served = self.account.metrics.served[name].lanes[lane]
        served.traffic.append(Traffic.of([(seconds(start), seconds(end) - 1)]))
        served.counted.append(0)
        served.next_at = 0

    def rules(self, **changes: Any) -> None:
        """Change how CloudWatch behaves."""
        self.account.metrics.rules = replace(self.account.metrics.rules, **changes)

    def arm(self, starts: Mapping[str, datetime], written_at: datetime = START) -> None:
        """Let schedules exist that never fire; they were last written at ``written_at``."""
        for name, start in starts.items():
            self.account.scheduler.armed[name] = Schedule(
                name, seconds(start), FOREVER, lambda _: None, armed_at=seconds(written_at)
            )


def set_up(like: Plan | None = None, **more: Any) -> AwsByHand:
    """Return an account with the endpoint ``chat``, as ``AwsByHand.add`` makes it."""
    aws = AwsByHand()
    aws.add("chat", like, **more)
    return aws
