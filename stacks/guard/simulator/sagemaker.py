"""The simulated SageMaker: endpoints that take time, refuse deletions at bad moments, and sometimes lie."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from stacks.guard.simulator.cloudwatch import FOREVER, Metrics, Served
from stacks.guard.simulator.errors import DeletionRefused, NoSuchEndpoint
from stacks.guard.simulator.events import Events
from stacks.guard.simulator.worlds import Plan

BUSY = frozenset({"Creating", "Updating", "SystemUpdating", "RollingBack"})
"""Statuses in which DeleteEndpoint is refused (facts of SageMaker; see docs/local.md)."""


@dataclass(slots=True)
class Life:
    """One life of one endpoint, from CreateEndpoint until it is gone."""

    plan: Plan
    arn: str
    created_at: int
    config_name: str
    tags: dict[str, str]
    in_service_at: int
    lies_left: int
    components: list[str] = field(default_factory=list)
    deleting_at: int | None = None
    gone_at: int | None = None
    ended_by: str = ""
    """Who turned it off first: ``guard``, ``schedule``, ``user``, or a rival's name."""
    refusals: list[int] = field(default_factory=list)
    double_actions: int = 0
    """Deletions asked for while one was under way."""
    turning_off_at: int | None = None
    """When the first of its components, or it itself, began to go: from then on requests fail."""

    @property
    def expires_at(self) -> int:
        """Return the end of the lifetime that its tags promise."""
        return self.created_at + round(self.plan.lifetime_hours * 3600)

    def status(self, now: int) -> str:
        """Return the EndpointStatus at a moment."""
        if self.deleting_at is not None:
            return "Deleting"
        if now < self.in_service_at:
            return "Creating"
        if self.plan.fails:
            return "Failed"
        for flap in self.plan.flaps:
            if flap.begin <= now < flap.end:
                return flap.status
        return "InService"

    def modified_at(self, now: int) -> int:
        """Return LastModifiedTime: when the status last changed."""
        moments = [self.created_at, self.in_service_at, self.deleting_at or 0]
        moments += [moment for flap in self.plan.flaps for moment in (flap.begin, flap.end)]
        return max(moment for moment in moments if self.created_at <= moment <= now)


@dataclass(slots=True)
class SageMaker:
    """Endpoints by name, and every life that ever was."""

    events: Events
    metrics: Metrics
    account: str
    region: str
    ending: Callable[[Life], None] = lambda _: None
    """Called as a life begins to end, while the guard's register still says why."""
    live: dict[str, Life] = field(default_factory=dict)
    lives: list[Life] = field(default_factory=list)

    def arn(self, name: str) -> str:
        """Return the ARN of an endpoint: of its name only, so a new one of the same name has the same."""
        return f"arn:aws:sagemaker:{self.region}:{self.account}:endpoint/{name.lower()}"

    def create(self, plan: Plan, now: int, tags: dict[str, str], config_name: str) -> Life:
        """CreateEndpoint."""
        if plan.name in self.live:
            raise DeletionRefused(f"Cannot create already existing endpoint {plan.name}")
        life = Life(
            plan=plan,
            arn=self.arn(plan.name),
            created_at=now,
            config_name=config_name,
            tags=tags,
            in_service_at=now + plan.creating_s,
            lies_left=plan.lies,
            components=[name for name, _ in plan.traffic] if plan.components else [],
        )
        self.live[plan.name] = life
        self.lives.append(life)
        served = self.metrics.served.setdefault(plan.name, Served())
        if served.deaf:
            served.deaf[-1][1] = min(served.deaf[-1][1], now)
        _reroute(served, plan, now)
        if not plan.fails:
            served.alive.append([life.in_service_at, FOREVER])
        return life

    def delete(self, name: str, now: int, by: str) -> None:
        """DeleteEndpoint: refused while something is in progress, and believed only once it is gone."""
        life = self.live.get(name)
        if life is None:
            raise NoSuchEndpoint(f"Could not find endpoint {self.arn(name)}.")
        status = life.status(now)
        if status == "Deleting":
            # The schedule's rate goes on while a deletion takes its time: by design.
            life.double_actions += by != "schedule"
            raise DeletionRefused(f"Cannot update in-progress endpoint {life.arn}.")
        if status in BUSY:
            life.refusals.append(now)
            raise DeletionRefused(f"Cannot update in-progress endpoint {life.arn}.")
        if life.components:
            life.refusals.append(now)
            raise DeletionRefused(f"Endpoint {name} still has inference components: {life.components}")
        if life.lies_left:
            life.lies_left -= 1
            return
        self._end(life, now, by)

    def delete_component(self, component: str, now: int, by: str) -> None:
        """DeleteInferenceComponent: gone at once, which is kinder than AWS, and of no consequence here."""
        for life in self.live.values():
            if component in life.components:
                if life.status(now) in BUSY:
                    raise DeletionRefused(
                        f"Cannot delete inference component {component}: endpoint in progress"
                    )
                life.components.remove(component)
                self.stop_serving(life, now, by)
                return
        raise NoSuchEndpoint(f"Could not find inference component {component}")

    def stop_serving(self, life: Life, now: int, by: str) -> None:
        """Note that from now on requests fail; the instances go on measuring themselves."""
        if life.turning_off_at is None:
            life.turning_off_at, life.ended_by = now, by
            self.ending(life)
            self.metrics.served[life.plan.name].deaf.append([now, FOREVER])

    def _end(self, life: Life, now: int, by: str) -> None:
        life.deleting_at = now
        self.stop_serving(life, now, by)
        served = self.metrics.served[life.plan.name]
        if served.alive and served.alive[-1][1] == FOREVER:
            served.alive[-1][1] = max(now, served.alive[-1][0])
        self.events.at(now + life.plan.drain_s, lambda moment: self._gone(life, moment))

    def _gone(self, life: Life, now: int) -> None:
        life.gone_at = now
        if self.live.get(life.plan.name) is life:
            del self.live[life.plan.name]


def _reroute(served: Served, plan: Plan, now: int) -> None:
    """The clients of a name follow its newest endpoint: what an older plan would still have sent is gone."""
    ours = [traffic for _, traffic in plan.traffic]
    for lane, known in served.lanes.items():
        served.lanes[lane] = [each if each in ours else each.until(now) for each in known]
    for lane, traffic in plan.traffic:
        if traffic not in served.lanes.setdefault(lane, []):
            served.lanes[lane].append(traffic)
