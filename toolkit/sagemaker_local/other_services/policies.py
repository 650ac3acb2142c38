"""IAM's policy simulation of identity policies. Pure: documents and a request in, a decision out."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

ALLOWED, EXPLICIT, IMPLICIT = "allowed", "explicitDeny", "implicitDeny"
_LIKE = {"StringEquals": False, "StringLike": True, "ArnEquals": True, "ArnLike": True, "Bool": False}


@dataclass(frozen=True)
class Decision:
    """A decision, and the condition keys without values in the request."""

    decision: str
    missing: tuple[str, ...] = ()


def decide(
    documents: Iterable[Mapping[str, Any]], action: str, resource: str, context: Mapping[str, str]
) -> Decision:
    """Return whether the policies allow the action: a Deny overrides every Allow."""
    missing: list[str] = []
    allowed = False
    for document in documents:
        for statement in _listed(document.get("Statement", [])):
            if not _is_about(statement, action, resource):
                continue
            met, unknown = _conditions(statement.get("Condition", {}), context)
            missing += unknown
            if met and statement.get("Effect") == "Deny":
                return Decision(EXPLICIT)
            allowed = allowed or (met and statement.get("Effect") == "Allow")
    return Decision(ALLOWED) if allowed else Decision(IMPLICIT, tuple(dict.fromkeys(missing)))


def _listed(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]


def _is_about(statement: Mapping[str, Any], action: str, resource: str) -> bool:
    def fits(key: str, value: str, ignore_case: bool) -> bool:
        if f"Not{key}" in statement:
            return not any(_matches(each, value, ignore_case) for each in _listed(statement[f"Not{key}"]))
        return any(_matches(each, value, ignore_case) for each in _listed(statement.get(key, [])))

    return fits("Action", action, True) and fits("Resource", resource, False)


def _conditions(conditions: Mapping[str, Any], context: Mapping[str, str]) -> tuple[bool, list[str]]:
    """Whether all hold, and the keys that are not known; one that is not known does not hold."""
    unknown: list[str] = []
    met = True
    given = {key.lower(): value for key, value in context.items()}
    for operator, keys in conditions.items():
        if_exists = operator.endswith("IfExists")
        like = _LIKE.get(operator.removesuffix("IfExists").rpartition(":")[2])
        for key, wanted in keys.items():
            value = given.get(key.lower())
            if operator == "Null":
                met = met and (value is None) == (_listed(wanted)[0] in (True, "true"))
                continue
            if value is None and if_exists:
                continue
            if value is None or like is None:
                unknown.append(key)
                met = False
            elif not any(_matches(each, value, False) if like else each == value for each in _listed(wanted)):
                met = False
    return met, unknown


def _matches(pattern: str, value: str, ignore_case: bool) -> bool:
    return _compiled(pattern, ignore_case).fullmatch(value) is not None


@cache
def _compiled(pattern: str, ignore_case: bool) -> re.Pattern[str]:
    text = re.escape(pattern).replace(r"\*", ".*").replace(r"\?", ".")
    return re.compile(text, re.DOTALL | (re.IGNORECASE if ignore_case else 0))
