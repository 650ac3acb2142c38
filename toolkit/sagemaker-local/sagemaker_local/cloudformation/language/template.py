"""A checked template: its sections, resources and references, and the capability that it needs."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from sagemaker_local.cloudformation.errors import CloudFormationError, TemplateError
from sagemaker_local.cloudformation.language import template_text
from sagemaker_local.cloudformation.language.references import Reference, references

PSEUDO = frozenset(
    f"AWS::{name}"
    for name in (
        "AccountId", "NoValue", "NotificationARNs", "Partition", "Region", "StackId", "StackName",
        "URLSuffix",
    )
)  # fmt: skip

_SECTIONS = frozenset(
    (
        "AWSTemplateFormatVersion", "Conditions", "Description", "Mappings", "Metadata", "Outputs",
        "Parameters", "Resources", "Rules", "Transform",
    )
)  # fmt: skip
_RESOURCE_MEMBERS = frozenset(
    (
        "Condition", "CreationPolicy", "DeletionPolicy", "DependsOn", "Metadata", "Properties", "Type",
        "UpdatePolicy", "UpdateReplacePolicy", "Version",
    )
)  # fmt: skip
_POLICIES = ("Delete", "Retain", "RetainExceptOnCreate", "Snapshot")
_MOST_RESOURCES = 500


@dataclass(frozen=True)
class Definition:
    """One resource as the template has it; values are not evaluated."""

    logical_id: str
    type_name: str
    properties: Mapping[str, Any]
    condition: str | None
    depends_on: tuple[str, ...]
    deletion_policy: str
    update_replace_policy: str
    metadata: Any


@dataclass(frozen=True)
class Template:
    """A template whose structure is right. ``text`` is what was sent."""

    text: str
    body: Mapping[str, Any]
    resources: Mapping[str, Definition]

    def section(self, name: str) -> Mapping[str, Any]:
        """Return a section, empty when the template has none."""
        content = self.body.get(name)
        return content if isinstance(content, Mapping) else {}

    @property
    def description(self) -> str | None:
        """The template's description."""
        return self.body.get("Description")


def load(text: str, known_type: Callable[[str], bool] = lambda name: True) -> Template:
    """Read and check a template.

    Raises:
        TemplateError: its structure, a name, a type or a reference is not right.
    """
    body = template_text.parse(text)
    _check_sections(body)
    resources = {name: _definition(name, raw) for name, raw in body["Resources"].items()}
    template = Template(text, body, resources)
    unknown = sorted({each.type_name for each in resources.values() if not known_type(each.type_name)})
    if unknown:
        raise TemplateError(f"Template format error: Unrecognized resource types: [{', '.join(unknown)}]")
    _check_references(template)
    _check_conditions(template)
    return template


def _check_sections(body: Mapping[str, Any]) -> None:
    strange = sorted(body.keys() - _SECTIONS)
    if strange:
        raise TemplateError(f"Invalid template property or properties [{', '.join(strange)}]")
    if body.get("Transform"):
        raise TemplateError(
            f"the local CloudFormation supports no transforms; found {body['Transform']!r}; "
            "leave the Transform section out"
        )
    for name in _SECTIONS - {"AWSTemplateFormatVersion", "Description", "Transform"}:
        if body.get(name) is not None and not isinstance(body[name], Mapping):
            raise TemplateError(f"Template format error: [/{name}] '{name}' is not an object.")
    resources = body.get("Resources")
    if not resources:
        raise TemplateError("Template format error: At least one Resources member must be defined.")
    if len(resources) > _MOST_RESOURCES:
        raise TemplateError(
            f"Template format error: Number of resources, {len(resources)}, is greater than maximum allowed, "
            f"{_MOST_RESOURCES}"
        )


def _definition(name: str, raw: Any) -> Definition:
    where = f"/Resources/{name}"
    if not re.fullmatch(r"[A-Za-z0-9]+", name):
        raise TemplateError(f"Template format error: Resource name {name} is non alphanumeric.")
    if not isinstance(raw, Mapping):
        raise TemplateError(f"Template format error: [{where}] Every Resources member must be an object.")
    strange = sorted(raw.keys() - _RESOURCE_MEMBERS)
    if strange:
        raise TemplateError(f"Invalid template resource property '{strange[0]}'")
    if not isinstance(raw.get("Type"), str):
        raise TemplateError(
            f"Template format error: [{where}] Every Resources object must contain a Type member."
        )
    if not isinstance(raw.get("Properties") or {}, Mapping):
        raise TemplateError(f"Template format error: [{where}/Properties] 'Properties' must be an object.")
    for member in ("DeletionPolicy", "UpdateReplacePolicy"):
        if raw.get(member, "Delete") not in _POLICIES:
            raise TemplateError(f"Template error: Unrecognized {member} {raw[member]} for resource {name}")
    after = raw.get("DependsOn") or []
    return Definition(
        logical_id=name,
        type_name=raw["Type"],
        properties=raw.get("Properties") or {},
        condition=raw.get("Condition"),
        depends_on=(after,) if isinstance(after, str) else tuple(after),
        deletion_policy=raw.get("DeletionPolicy", "Delete"),
        update_replace_policy=raw.get("UpdateReplacePolicy", "Delete"),
        metadata=raw.get("Metadata"),
    )


def _check_references(template: Template) -> None:
    resources, parameters = template.resources.keys(), template.section("Parameters").keys()
    for block, known, refs in (
        ("Resources", resources | parameters | PSEUDO, _in_resources(template)),
        ("Outputs", resources | parameters | PSEUDO, references(template.section("Outputs"))),
        ("Conditions", parameters | PSEUDO, references(template.section("Conditions"))),
    ):
        allowed = {True: frozenset(resources), False: frozenset(known)}
        lost = sorted({each.name for each in refs if each.name not in allowed[each.is_attribute]})
        if lost:
            raise TemplateError(
                f"Template format error: Unresolved resource dependencies [{', '.join(lost)}] "
                f"in the {block} block of the template"
            )


def _in_resources(template: Template) -> Iterator[Reference]:
    for each in template.resources.values():
        yield from references(each.properties)
        yield from (Reference(name, "") for name in each.depends_on)


def _check_conditions(template: Template) -> None:
    known = template.section("Conditions").keys()
    for block, members in (
        ("Resources", template.body["Resources"]),
        ("Outputs", template.section("Outputs")),
    ):
        for member in members.values():
            named = member.get("Condition") if isinstance(member, Mapping) else None
            if named is not None and named not in known:
                raise TemplateError(
                    f"Template format error: Unresolved condition dependency {named} "
                    f"in the {block} block of the template"
                )


_IAM = "CAPABILITY_IAM"
_NAMED_IAM = "CAPABILITY_NAMED_IAM"
# The types of IAM that need it, and the property that names each (None: it has no name of its own).
_NAMES = {
    "AWS::IAM::AccessKey": None,
    "AWS::IAM::Group": "GroupName",
    "AWS::IAM::GroupPolicy": None,
    "AWS::IAM::InstanceProfile": "InstanceProfileName",
    "AWS::IAM::ManagedPolicy": "ManagedPolicyName",
    "AWS::IAM::Policy": None,
    "AWS::IAM::Role": "RoleName",
    "AWS::IAM::RolePolicy": None,
    "AWS::IAM::User": "UserName",
    "AWS::IAM::UserPolicy": None,
    "AWS::IAM::UserToGroupAddition": None,
}


def needed_capability(template: Template) -> str | None:
    """Return the capability that a template needs, or None."""
    iam = [each for each in template.resources.values() if each.type_name in _NAMES]
    if any(_NAMES[each.type_name] in each.properties for each in iam):
        return _NAMED_IAM
    return _IAM if iam else None


def check_capability(template: Template, given: Iterable[str]) -> None:
    """Refuse a template with IAM resources if the request lacks the capability.

    Raises:
        CloudFormationError: the capability is missing.
    """
    wanted = needed_capability(template)
    granted = set(given)
    if wanted is None or wanted in granted or (wanted == _IAM and _NAMED_IAM in granted):
        return
    raise CloudFormationError("InsufficientCapabilitiesException", f"Requires capabilities : [{wanted}]")
