"""AWS::ApplicationAutoScaling::ScalableTarget and AWS::ApplicationAutoScaling::ScalingPolicy."""

from __future__ import annotations

from typing import Any

from botocore.exceptions import ClientError

from sagemaker_local.cloudformation.resources.base import (
    Created,
    Kind,
    Properties,
    ResourceContext,
    ResourceFailure,
)
from sagemaker_local.cloudformation.resources.calls import gone_is_fine, merged_tags, refuse_others, send

_SERVICE = "application-autoscaling"
_PLACE = ("ResourceId", "ScalableDimension", "ServiceNamespace")
_KNOWN = {*_PLACE, "MinCapacity", "MaxCapacity", "RoleARN", "SuspendedState", "ScheduledActions", "Tags"}


class ScalableTarget:
    """What may be scaled, and how far."""

    def create(self, ctx: ResourceContext, logical_id: str, properties: Properties) -> Created:
        """Register the target; its resource must exist."""
        _check_there(ctx, properties)
        return self._register(ctx, {}, properties)

    def update(self, ctx: ResourceContext, physical_id: str, old: Properties, new: Properties) -> Created:
        """Register the target again."""
        return self._register(ctx, old, new)

    def delete(self, ctx: ResourceContext, physical_id: str, properties: Properties) -> None:
        """Deregister the target; its policies and actions go with it."""
        with _unless_gone():
            send(ctx, _SERVICE, "DeregisterScalableTarget", _place(properties))

    def _register(self, ctx: ResourceContext, old: Properties, new: Properties) -> Created:
        refuse_others(new, _KNOWN, "AWS::ApplicationAutoScaling::ScalableTarget")
        request = {key: value for key, value in new.items() if key not in ("ScheduledActions", "Tags")}
        send(ctx, _SERVICE, "RegisterScalableTarget", {**request, "Tags": merged_tags(ctx, new) or None})
        wanted = new.get("ScheduledActions", [])
        names = {action["ScheduledActionName"] for action in wanted}
        for gone in [action["ScheduledActionName"] for action in old.get("ScheduledActions", [])]:
            if gone not in names:
                named = {**_place(new), "ScheduledActionName": gone}
                send(ctx, _SERVICE, "DeleteScheduledAction", named)
        for action in wanted:
            send(ctx, _SERVICE, "PutScheduledAction", {**_place(new), **action})
        place = "|".join(str(new[key]) for key in _PLACE)
        return Created(place, {"Id": place})


class ScalingPolicy:
    """When to scale."""

    def create(self, ctx: ResourceContext, logical_id: str, properties: Properties) -> Created:
        """Put the policy."""
        return self._put(ctx, properties)

    def update(self, ctx: ResourceContext, physical_id: str, old: Properties, new: Properties) -> Created:
        """Replace the old policy with the new one."""
        return self._put(ctx, new)

    def delete(self, ctx: ResourceContext, physical_id: str, properties: Properties) -> None:
        """Delete the policy."""
        named = {**_place(properties), "PolicyName": properties["PolicyName"]}
        with _unless_gone():
            send(ctx, _SERVICE, "DeleteScalingPolicy", named)

    def _put(self, ctx: ResourceContext, properties: Properties) -> Created:
        request = {key: value for key, value in properties.items() if key != "ScalingTargetId"}
        arn = send(ctx, _SERVICE, "PutScalingPolicy", {**request, **_place(properties)})["PolicyARN"]
        return Created(arn, {"Arn": arn, "PolicyName": properties["PolicyName"]})


def _unless_gone() -> gone_is_fine:
    return gone_is_fine("ObjectNotFoundException")


def _place(properties: Properties) -> dict[str, Any]:
    """Return a target's identifiers; a policy may give them as the target's Ref."""
    if "ScalingTargetId" in properties:
        return dict(zip(_PLACE, str(properties["ScalingTargetId"]).split("|"), strict=True))
    return {key: properties[key] for key in _PLACE}


def _check_there(ctx: ResourceContext, properties: Properties) -> None:
    """Refuse a resource that does not exist (moto accepts it)."""
    resource = str(properties["ResourceId"])
    match resource.split("/"):
        case ["endpoint", endpoint, "variant", variant]:
            operation, named = "DescribeEndpoint", {"EndpointName": endpoint}
        case ["inference-component", component]:
            operation, named, variant = (
                "DescribeInferenceComponent",
                {"InferenceComponentName": component},
                "",
            )
        case _:
            raise ResourceFailure(
                f"the local CloudFormation scales endpoint/<name>/variant/<name> and "
                f"inference-component/<name>, found {resource}"
            )
    try:
        found = send(ctx, "sagemaker", operation, named)
    except ClientError as error:
        raise ResourceFailure(f"{resource}: {error.response['Error']['Message']}") from error
    if variant and variant not in {each["VariantName"] for each in found.get("ProductionVariants", [])}:
        raise ResourceFailure(f"{resource}: the endpoint has no variant {variant}")


KINDS: dict[str, Kind] = {
    "AWS::ApplicationAutoScaling::ScalableTarget": ScalableTarget(),
    "AWS::ApplicationAutoScaling::ScalingPolicy": ScalingPolicy(),
}
