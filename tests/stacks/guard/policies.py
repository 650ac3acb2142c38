"""The statements of a template's IAM policies."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

Statement = dict[str, Any]


def statements(template: dict[str, Any]) -> Iterator[tuple[str, Statement]]:
    """Yield every statement of every role's inline policies, also conditional ones."""
    for name, resource in template["Resources"].items():
        if resource["Type"] == "AWS::IAM::Role":
            for policy in resource["Properties"].get("Policies", []):
                for statement in policy["PolicyDocument"]["Statement"]:
                    yield name, statement["Fn::If"][1] if "Fn::If" in statement else statement


def actions(statement: Statement) -> list[str]:
    """Return the actions of a statement."""
    return _list(statement["Action"])


def resources(statement: Statement) -> list[str]:
    """Return the resources of a statement as texts."""
    return [_text(each) for each in _list(statement["Resource"])]


def granted(template: dict[str, Any], role: str) -> set[str]:
    """Return the actions that a role is allowed."""
    return {
        action for name, statement in statements(template) if name == role for action in actions(statement)
    }


def equal_to(statement: Statement, key: str) -> list[str]:
    """Return the values that a statement's condition StringEquals allows for a key."""
    return _list(statement.get("Condition", {}).get("StringEquals", {}).get(key, []))


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]


def _text(value: Any) -> str:
    if isinstance(value, str):
        return value
    inner = value.get("Fn::Sub") or value.get("Ref") or value.get("Fn::GetAtt") or value
    return str(_list(inner)[0])
