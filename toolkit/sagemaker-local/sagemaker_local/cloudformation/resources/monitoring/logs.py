"""AWS::Logs::LogGroup and AWS::Logs::MetricFilter."""

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
from sagemaker_local.cloudformation.resources.calls import (
    gone_is_fine,
    merged_tags,
    refuse_others,
    retag,
    send,
)

_GONE = ("ResourceNotFoundException",)
_FIXED = ("KmsKeyId", "LogGroupClass")
_KNOWN = {*_FIXED, "LogGroupName", "RetentionInDays", "Tags"}


class LogGroup:
    """A log group."""

    def create(self, ctx: ResourceContext, logical_id: str, properties: Properties) -> Created:
        """Create the group; an existing group is refused, as in AWS."""
        refuse_others(properties, _KNOWN, "AWS::Logs::LogGroup")
        name = properties.get("LogGroupName") or generated_name(ctx, logical_id, 512)
        request = {
            "logGroupName": name,
            "kmsKeyId": properties.get("KmsKeyId"),
            "logGroupClass": properties.get("LogGroupClass"),
            "tags": merged_tags(ctx, properties) or None,
        }
        send(ctx, "logs", "CreateLogGroup", request)
        self._retention(ctx, name, {}, properties)
        return _described(ctx, name)

    def update(self, ctx: ResourceContext, physical_id: str, old: Properties, new: Properties) -> Created:
        """Change retention and tags; moto cannot change a group's key."""
        refuse_others(new, _KNOWN, "AWS::Logs::LogGroup")
        changed = [key for key in _FIXED if old.get(key) != new.get(key)]
        if changed:
            raise ResourceFailure(
                f"the local CloudFormation does not change {', '.join(changed)} of a log group"
            )
        self._retention(ctx, physical_id, old, new)
        group = {"logGroupName": physical_id}
        retag(ctx, "logs", group, old, new, tag="TagLogGroup", untag="UntagLogGroup", keys="tags", form=dict)
        return _described(ctx, physical_id)

    def delete(self, ctx: ResourceContext, physical_id: str, properties: Properties) -> None:
        """Delete the log group and its events."""
        with gone_is_fine(*_GONE):
            send(ctx, "logs", "DeleteLogGroup", {"logGroupName": physical_id})

    def _retention(self, ctx: ResourceContext, name: str, old: Properties, new: Properties) -> None:
        days = new.get("RetentionInDays")
        if days is not None:
            send(ctx, "logs", "PutRetentionPolicy", {"logGroupName": name, "retentionInDays": days})
        elif old.get("RetentionInDays") is not None:
            send(ctx, "logs", "DeleteRetentionPolicy", {"logGroupName": name})


def _described(ctx: ResourceContext, name: str) -> Created:
    arn = f"arn:{ctx.partition}:logs:{ctx.region}:{ctx.account}:log-group:{name}:*"
    return Created(name, {"Arn": arn})


class MetricFilter:
    """A metric filter of log events. moto stores it but emits no metrics."""

    def create(self, ctx: ResourceContext, logical_id: str, properties: Properties) -> Created:
        """Put the filter."""
        name = properties.get("FilterName") or generated_name(ctx, logical_id, 512)
        self._put(ctx, name, properties)
        return Created(name)

    def update(self, ctx: ResourceContext, physical_id: str, old: Properties, new: Properties) -> Created:
        """Replace the old filter with the new one."""
        self._put(ctx, physical_id, new)
        return Created(physical_id)

    def delete(self, ctx: ResourceContext, physical_id: str, properties: Properties) -> None:
        """Delete the filter."""
        named = {"logGroupName": properties["LogGroupName"], "filterName": physical_id}
        with gone_is_fine(*_GONE):
            send(ctx, "logs", "DeleteMetricFilter", named)

    def _put(self, ctx: ResourceContext, name: str, properties: Properties) -> None:
        made = [_transformation(each) for each in properties["MetricTransformations"]]
        request = {**properties, "FilterName": name, "MetricTransformations": made}
        send(ctx, "logs", "PutMetricFilter", request)
        ctx.log("the metric filter is stored, but emits no metrics locally")


def _transformation(said: dict[str, Any]) -> dict[str, Any]:
    dimensions = {each["Key"]: each["Value"] for each in said.get("Dimensions", [])}
    return {**said, "Dimensions": dimensions or None}


KINDS: dict[str, Kind] = {"AWS::Logs::LogGroup": LogGroup(), "AWS::Logs::MetricFilter": MetricFilter()}
