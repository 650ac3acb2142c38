"""AWS::SSM::Parameter."""

from __future__ import annotations

from typing import Any

from sagemaker_local.cloudformation.resources.base import (
    Created,
    Kind,
    Properties,
    ResourceContext,
    generated_name,
)
from sagemaker_local.cloudformation.resources.calls import (
    dropped_tags,
    gone_is_fine,
    merged_tags,
    send,
    tag_list,
)

_PLAIN = ("Type", "Value", "Description", "AllowedPattern", "Tier", "Policies", "DataType")


class Parameter:
    """A parameter of the parameter store."""

    def create(self, ctx: ResourceContext, logical_id: str, properties: Properties) -> Created:
        """Put the parameter; an existing name is refused."""
        name = properties.get("Name") or f"CFN-{generated_name(ctx, logical_id, 1000)}"
        tags = tag_list(merged_tags(ctx, properties)) or None
        send(ctx, "ssm", "PutParameter", {**_request(name, properties), "Tags": tags})
        return _described(ctx, name, properties)

    def update(self, ctx: ResourceContext, physical_id: str, old: Properties, new: Properties) -> Created:
        """Replace the old value with the new one."""
        send(ctx, "ssm", "PutParameter", {**_request(physical_id, new), "Overwrite": True})
        about = {"ResourceType": "Parameter", "ResourceId": physical_id}
        dropped = dropped_tags(ctx, old, new)
        if dropped:
            send(ctx, "ssm", "RemoveTagsFromResource", {**about, "TagKeys": dropped})
        tags = tag_list(merged_tags(ctx, new))
        if tags:
            send(ctx, "ssm", "AddTagsToResource", {**about, "Tags": tags})
        return _described(ctx, physical_id, new)

    def delete(self, ctx: ResourceContext, physical_id: str, properties: Properties) -> None:
        """Delete the parameter."""
        with gone_is_fine("ParameterNotFound"):
            send(ctx, "ssm", "DeleteParameter", {"Name": physical_id})


def _request(name: str, properties: Properties) -> dict[str, Any]:
    return {"Name": name, **{key: properties[key] for key in _PLAIN if key in properties}}


def _described(ctx: ResourceContext, name: str, properties: Properties) -> Created:
    arn = f"arn:{ctx.partition}:ssm:{ctx.region}:{ctx.account}:parameter/{name.removeprefix('/')}"
    return Created(name, {"Type": properties["Type"], "Value": properties["Value"], "Arn": arn})


KINDS: dict[str, Kind] = {"AWS::SSM::Parameter": Parameter()}
