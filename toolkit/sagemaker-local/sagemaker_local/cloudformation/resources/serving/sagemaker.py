"""AWS::SageMaker::Model, AWS::SageMaker::EndpointConfig and AWS::SageMaker::Endpoint."""

from __future__ import annotations

from typing import Any

from sagemaker_local.cloudformation.resources.access.roles import check_role
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

_SERVICE = "sagemaker.amazonaws.com"
_LONGEST_NAME = 63
# Real seconds between two looks at an endpoint.
_POLL_S = 0.2
_MOVING = frozenset({"Creating", "Updating", "SystemUpdating", "RollingBack"})
_ONLY_FOR_UPDATES = (
    "RetainAllVariantProperties",
    "ExcludeRetainedVariantProperties",
    "RetainDeploymentConfig",
)


class Named:
    """A model or an endpoint configuration: only its tags can change."""

    def __init__(self, kind: str) -> None:
        """Set the kind, "Model" or "EndpointConfig"."""
        self._kind = kind
        self._name, self._arn = f"{kind}Name", f"{kind}Arn"

    def create(self, ctx: ResourceContext, logical_id: str, properties: Properties) -> Created:
        """Create it; SageMaker must be able to assume its role."""
        if "ExecutionRoleArn" in properties:
            check_execution_role(ctx, str(properties["ExecutionRoleArn"]))
        name = properties.get(self._name) or generated_name(ctx, logical_id, _LONGEST_NAME, lower=True)
        tags = tag_list(merged_tags(ctx, properties)) or None
        request = {**properties, self._name: name, "Tags": tags}
        arn = send(ctx, "sagemaker", f"Create{self._kind}", request)[self._arn]
        return Created(arn, {self._arn: arn, self._name: name})

    def update(self, ctx: ResourceContext, physical_id: str, old: Properties, new: Properties) -> Created:
        """Change the tags."""
        retag_by_arn(ctx, physical_id, old, new)
        return Created(physical_id, {self._arn: physical_id, self._name: name_of(physical_id)})

    def delete(self, ctx: ResourceContext, physical_id: str, properties: Properties) -> None:
        """Delete it."""
        with unless_gone():
            named = {self._name: properties.get(self._name) or name_of(physical_id)}
            send(ctx, "sagemaker", f"Delete{self._kind}", named)


class Endpoint:
    """An endpoint; every verb waits until its status is final."""

    def create(self, ctx: ResourceContext, logical_id: str, properties: Properties) -> Created:
        """Create the endpoint and wait until it is InService."""
        name = properties.get("EndpointName") or generated_name(ctx, logical_id, _LONGEST_NAME, lower=True)
        tags = tag_list(merged_tags(ctx, properties)) or None
        request = {key: value for key, value in properties.items() if key not in _ONLY_FOR_UPDATES}
        request |= {"EndpointName": name, "Tags": tags}
        arn = send(ctx, "sagemaker", "CreateEndpoint", request)["EndpointArn"]
        found = _rest(ctx, name)
        if found is None or found["EndpointStatus"] != "InService":
            raise ResourceFailure(_reason(name, found), physical_id=arn)
        return _described(arn, name)

    def update(self, ctx: ResourceContext, physical_id: str, old: Properties, new: Properties) -> Created:
        """Change the configuration in place; a rollback of the endpoint is a failure of the resource."""
        name = str(new.get("EndpointName") or name_of(physical_id))
        retag_by_arn(ctx, physical_id, old, new)
        wanted = new["EndpointConfigName"]
        now = send(ctx, "sagemaker", "DescribeEndpoint", {"EndpointName": name})
        same = now["EndpointConfigName"] == wanted and now["EndpointStatus"] == "InService"
        if not same or new.get("DeploymentConfig") != old.get("DeploymentConfig"):
            request = {key: value for key, value in new.items() if key != "Tags"}
            send(ctx, "sagemaker", "UpdateEndpoint", {**request, "EndpointName": name})
            found = _rest(ctx, name)
            if found is None or (found["EndpointStatus"], found["EndpointConfigName"]) != (
                "InService",
                wanted,
            ):
                raise ResourceFailure(_reason(name, found))
        return _described(physical_id, name)

    def delete(self, ctx: ResourceContext, physical_id: str, properties: Properties) -> None:
        """Delete the endpoint, once its status allows that, and wait until it is gone."""
        name = str(properties.get("EndpointName") or name_of(physical_id))
        found = _rest(ctx, name)
        if found is None:
            return
        if found["EndpointStatus"] != "Deleting":
            with unless_gone():
                send(ctx, "sagemaker", "DeleteEndpoint", {"EndpointName": name})
        while (found := _seen(ctx, name)) is not None:
            if found["EndpointStatus"] == "Failed":
                raise ResourceFailure(_reason(name, found))
            ctx.wait(_POLL_S)


def _seen(ctx: ResourceContext, name: str) -> dict[str, Any] | None:
    with unless_gone():
        return send(ctx, "sagemaker", "DescribeEndpoint", {"EndpointName": name})
    return None


def _rest(ctx: ResourceContext, name: str) -> dict[str, Any] | None:
    """Wait until an endpoint is no longer being changed; None when it is gone."""
    while (found := _seen(ctx, name)) is not None and found["EndpointStatus"] in _MOVING:
        ctx.wait(_POLL_S)
    return found


def _reason(name: str, found: dict[str, Any] | None) -> str:
    if found is None:
        return f"Endpoint {name} was deleted while CloudFormation waited for it."
    why = found.get("FailureReason", "")
    status = f"is {found['EndpointStatus']} with configuration {found['EndpointConfigName']}"
    return f"Endpoint {name} did not stabilize: it {status}. {why}".strip()


def _described(arn: str, name: str) -> Created:
    return Created(arn, {"EndpointArn": arn, "EndpointName": name})


def check_execution_role(ctx: ResourceContext, arn: str) -> None:
    """Refuse a role that SageMaker cannot assume, or that the stack's role may not pass."""
    refusal = (
        f"Could not assume role {arn}. Please ensure that the role exists and allows principal "
        f"'{_SERVICE}' to assume the role."
    )
    check_role(ctx, arn, _SERVICE, refusal)


def retag_by_arn(ctx: ResourceContext, arn: str, old: Properties, new: Properties) -> None:
    """Set a SageMaker resource's tags to the template's."""
    retag(ctx, "sagemaker", {"ResourceArn": arn}, old, new, tag="AddTags", untag="DeleteTags")


def name_of(arn: str) -> str:
    """Return the name in an ARN; SageMaker writes it there in lower case."""
    return arn.rsplit("/", 1)[-1]


def unless_gone() -> gone_is_fine:
    """Ignore SageMaker's "Could not find", a ValidationException recognised by its message."""
    return gone_is_fine(saying="Could not find")


KINDS: dict[str, Kind] = {
    "AWS::SageMaker::Model": Named("Model"),
    "AWS::SageMaker::EndpointConfig": Named("EndpointConfig"),
    "AWS::SageMaker::Endpoint": Endpoint(),
}
