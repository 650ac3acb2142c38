"""Resource types, as the engine uses them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from sagemaker_local.cloudformation.resources import allowed_properties, handler_for, unsupported_property
from sagemaker_local.cloudformation.resources.base import Handler
from sagemaker_local.cloudformation.resources.schemas import required_properties


class RegisteredTypes:
    """The types that have a handler, checked against AWS's own schemas."""

    def __init__(self, find: Callable[[str], Handler | None] = handler_for) -> None:
        """Set up with the handlers."""
        self._find = find

    def handler(self, type_name: str) -> Handler | None:
        """Return the handler of a type, or None."""
        return self._find(type_name)

    def wrong_property(self, type_name: str, properties: Mapping[str, Any]) -> str | None:
        """Return what is wrong with a resource's properties, or None."""
        unknown = unsupported_property(type_name, properties)
        if unknown is not None:
            return f"Encountered unsupported property {unknown}"
        lost = sorted(required_properties(type_name) - properties.keys())
        if lost:
            told = ", ".join(f"#: required key [{name}] not found" for name in lost)
            return f"Properties validation failed for resource of type {type_name} with message: {told}"
        return None

    def taggable(self, type_name: str) -> bool:
        """Return whether the stack's tags go to resources of this type."""
        allowed = allowed_properties(type_name)
        return allowed is not None and "Tags" in allowed
