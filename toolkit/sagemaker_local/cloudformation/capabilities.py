"""Which acknowledgements a template needs before CloudFormation makes IAM resources for it."""

from __future__ import annotations

from collections.abc import Iterable

from sagemaker_local.cloudformation.errors import CloudFormationError
from sagemaker_local.cloudformation.template import Template

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


def iam_types(template: Template) -> list[str]:
    """Give the types of a template that need a capability."""
    return sorted({each.type_name for each in template.resources.values()} & _NAMES.keys())


def needed(template: Template) -> str | None:
    """Give the capability that a template needs; None when it needs none."""
    iam = [each for each in template.resources.values() if each.type_name in _NAMES]
    if any(_NAMES[each.type_name] in each.properties for each in iam):
        return _NAMED_IAM
    return _IAM if iam else None


def check(template: Template, given: Iterable[str]) -> None:
    """Refuse a template that makes IAM resources without leave.

    Raises:
        CloudFormationError: the capability is missing.
    """
    wanted = needed(template)
    granted = set(given)
    if wanted is None or wanted in granted or (wanted == _IAM and _NAMED_IAM in granted):
        return
    raise CloudFormationError("InsufficientCapabilitiesException", f"Requires capabilities : [{wanted}]")
