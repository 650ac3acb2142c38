"""Resource types of the local CloudFormation: one handler a type, each calling its service's API."""

from sagemaker_local.cloudformation.resources.base import (
    Created,
    Handler,
    Properties,
    ResourceContext,
    ResourceFailure,
)
from sagemaker_local.cloudformation.resources.registry import handler_for
from sagemaker_local.cloudformation.resources.schemas import allowed_properties, unsupported_property

__all__ = [
    "Created",
    "Handler",
    "Properties",
    "ResourceContext",
    "ResourceFailure",
    "allowed_properties",
    "handler_for",
    "unsupported_property",
]
