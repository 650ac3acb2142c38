"""Interface between the engine and the handlers of resource types."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

Properties = Mapping[str, Any]


class ResourceFailure(Exception):
    """A resource could not be created, changed or deleted.

    Attributes:
        reason: what the stack's event says.
        physical_id: of something that a failed creation left standing, so that a rollback deletes it.
    """

    def __init__(self, reason: str, *, physical_id: str | None = None) -> None:
        super().__init__(reason)
        self.reason = reason
        self.physical_id = physical_id


@dataclass(frozen=True)
class Created:
    """A created resource: ``physical_id`` is its Ref, ``attributes`` are for Fn::GetAtt.

    After an update, another ``physical_id`` than before means that the resource was replaced (a custom
    resource may do so by itself): the engine deletes the old one in its cleanup.
    """

    physical_id: str
    attributes: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class ResourceContext:
    """What a handler may use while it works on one resource of one stack, in a worker thread.

    Attributes:
        stack_id: the stack's ARN.
        logical_id: the resource that is being worked on.
        request_id: one for each operation on the stack; retried calls may be told apart by it.
        client: gives a boto3 client of a service at our own port. Its ``read_timeout`` must outlast a
            Lambda (15 minutes), and it must not retry.
        pause: sleeps for so many real seconds; it raises (anything) to end the work early.
        role_arn: the role that the stack is deployed with; None when the caller's own rights are used.
        tags: the stack's own tags, which AWS puts on every resource that can carry them.
    """

    account: str
    region: str
    stack_name: str
    stack_id: str
    logical_id: str
    request_id: str
    client: Callable[[str], Any]
    pause: Callable[[float], None]
    partition: str = "aws"
    role_arn: str | None = None
    tags: Mapping[str, str] = field(default_factory=dict)


class Handler(Protocol):
    """The three verbs of one resource type. Calls block.

    They call services through ``calls.send`` and raise ResourceFailure or let botocore's errors pass.
    ``update`` is for changes of properties that do not replace the resource.
    """

    def create(self, ctx: ResourceContext, logical_id: str, properties: Properties) -> Created:
        """Create a resource; it must not exist yet."""

    def update(self, ctx: ResourceContext, physical_id: str, old: Properties, new: Properties) -> Created:
        """Change a resource in place."""

    def delete(self, ctx: ResourceContext, physical_id: str, properties: Properties) -> None:
        """Delete a resource; one that is gone already is no failure."""


def generated_name(ctx: ResourceContext, logical_id: str, longest: int, *, lower: bool = False) -> str:
    """Generate a name as CloudFormation does: ``<stack>-<logical id>-<random>``, cut to ``longest``."""
    tail = uuid.uuid4().hex[:12]
    tail = tail if lower else tail.upper()
    head = f"{ctx.stack_name}-{logical_id}"[: longest - len(tail) - 1].rstrip("-")
    name = f"{head}-{tail}"
    return name.lower() if lower else name
