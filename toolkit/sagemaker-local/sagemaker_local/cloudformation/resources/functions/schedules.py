"""AWS::Scheduler::Schedule and AWS::Events::Rule."""

from __future__ import annotations

from typing import Any

from sagemaker_local.cloudformation.resources.access.roles import check_role
from sagemaker_local.cloudformation.resources.base import (
    Created,
    Kind,
    Properties,
    ResourceContext,
    generated_name,
)
from sagemaker_local.cloudformation.resources.calls import (
    gone_is_fine,
    merged_tags,
    send,
    tag_list,
)

_GONE = ("ResourceNotFoundException",)
_DEFAULT_GROUP = "default"


class Schedule:
    """A schedule of EventBridge Scheduler; the local clock fires it."""

    def create(self, ctx: ResourceContext, logical_id: str, properties: Properties) -> Created:
        """Create the schedule."""
        self._check(ctx, properties)
        name = properties.get("Name") or generated_name(ctx, logical_id, 64)
        arn = send(ctx, "scheduler", "CreateSchedule", {**properties, "Name": name})["ScheduleArn"]
        return Created(name, {"Arn": arn})

    def update(self, ctx: ResourceContext, physical_id: str, old: Properties, new: Properties) -> Created:
        """Update the whole schedule; in another group, delete it and create it there."""
        self._check(ctx, new)
        if old.get("GroupName", _DEFAULT_GROUP) != new.get("GroupName", _DEFAULT_GROUP):
            self.delete(ctx, physical_id, old)
            return self.create(ctx, "", {**new, "Name": physical_id})
        arn = send(ctx, "scheduler", "UpdateSchedule", {**new, "Name": physical_id})["ScheduleArn"]
        return Created(physical_id, {"Arn": arn})

    def delete(self, ctx: ResourceContext, physical_id: str, properties: Properties) -> None:
        """Delete the schedule."""
        with gone_is_fine(*_GONE):
            named = {"Name": physical_id, "GroupName": properties.get("GroupName")}
            send(ctx, "scheduler", "DeleteSchedule", named)

    def _check(self, ctx: ResourceContext, properties: Properties) -> None:
        refusal = "The execution role you provide must allow AWS EventBridge Scheduler to assume the role."
        check_role(ctx, properties["Target"]["RoleArn"], "scheduler.amazonaws.com", refusal)


class Rule:
    """A rule of EventBridge with its targets. moto keeps it; nothing fires it here."""

    def create(self, ctx: ResourceContext, logical_id: str, properties: Properties) -> Created:
        """Create the rule."""
        name = properties.get("Name") or generated_name(ctx, logical_id, 64)
        return self._put(ctx, name, {}, properties)

    def update(self, ctx: ResourceContext, physical_id: str, old: Properties, new: Properties) -> Created:
        """Replace the old rule with the new one."""
        return self._put(ctx, physical_id.rsplit("|", 1)[-1], old, new)

    def delete(self, ctx: ResourceContext, physical_id: str, properties: Properties) -> None:
        """Delete the rule with its targets."""
        name = physical_id.rsplit("|", 1)[-1]
        with gone_is_fine(*_GONE):
            self._drop(ctx, name, properties, [each["Id"] for each in properties.get("Targets", [])])
            send(ctx, "events", "DeleteRule", {"Name": name, **_bus(properties)})

    def _put(self, ctx: ResourceContext, name: str, old: Properties, new: Properties) -> Created:
        request = {key: value for key, value in new.items() if key != "Targets"}
        tags = tag_list(merged_tags(ctx, new)) or None
        arn = send(ctx, "events", "PutRule", {**request, "Name": name, "Tags": tags})["RuleArn"]
        targets = new.get("Targets", [])
        kept = {each["Id"] for each in targets}
        self._drop(ctx, name, new, [each["Id"] for each in old.get("Targets", []) if each["Id"] not in kept])
        if targets:
            send(ctx, "events", "PutTargets", {"Rule": name, "Targets": targets, **_bus(new)})
        ctx.log("the rule is stored but never fires locally; AWS::Scheduler::Schedule does")
        return Created(name, {"Arn": arn, "RuleName": name})

    def _drop(self, ctx: ResourceContext, name: str, properties: Properties, ids: list[str]) -> None:
        if ids:
            send(ctx, "events", "RemoveTargets", {"Rule": name, "Ids": ids, **_bus(properties)})


def _bus(properties: Properties) -> dict[str, Any]:
    return {"EventBusName": properties.get("EventBusName")}


KINDS: dict[str, Kind] = {
    "AWS::Scheduler::Schedule": Schedule(),
    "AWS::Events::Rule": Rule(),
}
