"""Resource types and their handlers."""

from __future__ import annotations

from functools import cache

from sagemaker_local.cloudformation.resources import table
from sagemaker_local.cloudformation.resources.access import iam, kms
from sagemaker_local.cloudformation.resources.base import (
    Created,
    Handler,
    Kind,
    Properties,
    ResourceContext,
)
from sagemaker_local.cloudformation.resources.calls import told_as_aws_does
from sagemaker_local.cloudformation.resources.functions import lambda_, schedules
from sagemaker_local.cloudformation.resources.functions.custom import CustomResource
from sagemaker_local.cloudformation.resources.monitoring import cloudwatch, logs, sns, sqs
from sagemaker_local.cloudformation.resources.schemas import immutable_properties
from sagemaker_local.cloudformation.resources.serving import autoscaling, components, sagemaker
from sagemaker_local.cloudformation.resources.storage import dynamodb, ecr, s3

_CUSTOM_PREFIX = "Custom::"

_CUSTOM = "AWS::CloudFormation::CustomResource"

_KINDS: dict[str, Kind] = {
    **autoscaling.KINDS,
    **cloudwatch.KINDS,
    **components.KINDS,
    **dynamodb.KINDS,
    **ecr.KINDS,
    **iam.KINDS,
    **kms.KINDS,
    **lambda_.KINDS,
    **logs.KINDS,
    **s3.KINDS,
    **sagemaker.KINDS,
    **schedules.KINDS,
    **sns.KINDS,
    **sqs.KINDS,
    **table.KINDS,
    _CUSTOM: CustomResource(_CUSTOM),
}


def type_names() -> frozenset[str]:
    """Return every type that has a handler; ``Custom::*`` has one too."""
    return frozenset(_KINDS)


@cache
def handler_for(type_name: str) -> Handler | None:
    """Return the handler of a type; None for a type that the local CloudFormation does not have."""
    if type_name.startswith(_CUSTOM_PREFIX) or type_name == _CUSTOM:
        return _Careful(type_name, frozenset(), CustomResource(type_name))
    kind = _KINDS.get(type_name)
    return None if kind is None else _Careful(type_name, immutable_properties(type_name), kind)


class _Careful:
    """A handler that turns its services' errors into ResourceFailure."""

    def __init__(self, type_name: str, immutable: frozenset[str], kind: Kind) -> None:
        self.type_name = type_name
        self.immutable = immutable
        self._kind = kind

    def create(self, ctx: ResourceContext, logical_id: str, properties: Properties) -> Created:
        with told_as_aws_does(ctx):
            return self._kind.create(ctx, logical_id, properties)

    def update(self, ctx: ResourceContext, physical_id: str, old: Properties, new: Properties) -> Created:
        with told_as_aws_does(ctx):
            return self._kind.update(ctx, physical_id, old, new)

    def delete(self, ctx: ResourceContext, physical_id: str, properties: Properties) -> None:
        with told_as_aws_does(ctx):
            self._kind.delete(ctx, physical_id, properties)
