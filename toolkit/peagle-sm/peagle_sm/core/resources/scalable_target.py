"""Scalable target: autoscaling's bounds for an endpoint's instances, or for its component's copies.

With a component its copies scale, and SageMaker's managed instance scaling follows. `Scaling` has the
settings of target, policies and alarm. `resume` has no spec, so it reads them from the tag.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from peagle_sm.core.plan import tags_and_schedules as keys
from peagle_sm.core.plan.memory import copies_per_instance
from peagle_sm.core.plan.resolve import Draft
from peagle_sm.core.resources.component import Component
from peagle_sm.core.resources.endpoint import Endpoint
from peagle_sm.core.resources.endpoint_config import VARIANT
from peagle_sm.core.resources.resource import Request, Resource
from peagle_sm.core.spec.endpoint_spec import AutoscalingSpec


@dataclass(frozen=True)
class Scaling:
    """Autoscaling of an endpoint's instances, or of its component's copies.

    ``least`` and ``most`` count instances or copies, and ``target`` is the number of requests in flight for
    each of them.
    """

    endpoint: str
    component: str | None
    least: int
    most: int
    target: float
    scale_in_minutes: int


class ScalableTarget(Resource):
    """A scalable target; its name is the resource id. Its deregistration deletes its policies, too."""

    kind, words = "scalable-target", "autoscaling target"
    service, noun, name_field = "application-autoscaling", "scalable_target", "ResourceId"
    replaces = True
    cloudformation = "AWS::ApplicationAutoScaling::ScalableTarget"
    template_id = "ScalableTarget"

    def create(self) -> tuple[Request, ...]:
        """Return RegisterScalableTarget."""
        return (Request(self.service, "register_scalable_target", self.parameters or {}),)

    def describe(self) -> Request:
        """Return DescribeScalableTargets for the one resource id."""
        parameters = {"ServiceNamespace": "sagemaker", "ResourceIds": [self.name]}
        return Request(self.service, "describe_scalable_targets", parameters)

    def facts(self, answer: Mapping[str, Any]) -> Mapping[str, Any] | None:
        """Return the target, if there is one."""
        return next(iter(answer["ScalableTargets"]), None)

    def delete(self) -> Request:
        """Return DeregisterScalableTarget."""
        return Request(self.service, "deregister_scalable_target", identity(self.name))


def resource_id(endpoint: str, component: str | None) -> str:
    """Return the resource id of the scalable target of an endpoint, or of its component."""
    return f"endpoint/{endpoint}/variant/{VARIANT}" if component is None else f"{Component.kind}/{component}"


def identity(resource_id: str) -> dict[str, Any]:
    """Return the fields that say which target a request is about."""
    of_component = resource_id.startswith(f"{Component.kind}/")
    dimension = "inference-component:DesiredCopyCount" if of_component else "variant:DesiredInstanceCount"
    return {
        "ServiceNamespace": "sagemaker",
        "ResourceId": resource_id,
        "ScalableDimension": f"sagemaker:{dimension}",
    }


def scalable_target(scaling: Scaling) -> ScalableTarget:
    """Return the target of these settings."""
    name = resource_id(scaling.endpoint, scaling.component)
    bounds = {"MinCapacity": scaling.least, "MaxCapacity": scaling.most}
    scaled = Component(scaling.component) if scaling.component else Endpoint(scaling.endpoint)
    return ScalableTarget(name, {**identity(name), **bounds}, needs=(scaled.label,))


def scaling_of(draft: Draft) -> Scaling | None:
    """Return the autoscaling of a spec; None if its instance count is fixed."""
    settings, spec = draft.spec.autoscaling, draft.spec
    least, most = spec.instance_bounds
    if draft.scales_to_zero:
        settings = settings or AutoscalingSpec(max_instances=spec.placement.instance_count)
        copies = copies_per_instance(draft)
        per_copy = settings.target_concurrency / copies
        return Scaling(spec.name, spec.name, 0, most * copies, per_copy, settings.scale_in_minutes)
    if settings is None:
        return None
    return Scaling(spec.name, None, least, most, settings.target_concurrency, settings.scale_in_minutes)


def scaling_tag(scaling: Scaling) -> str:
    """Return the value of the tag from which `scaling_from_tags` reads the settings: ``1-4 8 10``."""
    return f"{scaling.least}-{scaling.most} {scaling.target!r} {scaling.scale_in_minutes}"


def scaling_from_tags(endpoint: str, tags: Mapping[str, str]) -> Scaling | None:
    """Return the autoscaling that an endpoint's tags describe; None without the tag, or if it is invalid."""
    try:
        bounds, target, minutes = tags[keys.SCALING].split()
        least, _, most = bounds.partition("-")
        component = endpoint if keys.COMPONENT in tags else None
        return Scaling(endpoint, component, int(least), int(most), float(target), int(minutes))
    except (KeyError, ValueError):
        return None
