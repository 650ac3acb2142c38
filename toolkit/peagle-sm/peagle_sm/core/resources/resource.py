"""Request and Resource: what all kinds of resources have in common."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

Refer = Callable[[str, str | None], Any]
"""Returns CloudFormation's reference to the resource with a label, or to one of its attributes."""


@dataclass(frozen=True)
class Request:
    """One call to AWS in boto3's names, as ("sagemaker", "create_model", {...})."""

    service: str
    operation: str
    parameters: dict[str, Any]

    @property
    def name(self) -> str:
        """Name of the resource that it creates."""
        own = "".join(word.capitalize() for word in self.operation.split("_")[1:])
        names = (f"{own}Name", "Name", "PolicyName", "AlarmName", "ResourceId", "logGroupName")
        return next((str(self.parameters[name]) for name in names if name in self.parameters), "")

    @property
    def command(self) -> str:
        """Return the AWS CLI's command for it; each parameter is text or a list of texts."""
        words = ["aws", self.service, self.operation.replace("_", "-")]
        for name, value in self.parameters.items():
            words.append("-" + re.sub("(?=[A-Z])", "-", name[0].upper() + name[1:]).lower())
            words += [value] if isinstance(value, str) else value
        return " ".join(words)


@dataclass(frozen=True)
class Resource:
    """One resource of an endpoint.

    ``parameters`` are those of its creation; None if only the name is known, as in a deletion. ``needs`` are
    the labels of the resources that are created before it and deleted after it.
    """

    name: str
    parameters: dict[str, Any] | None = None
    needs: tuple[str, ...] = ()

    kind: ClassVar[str]
    words: ClassVar[str]
    """The kind in a sentence."""
    service: ClassVar[str] = "sagemaker"
    noun: ClassVar[str]
    """The kind in boto3's operations: `model` in `create_model`."""
    name_field: ClassVar[str]
    status_field: ClassVar[str | None] = None
    """Field of the description; its value is InService once the resource works."""
    arn_field: ClassVar[str | None] = None
    """Field of the description; its tags say whose the resource is."""
    billed: ClassVar[bool] = False
    """Whether AWS bills it by the hour."""
    rests: ClassVar[bool] = False
    """Whether it is kept while the endpoint is off."""
    replaces: ClassVar[bool] = False
    """Whether its creation replaces an existing one, so that it can be sent again."""
    cloudformation: ClassVar[str]
    """Its type in CloudFormation."""
    template_id: ClassVar[str]
    """Its name in a stack's template; another name would replace the user's resource."""

    @property
    def label(self) -> str:
        """Return kind and name, as in ``endpoint-config/demo``."""
        return f"{self.kind}/{self.name}"

    @property
    def logical_id(self) -> str:
        """Return its name in a stack's template."""
        return self.template_id

    def create(self) -> tuple[Request, ...]:
        """Return the requests that create it, in order."""
        return (Request(self.service, f"create_{self.noun}", self.parameters or {}),)

    def describe(self) -> Request:
        """Return the request that describes it; see `facts` for the answer."""
        return Request(self.service, f"describe_{self.noun}", {self.name_field: self.name})

    def facts(self, answer: Mapping[str, Any]) -> Mapping[str, Any] | None:
        """Return its description in the answer; None if it does not exist."""
        return answer

    def update(self) -> Request | None:
        """Return the request that gives it these parameters in place; None if it never changes."""
        return self.create()[0] if self.replaces else None

    def delete(self) -> Request:
        """Return the request that deletes it."""
        return Request(self.service, f"delete_{self.noun}", {self.name_field: self.name})

    def properties(self, refer: Refer) -> dict[str, Any]:
        """Return its properties in CloudFormation: the parameters of its creation."""
        return dict(self.parameters or {})
