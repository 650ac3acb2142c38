"""AWS::CloudWatch::Alarm and AWS::CloudWatch::CompositeAlarm."""

from __future__ import annotations

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
    retag,
    send,
    tag_list,
)

_BOTH = ["MetricAlarm", "CompositeAlarm"]


class Alarm:
    """An alarm on metrics, or (``operation`` PutCompositeAlarm) on other alarms."""

    def __init__(self, operation: str) -> None:
        """Set the operation that puts an alarm of this kind."""
        self._operation = operation

    def create(self, ctx: ResourceContext, logical_id: str, properties: Properties) -> Created:
        """Put the alarm; an existing name is refused."""
        name = properties.get("AlarmName") or generated_name(ctx, logical_id, 255)
        named = {"AlarmNames": [name], "AlarmTypes": _BOTH}
        found = send(ctx, "cloudwatch", "DescribeAlarms", named)
        if found.get("MetricAlarms") or found.get("CompositeAlarms"):
            raise ResourceFailure(f"{name} already exists")
        tags = tag_list(merged_tags(ctx, properties)) or None
        send(ctx, "cloudwatch", self._operation, {**properties, "AlarmName": name, "Tags": tags})
        return _described(ctx, name)

    def update(self, ctx: ResourceContext, physical_id: str, old: Properties, new: Properties) -> Created:
        """Replace the old alarm with the new one."""
        request = {**new, "AlarmName": physical_id, "Tags": None}
        send(ctx, "cloudwatch", self._operation, request)
        made = _described(ctx, physical_id)
        retag(ctx, "cloudwatch", {"ResourceARN": made.attributes["Arn"]}, old, new)
        return made

    def delete(self, ctx: ResourceContext, physical_id: str, properties: Properties) -> None:
        """Delete the alarm."""
        with gone_is_fine("ResourceNotFound", "ResourceNotFoundException"):
            send(ctx, "cloudwatch", "DeleteAlarms", {"AlarmNames": [physical_id]})


def _described(ctx: ResourceContext, name: str) -> Created:
    return Created(name, {"Arn": f"arn:{ctx.partition}:cloudwatch:{ctx.region}:{ctx.account}:alarm:{name}"})


KINDS: dict[str, Kind] = {
    "AWS::CloudWatch::Alarm": Alarm("PutMetricAlarm"),
    "AWS::CloudWatch::CompositeAlarm": Alarm("PutCompositeAlarm"),
}
