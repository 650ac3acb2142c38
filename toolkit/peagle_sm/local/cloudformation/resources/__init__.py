"""Resource types of the local CloudFormation: one handler a type, each calling its service's API."""

from peagle_sm.local.cloudformation.resources.base import (
    Created,
    Handler,
    Properties,
    ResourceContext,
    ResourceFailure,
)
from peagle_sm.local.cloudformation.resources.registry import handler_for
from peagle_sm.local.cloudformation.resources.schemas import allowed_properties, unsupported_property

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
