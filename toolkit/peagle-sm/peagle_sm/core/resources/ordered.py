"""The resources of an endpoint in the order of their creation; a deletion walks the list backwards.

`planned` makes the list from a spec, `resumed` from the tags of a config that is kept, and `named` from names
alone, for a deletion.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from peagle_sm.core.plan import tags_and_schedules as keys
from peagle_sm.core.plan.cost import cost_of
from peagle_sm.core.plan.memory import compute_requirements, copies_per_instance
from peagle_sm.core.plan.resolve import Draft
from peagle_sm.core.resources.alarm import Alarm, from_zero_alarm
from peagle_sm.core.resources.component import (
    Component,
    component,
    component_request,
    component_tag,
    request_from_tags,
)
from peagle_sm.core.resources.endpoint import Endpoint, endpoint
from peagle_sm.core.resources.endpoint_config import EndpointConfig, config_body, endpoint_config
from peagle_sm.core.resources.lifetime_schedule import LifetimeSchedule, lifetime_of, schedule_names
from peagle_sm.core.resources.log_group import LogGroup, log_group_name
from peagle_sm.core.resources.model import DEFAULT_PUBLISH_S, Model, model, model_body
from peagle_sm.core.resources.naming import Names
from peagle_sm.core.resources.resource import Resource
from peagle_sm.core.resources.scalable_target import (
    ScalableTarget,
    Scaling,
    resource_id,
    scalable_target,
    scaling_from_tags,
    scaling_of,
    scaling_tag,
)
from peagle_sm.core.resources.scaling_policy import scaling_policies
from peagle_sm.core.spec.modes import SYNTHETIC


def planned(draft: Draft, names: Names, digest: str) -> tuple[Resource, ...]:
    """Return the resources of a plan, the lifetime schedules first.

    The endpoint never exists without them. Empty if a fact that a request needs is missing.
    """
    if draft.missing_facts:
        return ()
    marks = tags(draft, digest)
    schedules = lifetime_of(draft, names, digest)
    config = endpoint_config(names, draft, marks)
    logs = LogGroup(log_group_name(names.endpoint, names.component))
    scaling = scaling_of(draft)
    needs = tuple(each.label for each in (config, *schedules, logs))
    resources = [
        *schedules,
        model(names.model, draft, marks),
        config,
        logs,
        endpoint(names.endpoint, names.config, marks, needs, scales=scaling is not None),
    ]
    if names.component is not None and config.parameters is not None:
        variant = config.parameters["ProductionVariants"][0]
        needed = compute_requirements(draft)
        request = component_request(names.endpoint, names.model, variant, needed, _copies(draft))
        resources.append(component(request, marks))
    return (*resources, *_scaled(scaling))


def resumed(
    name: str,
    config: str,
    tags: Mapping[str, str],
    schedules: Sequence[LifetimeSchedule],
    variant: Mapping[str, Any] | None = None,
) -> tuple[Resource, ...]:
    """Return what a resume creates; config, model and log group exist.

    The endpoint gets its config's ``tags`` without those of the pause. They describe its component and
    autoscaling, if any; ``variant`` is the config's.
    """
    own = {key: value for key, value in tags.items() if key not in (keys.PAUSED, keys.SCHEDULER_ROLE)}
    marks = [{"Key": key, "Value": value} for key, value in own.items()]
    scaling = scaling_from_tags(name, tags)
    needs = tuple(each.label for each in schedules)
    resources: list[Resource] = [*schedules, endpoint(name, config, marks, needs, scales=scaling is not None)]
    # A config and its model have one name.
    request = request_from_tags(name, config, variant, tags) if variant else None
    if request is not None:
        resources.append(component(request, marks))
    return (*resources, *_scaled(scaling))


def named(
    endpoint: str,
    tags: Mapping[str, str],
    configs: Iterable[str] = (),
    models: Iterable[str] = (),
    *,
    scheduled: bool = True,
) -> tuple[Resource, ...]:
    """Return what may exist of an endpoint with these tags, without the log group.

    Policies go with their target.
    """
    component = component_of(endpoint, tags)
    scaled = component is not None or keys.SCALING in tags or keys.INSTANCE_BOUNDS in tags
    return (
        *(LifetimeSchedule(name) for name in (schedule_names(endpoint, component) if scheduled else ())),
        *(Model(name) for name in models),
        *(EndpointConfig(name) for name in configs),
        Endpoint(endpoint),
        *([Component(component)] if component else ()),
        *([ScalableTarget(resource_id(endpoint, component))] if scaled else ()),
        *([Alarm(keys.from_zero_alarm(endpoint))] if component else ()),
    )


def component_of(endpoint: str, tags: Mapping[str, str]) -> str | None:
    """Return the inference component of an endpoint that scales to zero; None for any other."""
    return endpoint if tags.get(keys.IDLE) == "scale-to-zero" else None


def _scaled(scaling: Scaling | None) -> tuple[Resource, ...]:
    if scaling is None:
        return ()
    alarms = () if scaling.component is None else (from_zero_alarm(scaling),)
    return (scalable_target(scaling), *scaling_policies(scaling), *alarms)


def _copies(draft: Draft) -> int:
    return draft.spec.placement.instance_count * copies_per_instance(draft)


def spec_hash(draft: Draft) -> str:
    """Return a hash of model and config, without names and tags."""
    text = json.dumps([model_body(draft), config_body(draft)], sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def tags(draft: Draft, digest: str) -> list[dict[str, str]]:
    """Return the tags of all resources that have tags, the spec's own tags last."""
    spec, lifecycle, cost = draft.spec, draft.spec.lifecycle, cost_of(draft)
    price = cost.usd_per_hour
    least, most = spec.instance_bounds
    ours = {
        keys.MANAGED_BY: keys.MANAGER,
        keys.ENDPOINT: spec.name,
        keys.SPEC_HASH: digest,
        keys.MODEL: spec.model_name,
        keys.MODE: draft.mode if spec.synthetic_acceptance_length is None else SYNTHETIC,
        keys.INSTANCE_TYPE: draft.instance_types[0],
        keys.INSTANCE_COUNT: str(spec.placement.instance_count),
        keys.IDLE_MINUTES: str(lifecycle.idle_minutes),
        keys.GRACE_MINUTES: str(lifecycle.grace_minutes),
        keys.MAX_LIFETIME_HOURS: keys.number(lifecycle.max_lifetime_hours),
    }
    scaling = scaling_of(draft) if draft.context.stack is None else None
    every, tokens = spec.metrics.publish_seconds, draft.num_speculative_tokens
    set_only = {
        keys.NUM_SPECULATIVE_TOKENS: str(tokens) if draft.speculating and tokens else None,
        keys.INSTANCE_BOUNDS: f"{least}-{most}" if least != most else None,
        keys.PUBLISH_SECONDS: str(every) if every != DEFAULT_PUBLISH_S else None,
        keys.BUDGET_USD: None if lifecycle.budget_usd is None else keys.number(lifecycle.budget_usd),
        keys.USD_PER_HOUR: keys.number(price) if price else None,
        keys.PRICE_BOUND: "at-most" if price and cost.at_most else None,
        keys.HOURS: spec.hours,
        keys.STACK: draft.context.stack,
        keys.IDLE: lifecycle.idle if draft.scales_to_zero else None,
        keys.SCALING: None if scaling is None else scaling_tag(scaling),
        keys.COMPONENT: component_tag(_copies(draft), compute_requirements(draft))
        if scaling and draft.scales_to_zero
        else None,
    }
    ours |= {key: value for key, value in set_only.items() if value is not None}
    return [{"Key": key, "Value": value} for key, value in {**ours, **spec.tags}.items()]
