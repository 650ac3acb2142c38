"""Security rules on IAM permissions: each function returns a template's violations. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

Template = Mapping[str, Any]
Statement = dict[str, Any]

TAG = "peagle-sm:managed-by"
_BROAD = ("FullAccess", "AdministratorAccess", "PowerUserAccess")


def statements(template: Template) -> Iterator[tuple[str, Statement]]:
    """Yield every statement of every role's inline policies, also conditional ones."""
    for name, resource in template["Resources"].items():
        if resource["Type"] not in ("AWS::IAM::Role", "AWS::IAM::Policy", "AWS::IAM::ManagedPolicy"):
            continue
        properties = resource["Properties"]
        inline = properties.get("Policies", [])
        for policy in [*inline, properties] if "PolicyDocument" in properties else inline:
            for statement in policy["PolicyDocument"]["Statement"]:
                yield name, statement["Fn::If"][1] if "Fn::If" in statement else statement


def actions(statement: Statement) -> list[str]:
    """Return the actions of a statement."""
    found = statement["Action"]
    return [found] if isinstance(found, str) else list(found)


def resources(statement: Statement) -> list[str]:
    """Return the resources of a statement as texts."""
    found = statement["Resource"]
    return [_text(one) for one in (found if isinstance(found, list) else [found])]


def wildcards_that_destroy_or_pass(template: Template) -> list[str]:
    """Find `*` as the resource of actions that delete, stop, update, create or pass a role."""
    verbs = ("Delete", "Remove", "Stop", "Terminate", "Update", "Create", "Put", "PassRole", "Deregister")
    harmless = {"cloudwatch:PutMetricData"}
    return [
        f"{role}: {action}"
        for role, statement in statements(template)
        for action in actions(statement)
        if "*" in resources(statement)
        and (action in ("*", "iam:*", "sagemaker:*") or action.partition(":")[2].startswith(verbs))
        and action not in harmless
    ]


def wildcard_actions(template: Template) -> list[str]:
    """Find `*` in actions."""
    return [f"{role}: {one}" for role, found in statements(template) for one in actions(found) if "*" in one]


def loose_pass_role(template: Template) -> list[str]:
    """Find PassRole for more than one named role or service."""
    return [
        role
        for role, statement in statements(template)
        if "iam:PassRole" in actions(statement)
        and (
            len(resources(statement)) != 1
            or "*" in resources(statement)[0]
            or ":role/peagle-" not in resources(statement)[0]
            or len(_passed_to(statement)) != 1
        )
    ]


def broad_policies(template: Template) -> list[str]:
    """Find managed policies that allow everything, or everything of one service."""
    return [
        f"{name}: {_text(policy)}"
        for name, resource in template["Resources"].items()
        if resource["Type"].startswith("AWS::IAM::")
        for policy in resource.get("Properties", {}).get("ManagedPolicyArns", [])
        if _text(policy).endswith(_BROAD)
    ]


def untagged_deletion(template: Template) -> list[str]:
    """Find deletion in SageMaker without peagle-sm's tag as a condition."""
    return [
        f"{role}: {action}"
        for role, statement in statements(template)
        for action in actions(statement)
        if action.startswith("sagemaker:Delete") and _asked(statement, "aws:ResourceTag") != "peagle-sm"
    ]


def untagged_creation(template: Template) -> list[str]:
    """Find creation in SageMaker without peagle-sm's tag on the resource or its source."""
    return [
        f"{role}: {action}"
        for role, statement in statements(template)
        for action in actions(statement)
        if action.startswith(("sagemaker:Create", "sagemaker:AddTags"))
        and "peagle-sm" not in (_asked(statement, "aws:RequestTag"), _asked(statement, "aws:ResourceTag"))
    ]


def stack_updaters(template: Template) -> set[str]:
    """Find the roles that may update stacks."""
    changing = (
        "cloudformation:Update",
        "cloudformation:Create",
        "cloudformation:Delete",
        "cloudformation:Exec",
    )
    return {
        role
        for role, statement in statements(template)
        for action in actions(statement)
        if action.startswith(changing) or action == "cloudformation:*"
    }


def _asked(statement: Statement, key: str) -> Any:
    return statement.get("Condition", {}).get("StringEquals", {}).get(f"{key}/{TAG}")


def _passed_to(statement: Statement) -> list[str]:
    found = statement.get("Condition", {}).get("StringEquals", {}).get("iam:PassedToService", [])
    return [found] if isinstance(found, str) else list(found)


def _text(value: Any) -> str:
    if isinstance(value, str):
        return value
    told = value.get("Fn::Sub") or value.get("Ref") or value.get("Fn::GetAtt") or value
    return told[0] if isinstance(told, list) else str(told)
