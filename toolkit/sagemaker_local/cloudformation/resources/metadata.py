"""AWS::CDK::Metadata: the CDK's usage metadata; creates no resource."""

from __future__ import annotations

from sagemaker_local.cloudformation.resources.base import (
    Created,
    Kind,
    Properties,
    ResourceContext,
    generated_name,
)


class Metadata:
    """A resource that is only an id."""

    def create(self, ctx: ResourceContext, logical_id: str, properties: Properties) -> Created:
        """Return an id."""
        return Created(generated_name(ctx, logical_id, 128))

    def update(self, ctx: ResourceContext, physical_id: str, old: Properties, new: Properties) -> Created:
        """Keep the id."""
        return Created(physical_id)

    def delete(self, ctx: ResourceContext, physical_id: str, properties: Properties) -> None:
        """Do nothing."""


KINDS: dict[str, Kind] = {"AWS::CDK::Metadata": Metadata()}
