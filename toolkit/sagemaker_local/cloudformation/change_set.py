"""How the API tells what a change set would change."""

from __future__ import annotations

import json
from typing import Any

from sagemaker_local.cloudformation.intrinsics import UNKNOWN
from sagemaker_local.cloudformation.stack import Change, PropertyChange

NO_CHANGES = (
    "The submitted information didn't contain changes. Submit different information to create a change set."
)


def described(change: Change, *, values: bool) -> dict[str, Any]:
    """Give a change as DescribeChangeSet tells it; ``values`` adds what was and what will be."""
    row: dict[str, Any] = {
        "Action": change.action,
        "LogicalResourceId": change.logical_id,
        "PhysicalResourceId": change.physical_id,
        "ResourceType": change.type_name,
        "Replacement": change.replacement,
        "PolicyAction": _policy_action(change),
        "Scope": list(change.scope),
        "Details": _details(change, values=values),
    }
    if values and change.before is not None:
        row["BeforeContext"] = _json({"Properties": change.before})
    if values and change.after is not None:
        row["AfterContext"] = _json({"Properties": change.after})
    return {"Type": "Resource", "ResourceChange": row}


def _policy_action(change: Change) -> str | None:
    kept = change.policy == "Retain"
    if change.action == "Remove":
        return "Retain" if kept else "Delete"
    if change.action == "Modify" and change.replacement == "True":
        return "ReplaceAndRetain" if kept else "ReplaceAndDelete"
    return None


def _details(change: Change, *, values: bool) -> list[dict[str, Any]]:
    properties = [_property(each, values=values) for each in change.details]
    others = [
        {
            "Target": {"Attribute": scope, "RequiresRecreation": "Never"},
            "Evaluation": "Static",
            "ChangeSource": "DirectModification",
        }
        for scope in change.scope
        if scope != "Properties"
    ]
    return properties + others


def _property(each: PropertyChange, *, values: bool) -> dict[str, Any]:
    target: dict[str, Any] = {
        "Attribute": "Properties",
        "Name": each.name,
        "RequiresRecreation": each.recreation,
    }
    if values:
        kind = "Add" if each.before is None else "Remove" if each.after is None else "Modify"
        target |= {"Path": f"/Properties/{each.name}", "AttributeChangeType": kind}
        target |= {"BeforeValue": _text(each.before), "AfterValue": _text(each.after)}
    return {
        "Target": target,
        "Evaluation": "Dynamic" if each.dynamic else "Static",
        "ChangeSource": "ResourceReference" if each.dynamic else "DirectModification",
    }


def _text(value: Any) -> str | None:
    return value if value is None or isinstance(value, str) else _json(value)


def _json(value: Any) -> str:
    return json.dumps(value, default=lambda marker: repr(UNKNOWN), sort_keys=True)
