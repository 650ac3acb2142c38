"""Lifetime schedule: EventBridge Scheduler deletes the endpoint, or its component, at the end.

A stack makes its schedules by the guard's provider, since CloudFormation cannot compute the time at which a
lifetime ends; `StackLifetime` is that custom resource.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

from peagle_sm.core import guard as guard_names
from peagle_sm.core.plan import tags_and_schedules as keys
from peagle_sm.core.plan.resolve import Draft
from peagle_sm.core.resources.naming import Names
from peagle_sm.core.resources.resource import Request, Resource


class LifetimeSchedule(Resource):
    """A schedule that deletes the endpoint, or its component; created first and deleted last."""

    kind, words = "schedule", "lifetime schedule"
    service, noun, name_field = "scheduler", "schedule", "Name"
    cloudformation = "AWS::Scheduler::Schedule"
    template_id = "Lifetime"

    def describe(self) -> Request:
        """Return GetSchedule."""
        return Request(self.service, "get_schedule", {"Name": self.name})

    def update(self) -> Request:
        """Return UpdateSchedule, which replaces the whole schedule."""
        return Request(self.service, "update_schedule", self.parameters or {})


class StackLifetime(Resource):
    """The lifetime schedules of a stack's endpoint, which the guard's provider makes."""

    kind, words = "stack-lifetime", "lifetime schedules"
    cloudformation = "Custom::PeagleLifetime"
    template_id = "Lifetime"

    def create(self) -> tuple[Request, ...]:
        """Return nothing: only the guard's provider makes them."""
        return ()


def schedule_names(endpoint: str, component: str | None) -> tuple[str, ...]:
    """Return the names of an endpoint's schedules: its own, then its component's.

    A deletion finds everything else by the endpoint's own, so that one is created first and deleted last.
    """
    own = keys.schedule_name(endpoint)
    return (own,) if component is None else (own, keys.hard_schedule_name(endpoint, 1))


def lifetime_schedules(
    endpoint: str, region: str, role_arn: str | None, expiry: datetime, component: str | None
) -> tuple[LifetimeSchedule, ...]:
    """Return the schedules that delete ``endpoint`` and its component from ``expiry`` on."""
    own = keys.lifetime_schedule(endpoint, region, role_arn, expiry)
    schedules = [own] if component is None else [own, keys.component_schedule(endpoint, own, component)]
    return tuple(LifetimeSchedule(schedule["Name"], schedule) for schedule in schedules)


def lifetime_of(draft: Draft, names: Names, digest: str) -> tuple[Resource, ...]:
    """Return the lifetime schedules of a plan; none without a clock."""
    if draft.context.stack is not None:
        return (StackLifetime(names.schedule, _of_stack(draft, names, digest)),)
    if draft.context.now is None:
        return ()
    hours = timedelta(hours=draft.spec.lifecycle.max_lifetime_hours)
    expiry = draft.context.now.replace(microsecond=0) + hours
    return lifetime_schedules(names.endpoint, draft.region, draft.scheduler_role_arn, expiry, names.component)


def _of_stack(draft: Draft, names: Names, digest: str) -> dict[str, Any]:
    properties: dict[str, Any] = {
        "EndpointName": names.endpoint,
        "StackName": guard_names.endpoint_stack(names.endpoint),
        "MaxLifetimeHours": keys.number(draft.spec.lifecycle.max_lifetime_hours),
        "ScheduleName": names.schedule,
        "Nonce": digest,
    }
    if names.component is not None:
        properties["InferenceComponentNames"] = [names.component]
    elif draft.spec.autoscaling is not None:
        # SageMaker refuses another instance type while a scaling policy is active; the provider checks this
        # before CloudFormation changes the endpoint.
        properties["ScalingInstanceTypes"] = list(draft.instance_types)
        properties["EndpointConfigName"] = names.config
    return properties
