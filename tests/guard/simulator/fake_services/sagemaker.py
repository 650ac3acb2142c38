"""The simulated SageMaker: endpoints that take time, refuse deletions at bad moments, and sometimes lie."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from tests.guard.simulator.fake_services.cloudwatch import FOREVER, Lane, Metrics, Served
from tests.guard.simulator.fake_services.errors import AwsFault, Refused
from tests.guard.simulator.fake_services.events import Events
from tests.guard.simulator.worlds.world import Plan

BUSY = frozenset({"Creating", "Updating", "SystemUpdating", "RollingBack"})
"""Statuses in which DeleteEndpoint is refused (facts of SageMaker; see docs/explanation/local.md)."""


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
    double_actions: int = 0
    """Deletions asked for while one was under way."""
    turning_off_at: int | None = None
    """When the first of its components, or it itself, began to go: from then on requests fail."""
    views: dict[Any, Any] = field(default_factory=dict, repr=False)
    """What ListEndpoints and DescribeEndpoint show, by status and time of the last change."""
    targets_lost_at: int | None = None
    """When the first of its scalable targets was deregistered."""

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
        moments += [moment for moment, _ in self.plan.instances]
        return max((each for each in moments if self.created_at <= each <= now), default=self.created_at)


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
    targets: dict[str, str] = field(default_factory=dict)
    """Scalable targets: dimension by resource id. They outlast the endpoint that they scale."""

    def arn(self, name: str) -> str:
        """Return the ARN of an endpoint: of its name only, so a new one of the same name has the same."""
        return f"arn:aws:sagemaker:{self.region}:{self.account}:endpoint/{name.lower()}"

    def create(self, plan: Plan, now: int, tags: dict[str, str], config_name: str) -> Life:
        if plan.name in self.live:
            raise Refused(f"Cannot create already existing endpoint {plan.name}")
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
        self.targets |= _targets(plan)
        self.live[plan.name] = life
        self.lives.append(life)
        served = self.metrics.served.setdefault(plan.name, Served())
        for deaf in (served.deaf, *(lane.deaf for lane in served.lanes.values())):
            if deaf:
                deaf[-1][1] = min(deaf[-1][1], now)
        served.publish_s, served.enhanced = plan.publish_s, plan.enhanced
        served.async_config, served.instances = plan.async_config, plan.instances
        _reroute(served, plan, now)
        if not plan.fails:
            served.alive.append([life.in_service_at, FOREVER])
        return life

    def delete(self, name: str, now: int, by: str) -> None:
        """DeleteEndpoint: refused while something is in progress, and believed only once it is gone."""
        life = self.live.get(name)
        if life is None:
            raise AwsFault(f"Could not find endpoint {self.arn(name)}.", "ValidationException")
        status = life.status(now)
        if status == "Deleting":
            # The schedule's rate goes on while a deletion takes its time: by design.
            life.double_actions += by != "schedule"
            raise Refused(f"Cannot update in-progress endpoint {life.arn}.")
        if status in BUSY:
            raise Refused(f"Cannot update in-progress endpoint {life.arn}.")
        if life.components:
            raise Refused(f"Endpoint {name} still has inference components: {life.components}")
        if life.lies_left:
            life.lies_left -= 1
            return
        self._end(life, now, by)

    def delete_component(self, component: str, now: int, by: str) -> None:
        """DeleteInferenceComponent: gone at once, which is kinder than AWS, and of no consequence here."""
        for life in self.live.values():
            if component in life.components:
                if life.status(now) in BUSY:
                    raise Refused(f"Cannot delete inference component {component}: endpoint in progress")
                life.components.remove(component)
                served = self.metrics.served[life.plan.name]
                served.lanes[component].deaf.append([now, FOREVER])
                self._begin_end(life, now, by)
                return
        raise AwsFault(f"Could not find inference component {component}", "ValidationException")

    def deregister(self, resource_id: str, now: int) -> None:
        if self.targets.pop(resource_id, None) is None:
            return
        for life in self.live.values():
            if resource_id in _targets(life.plan) and life.targets_lost_at is None:
                life.targets_lost_at = now

    def stop_serving(self, life: Life, now: int, by: str) -> None:
        """Note that from now on all requests fail; the instances go on measuring themselves."""
        deaf = self.metrics.served[life.plan.name].deaf
        if not deaf or deaf[-1][1] != FOREVER:
            deaf.append([now, FOREVER])
        self._begin_end(life, now, by)

    def _begin_end(self, life: Life, now: int, by: str) -> None:
        if life.turning_off_at is None:
            life.turning_off_at, life.ended_by = now, by
            self.ending(life)

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


def _targets(plan: Plan) -> dict[str, str]:
    """What Application Auto Scaling knows of an endpoint that scales."""
    if not plan.scales:
        return {}
    if plan.components:
        copies = "sagemaker:inference-component:DesiredCopyCount"
        return {f"inference-component/{name}": copies for name, _ in plan.traffic}
    instances = "sagemaker:variant:DesiredInstanceCount"
    return {f"endpoint/{plan.name}/variant/{name}": instances for name, _ in plan.traffic}


def _reroute(served: Served, plan: Plan, now: int) -> None:
    """The clients of a name follow its newest endpoint: what an older plan would still have sent is gone."""
    ours = [traffic for _, traffic in plan.traffic]
    for lane in served.lanes.values():
        lane.traffic = [each if each in ours else each.until(now) for each in lane.traffic]
    for name, traffic in plan.traffic:
        lane = served.lanes.setdefault(name, Lane())
        if traffic not in lane.traffic:
            lane.traffic.append(traffic)
            lane.counted.append(0)
        lane.next_at = 0
