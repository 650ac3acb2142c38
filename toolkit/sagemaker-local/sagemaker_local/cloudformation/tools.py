"""Clock, clients, types and lock for operations on stacks."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from threading import RLock
from typing import Any, Protocol

from sagemaker_local.cloudformation.resources.base import Handler


class Types(Protocol):
    """Resource types, as `sagemaker_local.cloudformation.resources.types.ResourceTypes` has them."""

    def handler(self, type_name: str) -> Handler | None:
        """Return the handler of a type, or None."""

    def immutable(self, type_name: str) -> frozenset[str]:
        """Return the properties of a type whose change replaces a resource."""

    def wrong_property(self, type_name: str, properties: Mapping[str, Any]) -> str | None:
        """Return what is wrong with a resource's properties, or None."""

    def taggable(self, type_name: str) -> bool:
        """Return whether the stack's tags go to resources of this type."""


@dataclass(frozen=True)
class Tools:
    """Clock, clients, types, and the lock that guards every stack.

    Attributes:
        client: gives a boto3 client of a service at our own port.
        pause: sleeps for so many real seconds, or raises Interrupted.
    """

    account: str
    region: str
    now: Callable[[], datetime]
    types: Types
    client: Callable[[str], Any]
    pause: Callable[[float], None]
    partition: str = "aws"
    lock: RLock = field(default_factory=RLock)
