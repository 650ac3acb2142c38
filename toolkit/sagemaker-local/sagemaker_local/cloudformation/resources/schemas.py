"""What AWS's resource schemas allow; the data is made by ``scripts/lib/cfn_schemas.py`` from cfn-lint's."""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

PATH = Path(__file__).with_name("schemas.json")

_CUSTOM = "AWS::CloudFormation::CustomResource"


def allowed_properties(type_name: str) -> frozenset[str] | None:
    """Return the properties that a template may set on a type; None if any, or if the type is unknown."""
    row = None if type_name == _CUSTOM else _types().get(type_name)
    return None if row is None else frozenset(row["properties"])


def immutable_properties(type_name: str) -> frozenset[str]:
    """Return the properties whose change replaces the resource ("createOnly" in the schema)."""
    row = _types().get(type_name)
    return frozenset() if row is None else frozenset(row["immutable"])


def required_properties(type_name: str) -> frozenset[str]:
    """Return the properties that a template must set on a type."""
    row = _types().get(type_name)
    return frozenset() if row is None else frozenset(row["required"])


def unsupported_property(type_name: str, properties: Mapping[str, Any]) -> str | None:
    """Return the first property that AWS's schema does not have, at any known depth, or None.

    Depth is known for AWS::SageMaker::*; of other types only the first floor is looked at.
    """
    if allowed_properties(type_name) is None:
        return None
    return _first_unknown(_types()[type_name]["properties"], properties)


def _first_unknown(tree: Mapping[str, Any] | None, value: object) -> str | None:
    if tree is None:
        return None
    if isinstance(value, list):
        unknown = (_first_unknown(tree, item) for item in value)
        return next((name for name in unknown if name is not None), None)
    if not isinstance(value, Mapping):
        return None
    for name, member in value.items():
        if name not in tree:
            return str(name)
        below = _first_unknown(tree[name], member)
        if below is not None:
            return below
    return None


@cache
def _types() -> dict[str, Any]:
    return dict(json.loads(PATH.read_text())["types"])
