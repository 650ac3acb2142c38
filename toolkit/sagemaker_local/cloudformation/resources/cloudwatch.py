"""AWS::CloudWatch::Alarm, AWS::CloudWatch::CompositeAlarm and AWS::CloudWatch::Dashboard."""

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
    dropped_tags,
    gone_is_fine,
    merged_tags,
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
        arn = {"ResourceARN": made.attributes["Arn"]}
        dropped = dropped_tags(ctx, old, new)
        if dropped:
            send(ctx, "cloudwatch", "UntagResource", {**arn, "TagKeys": dropped})
        tags = tag_list(merged_tags(ctx, new))
        if tags:
            send(ctx, "cloudwatch", "TagResource", {**arn, "Tags": tags})
        return made

    def delete(self, ctx: ResourceContext, physical_id: str, properties: Properties) -> None:
        """Delete the alarm."""
        with gone_is_fine("ResourceNotFound", "ResourceNotFoundException"):
            send(ctx, "cloudwatch", "DeleteAlarms", {"AlarmNames": [physical_id]})


def _described(ctx: ResourceContext, name: str) -> Created:
    return Created(name, {"Arn": f"arn:{ctx.partition}:cloudwatch:{ctx.region}:{ctx.account}:alarm:{name}"})


class Dashboard:
    """A dashboard."""

    def create(self, ctx: ResourceContext, logical_id: str, properties: Properties) -> Created:
        """Put the dashboard."""
        name = properties.get("DashboardName") or generated_name(ctx, logical_id, 255)
        self._put(ctx, name, properties, tag_list(merged_tags(ctx, properties)) or None)
        return Created(name)

    def update(self, ctx: ResourceContext, physical_id: str, old: Properties, new: Properties) -> Created:
        """Replace the old dashboard with the new one; moto cannot change a dashboard's tags."""
        self._put(ctx, physical_id, new, None)
        return Created(physical_id)

    def delete(self, ctx: ResourceContext, physical_id: str, properties: Properties) -> None:
        """Delete the dashboard."""
        with gone_is_fine("ResourceNotFound", "DashboardNotFoundError"):
            send(ctx, "cloudwatch", "DeleteDashboards", {"DashboardNames": [physical_id]})

    def _put(
        self, ctx: ResourceContext, name: str, properties: Properties, tags: list[dict[str, str]] | None
    ) -> None:
        request = {"DashboardName": name, "DashboardBody": properties["DashboardBody"], "Tags": tags}
        send(ctx, "cloudwatch", "PutDashboard", request)


KINDS: dict[str, Kind] = {
    "AWS::CloudWatch::Alarm": Alarm("PutMetricAlarm"),
    "AWS::CloudWatch::CompositeAlarm": Alarm("PutCompositeAlarm"),
    "AWS::CloudWatch::Dashboard": Dashboard(),
}
