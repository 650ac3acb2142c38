"""Records of a stack: its resources, events and change sets."""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any

from sagemaker_local.cloudformation.errors import TemplateError
from sagemaker_local.cloudformation.language.evaluation import Output
from sagemaker_local.cloudformation.language.parameters import Bound
from sagemaker_local.cloudformation.language.template import Template

STACK_TYPE = "AWS::CloudFormation::Stack"
CUSTOM_TYPE = "AWS::CloudFormation::CustomResource"


def is_custom(type_name: str) -> bool:
    """Return whether a type is a custom resource (its provider may change the physical id)."""
    return type_name == CUSTOM_TYPE or type_name.startswith("Custom::")


@dataclass(frozen=True)
class Resource:
    """One resource; ``physical_id`` is None if its creation failed.

    ``unsure`` says that a change failed half-way: what the resource is like now is not known.
    """

    logical_id: str
    type_name: str
    physical_id: str | None
    status: str
    updated_at: datetime
    reason: str | None = None
    attributes: Mapping[str, Any] = field(default_factory=dict)
    properties: Mapping[str, Any] = field(default_factory=dict)
    metadata: Any = None
    deletion_policy: str = "Delete"
    update_replace_policy: str = "Delete"
    dependencies: frozenset[str] = frozenset()
    tags: Mapping[str, str] = field(default_factory=dict)
    unsure: bool = False

    def attribute(self, name: str) -> Any:
        """Return an attribute; dots in its name lead into an object.

        Raises:
            TemplateError: the resource does not have it.
        """
        if name in self.attributes:
            return self.attributes[name]
        value: Any = self.attributes
        for part in name.split("."):
            if not isinstance(value, Mapping) or part not in value:
                raise TemplateError(self._lacks(name))
            value = value[part]
        return value

    def _lacks(self, name: str) -> str:
        if is_custom(self.type_name):
            return (
                f"CustomResource attribute error: Vendor response doesn't contain {name} attribute "
                f"in object {self.logical_id}"
            )
        return (
            f"Template error: resource {self.logical_id} does not support attribute type {name} in Fn::GetAtt"
        )


@dataclass(frozen=True)
class Event:
    """One line of a stack's history."""

    event_id: str
    logical_id: str
    physical_id: str | None
    type_name: str
    timestamp: datetime
    status: str
    reason: str | None
    properties: str | None
    token: str | None


@dataclass(frozen=True)
class Desired:
    """Desired state of a stack: template, parameters, tags and role."""

    template: Template
    bound: Bound
    tags: Mapping[str, str] = field(default_factory=dict)
    capabilities: tuple[str, ...] = ()


@dataclass(frozen=True)
class PropertyChange:
    """One top-level property that changes, or may: ``dynamic``: known only during the deployment."""

    name: str
    before: Any
    after: Any
    recreation: str
    dynamic: bool


@dataclass(frozen=True)
class Change:
    """What happens to one resource.

    Attributes:
        action: Add, Modify or Remove.
        replacement: True, False or Conditional; None unless it is modified.
        scope: which of the resource's members change (Properties, Metadata, Tags, DeletionPolicy, ...).
    """

    action: str
    logical_id: str
    type_name: str
    physical_id: str | None = None
    replacement: str | None = None
    scope: tuple[str, ...] = ()
    details: tuple[PropertyChange, ...] = ()
    before: Mapping[str, Any] | None = None
    after: Mapping[str, Any] | None = None
    policy: str = "Delete"


@dataclass(frozen=True)
class Finding:
    """A property that AWS's early validation refuses."""

    logical_id: str
    type_name: str
    reason: str
    path: str


@dataclass
class ChangeSet:
    """One change set. ``desired`` is None if its evaluation failed; see the reason."""

    name: str
    change_set_id: str
    kind: str
    created_at: datetime
    status: str
    desired: Desired | None = None
    reason: str | None = None
    execution_status: str = "UNAVAILABLE"
    changes: tuple[Change, ...] = ()
    findings: tuple[Finding, ...] = ()
    description: str | None = None
    role_arn: str | None = None


@dataclass(frozen=True)
class Snapshot:
    """State of a stack before an update, for a rollback."""

    desired: Desired | None
    resources: Mapping[str, Resource]
    outputs: tuple[Output, ...]
    imports: frozenset[str]


@dataclass
class Stack:
    """One stack. Callers that change it hold the store's lock."""

    name: str
    stack_id: str
    created_at: datetime
    status: str
    now: Callable[[], datetime]
    reason: str | None = None
    desired: Desired | None = None
    role_arn: str | None = None
    updated_at: datetime | None = None
    deleted_at: datetime | None = None
    change_set_id: str | None = None
    resources: dict[str, Resource] = field(default_factory=dict)
    outputs: tuple[Output, ...] = ()
    imports: frozenset[str] = frozenset()
    events: list[Event] = field(default_factory=list)
    change_sets: list[ChangeSet] = field(default_factory=list)

    @property
    def deleted(self) -> bool:
        """Whether the stack is deleted; its id still finds it."""
        return self.status == "DELETE_COMPLETE"

    @property
    def in_progress(self) -> bool:
        """Whether an operation is running."""
        return self.status.endswith("_IN_PROGRESS") and self.status != "REVIEW_IN_PROGRESS"

    def snapshot(self) -> Snapshot:
        """Record the stack's current state."""
        return Snapshot(self.desired, dict(self.resources), self.outputs, self.imports)

    def move(self, status: str, reason: str | None = None, token: str | None = None) -> None:
        """Change the status and write its event."""
        self.status, self.reason = status, reason
        self.tell(self.name, self.stack_id, STACK_TYPE, status, reason, token=token)

    def put(self, resource: Resource, token: str | None = None, *, shown: bool = True) -> None:
        """Keep a resource's new state, with its event."""
        self.resources[resource.logical_id] = resource
        if shown:
            self.tell_of(resource, resource.status, resource.reason, token)

    def tell_of(self, resource: Resource, status: str, reason: str | None, token: str | None) -> None:
        """Write an event about a resource."""
        self.tell(
            resource.logical_id,
            resource.physical_id,
            resource.type_name,
            status,
            reason,
            properties=resource.properties,
            token=token,
        )

    def tell(
        self,
        logical_id: str,
        physical_id: str | None,
        type_name: str,
        status: str,
        reason: str | None = None,
        *,
        properties: Mapping[str, Any] | None = None,
        token: str | None = None,
    ) -> None:
        """Write an event."""
        at = self.now()
        number = uuid.uuid4()
        own = type_name == STACK_TYPE and physical_id == self.stack_id
        event_id = str(number) if own else f"{logical_id}-{status}-{number}"
        shown = None if properties is None else json.dumps(properties, default=str)
        self.events.append(
            Event(event_id, logical_id, physical_id, type_name, at, status, reason, shown, token)
        )

    def stand(self, logical_id: str) -> Resource | None:
        """Return the resource if it was created, else None."""
        resource = self.resources.get(logical_id)
        return resource if resource is not None and resource.physical_id is not None else None


def with_status(resource: Resource, status: str, at: datetime, reason: str | None = None) -> Resource:
    """Return the resource with another status."""
    return replace(resource, status=status, reason=reason, updated_at=at)
