"""One AWS account of a world: what people do in it, and who owns what."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from random import Random
from typing import Any, Self

from peagle_guard.aws import Job
from peagle_guard.records import Record
from tests.guard.simulator.fake_services.cloudformation import CloudFormation, Stack
from tests.guard.simulator.fake_services.cloudwatch import Metrics
from tests.guard.simulator.fake_services.errors import AwsFault, Killed, Refused
from tests.guard.simulator.fake_services.events import Events
from tests.guard.simulator.fake_services.sagemaker import BUSY, Life, SageMaker
from tests.guard.simulator.fake_services.scheduler import Scheduler
from tests.guard.simulator.worlds.world import Plan, World

REGION = "eu-central-1"
ACCOUNT = "111122223333"
MANAGED_BY = "peagle-sm:managed-by"
RETRY_S = 60


def tags_of(plan: Plan, world: World) -> dict[str, str]:
    """Return the tags of an endpoint: ours, somebody else's, or ours copied by somebody else."""
    if not plan.ours:
        ours = next((each for each in world.plans if each.ours), None)
        return tags_of(ours, world) if plan.borrowed_tags and ours is not None else {"team": "search"}
    if plan.tags:
        return dict(plan.tags)
    tags = {
        MANAGED_BY: "peagle-sm",
        "peagle-sm:endpoint": plan.name,
        "peagle-sm:spec-hash": f"{world.seed:016x}",
        "peagle-sm:mode": "p-eagle",
        "peagle-sm:idle-minutes": str(plan.idle_minutes),
        "peagle-sm:grace-minutes": str(plan.grace_minutes),
        "peagle-sm:max-lifetime-hours": str(plan.lifetime_hours),
        "peagle-sm:usd-per-hour": str(plan.usd_per_hour),
    }
    if plan.budget_usd is not None:
        tags["peagle-sm:budget-usd"] = str(plan.budget_usd)
    if plan.hours is not None:
        tags["peagle-sm:hours"] = plan.hours.text
    if plan.publish_s != 60:
        tags["peagle-sm:publish-seconds"] = str(plan.publish_s)
    if plan.owner == "stack":
        tags["peagle-sm:stack"] = plan.stack_tag or stack_name(plan)
    return tags


def stack_name(plan: Plan) -> str:
    """Return the name of the stack of an endpoint."""
    return f"Peagle-{plan.name}"


@dataclass
class Account:
    """The simulated services of one world, and the people who deploy into it."""

    world: World
    events: Events
    metrics: Metrics
    sagemaker: SageMaker
    cloudformation: CloudFormation
    scheduler: Scheduler
    chance: Random
    """For the faults of single calls."""
    calls: Counter[str] = field(default_factory=Counter)
    plans: dict[str, Plan] = field(default_factory=dict)
    """The plan last deployed under each name."""

    actor: str = "guard"
    """Who calls the switch: ``guard``, or ``schedule`` while a schedule fires."""
    patient: bool = False
    """Whoever calls repeats what is throttled."""
    deadline: int | None = None
    """When the Lambda that runs now is killed."""
    faults: dict[str, list[Exception]] = field(default_factory=lambda: defaultdict(list))
    """By operation: what its next calls raise."""
    hook: Callable[[str], object] | None = None
    """Called with the name of each operation before it is carried out."""
    deeds: list[tuple[int, str, str]] = field(default_factory=list)
    """(when, what, name) of each call of the guard that changed something."""
    alarms: set[str] = field(default_factory=set)
    jobs: dict[str, tuple[Job, dict[str, str]]] = field(default_factory=dict)
    """Training jobs in progress, with their tags."""
    first_failures: dict[str, int] = field(default_factory=dict)
    """When each operation of ``world.failing`` first failed."""
    marks: dict[str, int] = field(default_factory=dict)
    """When the mark that the register has of each name was really written."""
    marked: dict[str, Any] = field(default_factory=dict)

    @classmethod
    def of(cls, world: World) -> Self:
        """Set up an empty account; nothing has happened yet."""
        events = Events(world.begin)
        metrics = Metrics(world.cloudwatch)
        sagemaker = SageMaker(events, metrics, ACCOUNT, REGION)
        account = cls(
            world=world,
            events=events,
            metrics=metrics,
            sagemaker=sagemaker,
            cloudformation=CloudFormation(events, turn=lambda *_: None),
            scheduler=Scheduler(events, world.delivery_s, world.lambdas.redelivered),
            chance=Random(world.seed ^ 0x5EED),
        )
        account.cloudformation.turn = account.turn
        return account

    def start(self) -> None:
        """Announce everything that people will do."""
        for plan in self.world.plans:
            self.events.at(plan.created_at, partial(self.deploy, plan))

    def arming(self, plan: Plan, now: int) -> None:
        """Arm the lifetime before the endpoint is created; without a guard there is nothing to arm."""

    def deploy(self, plan: Plan, now: int) -> None:
        """Make an endpoint; whoever has the name first is deleted by its owner, however long that takes."""
        if self.sagemaker.live.get(plan.name) is not None:
            self._remove(plan.name, now)
            self.events.at(now + RETRY_S, lambda moment: self.deploy(plan, moment))
            return
        self.forget(plan.name)
        self.plans[plan.name] = plan
        if plan.owner == "stack":
            stack = Stack(stack_name(plan), plan.name, plan.stack_faults)
            self.cloudformation.stacks[stack.name] = stack
        if plan.ours:
            self.arming(plan, now)
        self.create(plan, now)

    def forget(self, name: str) -> None:
        """What the owner removes with an endpoint: its stack; with a guard, its schedules too."""
        self.cloudformation.stacks.pop(f"Peagle-{name}", None)

    def create(self, plan: Plan, now: int) -> Life:
        """CreateEndpoint with the tags of its plan."""
        return self.sagemaker.create(plan, now, tags_of(plan, self.world), f"{plan.name}-config")

    def turn(self, stack: Stack, state: str, now: int) -> None:
        """What a stack does to its endpoint when its switch is turned."""
        plan = self.plans[stack.endpoint]
        if state == "on":
            self.arming(plan, now)
            self.create(plan, now)
            return
        life = self.sagemaker.live.get(plan.name)
        if life is not None and life.deleting_at is None:
            if life.components and life.status(now) not in BUSY:
                life.components.clear()
                self.sagemaker.stop_serving(life, now, stack.by)
            self.sagemaker.delete(plan.name, now, stack.by)

    def call(self, operation: str) -> int:
        """Count a call and let it fail if the world or a test says so; returns the present moment.

        Raises:
            AwsFault: this one failed; ThrottlingException if it was one too many.
        """
        self.calls[operation] += 1
        if self.deadline is not None and self.events.now >= self.deadline:
            raise Killed
        if self.hook is not None:
            self.hook(operation)
        if self.faults[operation]:
            raise self.faults[operation].pop(0)
        if self.world.failing:
            self._fail(operation)
        if (
            self.world.throttled_share
            and not self.patient
            and self.chance.random() < self.world.throttled_share
        ):
            raise AwsFault(f"{operation}: Rate exceeded", "ThrottlingException")
        return self.events.now

    def _fail(self, operation: str) -> None:
        now = self.events.now
        for each in self.world.failing:
            if each.operation == operation and self.calls[operation] >= each.nth:
                first = self.first_failures.setdefault(operation, now)
                if now < first + each.lasting_s:
                    raise AwsFault(f"{operation}: Rate exceeded", "ThrottlingException")

    def spend(self, length_s: int) -> None:
        """Let time pass within a Lambda.

        Raises:
            Killed: its timeout is reached.
        """
        until = self.events.now + length_s
        if self.deadline is not None and until >= self.deadline:
            self.events.run_until(self.deadline)
            raise Killed
        self.events.run_until(until)

    def note_mark(self, record: Record) -> None:
        """Note when the register really got a mark, whatever the guard's clock shows."""
        if self.marked.get(record.name) != record.marked_at:
            self.marked[record.name] = record.marked_at
            self.marks[record.name] = self.events.now

    @contextmanager
    def patience(self) -> Iterator[None]:
        """Within this, nothing is throttled: the caller repeats its calls."""
        before, self.patient = self.patient, True
        try:
            yield
        finally:
            self.patient = before

    def may_delete(self, name: str) -> None:
        """The tag condition of the guard's and the scheduler's roles.

        Raises:
            AwsFault: AccessDenied: the endpoint does not carry our tag.
        """
        life = self.sagemaker.live.get(name)
        if life is not None and life.tags.get(MANAGED_BY) != "peagle-sm":
            message = f"not authorized to perform: sagemaker:DeleteEndpoint on {name}"
            raise AwsFault(message, "AccessDeniedException")

    def functions_run(self, now: int) -> bool:
        """Say whether a Lambda of the guard runs at this moment."""
        lambdas = self.world.lambdas
        return not lambdas.dead and not any(begin <= now < end for begin, end in lambdas.outages)

    def _remove(self, name: str, now: int) -> None:
        life = self.sagemaker.live[name]
        if life.deleting_at is not None:
            return
        self.forget(name)
        life.components.clear()
        with suppress(Refused):
            self.sagemaker.delete(name, now, "user")
