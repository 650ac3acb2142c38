"""Every resource type with its handler, and what AWS's schema says of it."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any

from sagemaker_local.cloudformation.resources import schemas
from sagemaker_local.cloudformation.resources.base import (
    Created,
    Handler,
    Properties,
    ResourceContext,
)
from sagemaker_local.cloudformation.resources.by_table import ByTable, Metadata, Row
from sagemaker_local.cloudformation.resources.calls import worded_as_aws_does
from sagemaker_local.cloudformation.resources.custom import CustomResource
from sagemaker_local.cloudformation.resources.rows import ROWS
from sagemaker_local.cloudformation.resources.serving import COMPONENT, ENDPOINT

_CUSTOM = "AWS::CloudFormation::CustomResource"

HANDLERS: dict[str, Handler] = {
    **{name: ByTable(name, row) if isinstance(row, Row) else row for name, row in ROWS.items()},
    "AWS::CDK::Metadata": Metadata(),
    "AWS::SageMaker::Endpoint": ENDPOINT,
    "AWS::SageMaker::InferenceComponent": COMPONENT,
    _CUSTOM: CustomResource(_CUSTOM),
}


@cache
def handler_for(type_name: str) -> Handler | None:
    """Return the handler of a type; None for a type that the local CloudFormation does not have."""
    if type_name.startswith("Custom::"):
        return _Worded(CustomResource(type_name))
    handler = HANDLERS.get(type_name)
    return None if handler is None else _Worded(handler)


class ResourceTypes:
    """The types as the engine uses them."""

    def handler(self, type_name: str) -> Handler | None:
        """Return the handler of a type, or None."""
        return handler_for(type_name)

    def immutable(self, type_name: str) -> frozenset[str]:
        """Return the properties of a type whose change replaces a resource."""
        return schemas.immutable_properties(type_name)

    def wrong_property(self, type_name: str, properties: Mapping[str, Any]) -> str | None:
        """Return what AWS's schema refuses of a resource's properties, or None."""
        unknown = schemas.unsupported_property(type_name, properties)
        if unknown is not None:
            return f"Encountered unsupported property {unknown}"
        missing = sorted(schemas.required_properties(type_name) - properties.keys())
        if missing:
            keys = ", ".join(f"#: required key [{name}] not found" for name in missing)
            return f"Properties validation failed for resource of type {type_name} with message: {keys}"
        return None

    def taggable(self, type_name: str) -> bool:
        """Return whether the stack's tags go to resources of this type."""
        return "Tags" in (schemas.allowed_properties(type_name) or ())


class _Worded:
    """A handler whose services' errors become ResourceFailure."""

    def __init__(self, handler: Handler) -> None:
        self._handler = handler

    def create(self, ctx: ResourceContext, logical_id: str, properties: Properties) -> Created:
        with worded_as_aws_does(ctx):
            return self._handler.create(ctx, logical_id, properties)

    def update(self, ctx: ResourceContext, physical_id: str, old: Properties, new: Properties) -> Created:
        with worded_as_aws_does(ctx):
            return self._handler.update(ctx, physical_id, old, new)

    def delete(self, ctx: ResourceContext, physical_id: str, properties: Properties) -> None:
        with worded_as_aws_does(ctx):
            self._handler.delete(ctx, physical_id, properties)
