"""API payloads as the properties of CloudFormation resources, by the CDK's own property lists.

boto3 writes `VolumeSizeInGB`, the CDK `volume_size_in_gb`. The two are matched by the L1 class's own
parameters, nested ones too, so that a field which CloudFormation does not have is found here and never
silently dropped.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Mapping
from functools import cache
from typing import Any

_NESTED = re.compile(r"\b\w+\.(\w+Property)\b")
_THE_CONSTRUCTS_OWN = frozenset({"scope", "id"})


class Unsupported(ValueError):
    """CloudFormation has no property for this field; ``path`` leads to it, for example A.B.C."""

    def __init__(self, path: str) -> None:
        """Keep where the field stands."""
        super().__init__(f"CloudFormation has no property for {path}")
        self.path = path


@cache
def known(l1: type, nested: str | None = None) -> Mapping[str, tuple[str, str | None]]:
    """Return field name, folded -> (the CDK's parameter, the nested type's name or None)."""
    owner: type = getattr(l1, nested) if nested else l1
    found = {}
    for name, parameter in inspect.signature(vars(owner)["__init__"]).parameters.items():
        if name != "self" and (nested or name not in _THE_CONSTRUCTS_OWN):
            inner = _NESTED.search(str(parameter.annotation))
            found[_folded(name)] = (name, inner.group(1) if inner else None)
    return found


def lacking(l1: type, payload: Mapping[str, Any]) -> list[str]:
    """Return the paths of all fields of the payload that CloudFormation has no property for."""
    return _lacking(l1, None, payload, "")


def properties(l1: type, payload: Mapping[str, Any]) -> dict[str, Any]:
    """Return the payload as keyword arguments of an L1 class.

    Raises:
        Unsupported: CloudFormation lacks a field of the payload.
    """
    missing = lacking(l1, payload)
    if missing:
        raise Unsupported(missing[0])
    return _translated(l1, None, payload)


def _translated(l1: type, nested: str | None, payload: Mapping[str, Any]) -> dict[str, Any]:
    fields = known(l1, nested)
    return {
        parameter: _value(l1, inner, payload[name])
        for name in payload
        for parameter, inner in (fields[_folded(name)],)
    }


def _value(l1: type, inner: str | None, value: Any) -> Any:
    if inner is None:
        return value  # text, a number, or a map whose keys are the user's own, as in Environment
    if isinstance(value, list):
        return [getattr(l1, inner)(**_translated(l1, inner, item)) for item in value]
    return getattr(l1, inner)(**_translated(l1, inner, value))


def _lacking(l1: type, nested: str | None, payload: Mapping[str, Any], at: str) -> list[str]:
    fields, found = known(l1, nested), []
    for name, value in payload.items():
        entry = fields.get(_folded(name))
        if entry is None:
            found.append(at + name)
        elif entry[1] is not None:
            for item in value if isinstance(value, list) else [value]:
                found += _lacking(l1, entry[1], item, f"{at}{name}.")
    return found


def _folded(name: str) -> str:
    return name.replace("_", "").lower()
