"""AWS::SageMaker::InferenceComponent, by our control plane."""

from __future__ import annotations

from typing import Any

from sagemaker_local.cloudformation.resources.base import (
    Created,
    Kind,
    Properties,
    ResourceContext,
    ResourceFailure,
    generated_name,
)
from sagemaker_local.cloudformation.resources.calls import merged_tags, refuse_others, send, tag_list
from sagemaker_local.cloudformation.resources.serving.sagemaker import name_of, retag_by_arn, unless_gone

_LONGEST_NAME = 63
# Real seconds between two looks at a component.
_POLL_S = 0.2
_MOVING = frozenset({"Creating", "Updating"})
_FIXED = ("InferenceComponentName", "EndpointName", "VariantName")
_CHANGED = ("Specification", "RuntimeConfig")
_KNOWN = {*_FIXED, *_CHANGED, "EndpointArn", "DeploymentConfig", "Tags"}


class InferenceComponent:
    """An inference component; every verb waits until its status is final."""

    def create(self, ctx: ResourceContext, logical_id: str, properties: Properties) -> Created:
        """Create the component and wait until it is InService."""
        refuse_others(properties, _KNOWN, "AWS::SageMaker::InferenceComponent")
        name = properties.get("InferenceComponentName")
        name = str(name or generated_name(ctx, logical_id, _LONGEST_NAME, lower=True))
        request = {key: properties[key] for key in (*_FIXED, *_CHANGED) if key in properties}
        request |= {
            "InferenceComponentName": name,
            "Tags": tag_list(merged_tags(ctx, properties)) or None,
        }
        arn = send(ctx, "sagemaker", "CreateInferenceComponent", request)["InferenceComponentArn"]
        return _described(arn, _in_service(ctx, name, arn))

    def update(self, ctx: ResourceContext, physical_id: str, old: Properties, new: Properties) -> Created:
        """Change specification, copies and tags; a component does not move to another endpoint."""
        refuse_others(new, _KNOWN, "AWS::SageMaker::InferenceComponent")
        moved = [key for key in _FIXED if old.get(key) != new.get(key)]
        if moved:
            raise ResourceFailure(f"{', '.join(moved)} of an inference component cannot be changed")
        name = str(new.get("InferenceComponentName") or name_of(physical_id))
        retag_by_arn(ctx, physical_id, old, new)
        changed = {key: new[key] for key in _CHANGED if key in new and new[key] != old.get(key)}
        if changed:
            request = {"InferenceComponentName": name, **changed}
            request["DeploymentConfig"] = new.get("DeploymentConfig")
            send(ctx, "sagemaker", "UpdateInferenceComponent", request)
        return _described(physical_id, _in_service(ctx, name, None))

    def delete(self, ctx: ResourceContext, physical_id: str, properties: Properties) -> None:
        """Delete the component and wait until it is gone."""
        name = str(properties.get("InferenceComponentName") or name_of(physical_id))
        found = _rest(ctx, name)
        if found is not None and found["InferenceComponentStatus"] != "Deleting":
            with unless_gone():
                send(ctx, "sagemaker", "DeleteInferenceComponent", {"InferenceComponentName": name})
        while _seen(ctx, name) is not None:
            ctx.wait(_POLL_S)


def _seen(ctx: ResourceContext, name: str) -> dict[str, Any] | None:
    with unless_gone():
        return send(ctx, "sagemaker", "DescribeInferenceComponent", {"InferenceComponentName": name})
    return None


def _rest(ctx: ResourceContext, name: str) -> dict[str, Any] | None:
    while (found := _seen(ctx, name)) is not None and found["InferenceComponentStatus"] in _MOVING:
        ctx.wait(_POLL_S)
    return found


def _in_service(ctx: ResourceContext, name: str, made: str | None) -> dict[str, Any]:
    found = _rest(ctx, name)
    if found is None:
        raise ResourceFailure(f"Inference component {name} was deleted while CloudFormation waited for it.")
    if found["InferenceComponentStatus"] != "InService":
        why = found.get("FailureReason", "")
        status = found["InferenceComponentStatus"]
        raise ResourceFailure(
            f"Inference component {name} did not stabilize: it is {status}. {why}".strip(), physical_id=made
        )
    return found


def _described(arn: str, found: dict[str, Any]) -> Created:
    attributes = {
        "InferenceComponentArn": arn,
        "InferenceComponentName": found["InferenceComponentName"],
        "InferenceComponentStatus": found["InferenceComponentStatus"],
        "EndpointArn": found.get("EndpointArn", ""),
    }
    return Created(arn, attributes)


KINDS: dict[str, Kind] = {"AWS::SageMaker::InferenceComponent": InferenceComponent()}
