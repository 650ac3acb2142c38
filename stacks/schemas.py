"""What CloudFormation's schemas allow; ``scripts/lib/cfn_schemas.py`` makes the data from cfn-lint's."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any

PATH = Path(__file__).with_name("schemas.json")


class Unsupported(ValueError):
    """Error: CloudFormation has no property for a field."""


@cache
def property_tree(type_name: str) -> Mapping[str, Any]:
    """Return the properties of a type by name: the tree below each, or None where anything goes."""
    tree: Mapping[str, Any] = json.loads(PATH.read_text(encoding="utf-8"))["types"][type_name]
    return tree


def lacking(type_name: str, properties: Mapping[str, Any]) -> list[str]:
    """Return the paths of all properties that CloudFormation's type does not have."""
    return list(_lacking(property_tree(type_name), properties, ""))


def _lacking(tree: Mapping[str, Any] | None, value: Any, at: str) -> Iterator[str]:
    if isinstance(value, list):
        for item in value:
            yield from _lacking(tree, item, at)
    elif tree is not None and isinstance(value, Mapping):
        for name, member in value.items():
            if name in tree:
                yield from _lacking(tree[name], member, f"{at}{name}.")
            else:
                yield f"{at}{name}"
