"""AWS::SageMaker::Endpoint and AWS::SageMaker::InferenceComponent: every verb waits for the final status."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from sagemaker_local.cloudformation.resources.base import (
    Created,
    Properties,
    ResourceContext,
    ResourceFailure,
    generated_name,
)
from sagemaker_local.cloudformation.resources.calls import (
    gone_is_fine,
    merged_tags,
    refuse_others,
    send,
    tag_list,
)

_GONE = "Could not find"
_LONGEST_NAME = 63
# Real seconds between two looks at the status.
_POLL_S = 0.2
_MOVING = frozenset({"Creating", "Updating", "RollingBack"})


@dataclass(frozen=True)
class Served:
    """An endpoint or an inference component.

    Attributes:
        kind: "Endpoint" or "InferenceComponent", which all operations and members are named after.
        created: properties of the creation.
        changed: properties that an update changes.
        of_updates: properties that only the operation of an update takes.
        fixed: properties that cannot be changed.
    """

    kind: str
    created: tuple[str, ...]
    changed: tuple[str, ...]
    of_updates: tuple[str, ...]
    fixed: tuple[str, ...] = ()

    def create(self, ctx: ResourceContext, logical_id: str, properties: Properties) -> Created:
        """Create it and wait until it is InService."""
        self._check(properties)
        name = properties.get(f"{self.kind}Name")
        name = str(name or generated_name(ctx, logical_id, _LONGEST_NAME, lower=True))
        request = {key: properties.get(key) for key in (*self.created, *self.changed)}
        request |= {f"{self.kind}Name": name, "Tags": tag_list(merged_tags(ctx, properties)) or None}
        arn = str(send(ctx, "sagemaker", f"Create{self.kind}", request)[f"{self.kind}Arn"])
        settled = self._settled(ctx, name)
        if settled is None or settled[f"{self.kind}Status"] != "InService":
            raise ResourceFailure(self._reason(name, settled), physical_id=arn)
        return self._described(arn, settled)

    def update(self, ctx: ResourceContext, physical_id: str, old: Properties, new: Properties) -> Created:
        """Change it in place; an update that SageMaker rolls back is a failure."""
        self._check(new)
        moved = [key for key in self.fixed if old.get(key) != new.get(key)]
        if moved:
            raise ResourceFailure(f"SageMaker does not change {', '.join(moved)} of {self.kind}s")
        name = self._name(physical_id, new)
        wanted, dropped = merged_tags(ctx, new), merged_tags(ctx, old)
        keys = sorted(dropped.keys() - wanted.keys())
        if keys:
            send(ctx, "sagemaker", "DeleteTags", {"ResourceArn": physical_id, "TagKeys": keys})
        if wanted:
            send(ctx, "sagemaker", "AddTags", {"ResourceArn": physical_id, "Tags": tag_list(wanted)})
        settled = self._seen(ctx, name)
        if settled is None or self._differs(settled, old, new):
            request = {key: new.get(key) for key in (*self.changed, *self.of_updates)}
            send(ctx, "sagemaker", f"Update{self.kind}", {f"{self.kind}Name": name, **request})
            settled = self._settled(ctx, name)
            config = new.get("EndpointConfigName")
            if settled is None or settled[f"{self.kind}Status"] != "InService":
                raise ResourceFailure(self._reason(name, settled))
            if settled.get("EndpointConfigName", config) != config:  # SageMaker has rolled it back
                raise ResourceFailure(self._reason(name, settled))
        return self._described(physical_id, settled)

    def delete(self, ctx: ResourceContext, physical_id: str, properties: Properties) -> None:
        """Delete it, once its status allows that, and wait until it is gone."""
        name = self._name(physical_id, properties)
        settled = self._settled(ctx, name)
        if settled is None:
            return
        if settled[f"{self.kind}Status"] != "Deleting":
            with gone_is_fine(_GONE):
                send(ctx, "sagemaker", f"Delete{self.kind}", {f"{self.kind}Name": name})
        while (settled := self._seen(ctx, name)) is not None:
            if settled[f"{self.kind}Status"] == "Failed":
                raise ResourceFailure(self._reason(name, settled))
            ctx.pause(_POLL_S)

    def _check(self, properties: Properties) -> None:
        known = {*self.created, *self.changed, *self.of_updates, f"{self.kind}Name", "Tags", "EndpointArn"}
        refuse_others(properties, known, f"AWS::SageMaker::{self.kind}")

    def _differs(self, now: dict[str, Any], old: Properties, new: Properties) -> bool:
        """Return whether an update is needed: after a rollback by SageMaker the endpoint is as it was."""
        if self.kind == "InferenceComponent":
            return any(old.get(key) != new.get(key) for key in self.changed)
        as_wanted = (now["EndpointStatus"], now["EndpointConfigName"]) == (
            "InService",
            new["EndpointConfigName"],
        )
        return not as_wanted or old.get("DeploymentConfig") != new.get("DeploymentConfig")

    def _name(self, arn: str, properties: Properties) -> str:
        """Return the name; SageMaker writes a generated one, in small letters, into the ARN."""
        return str(properties.get(f"{self.kind}Name") or arn.rsplit("/", 1)[-1])

    def _seen(self, ctx: ResourceContext, name: str) -> dict[str, Any] | None:
        with gone_is_fine(_GONE):
            return send(ctx, "sagemaker", f"Describe{self.kind}", {f"{self.kind}Name": name})
        return None

    def _settled(self, ctx: ResourceContext, name: str) -> dict[str, Any] | None:
        """Wait until it is no longer being changed; None when it is gone."""
        while (now := self._seen(ctx, name)) is not None and now[f"{self.kind}Status"] in _MOVING:
            ctx.pause(_POLL_S)
        return now

    def _reason(self, name: str, now: dict[str, Any] | None) -> str:
        if now is None:
            return f"{self.kind} {name} was deleted while CloudFormation waited for it."
        config = f" with configuration {now['EndpointConfigName']}" if self.kind == "Endpoint" else ""
        state = f"{self.kind} {name} did not stabilize: it is {now[f'{self.kind}Status']}{config}."
        return f"{state} {now.get('FailureReason', '')}".strip()

    def _described(self, arn: str, now: dict[str, Any]) -> Created:
        names = (f"{self.kind}Arn", f"{self.kind}Name", f"{self.kind}Status", "EndpointArn")
        return Created(arn, {name: now.get(name, "") for name in names})


ENDPOINT = Served(
    "Endpoint",
    created=("DeploymentConfig",),
    changed=("EndpointConfigName",),
    of_updates=("RetainAllVariantProperties", "ExcludeRetainedVariantProperties", "RetainDeploymentConfig"),
)
COMPONENT = Served(
    "InferenceComponent",
    created=("EndpointName", "VariantName"),
    changed=("Specification", "RuntimeConfig"),
    of_updates=("DeploymentConfig",),
    fixed=("EndpointName", "VariantName"),
)
