"""IAM's policy simulation of identity policies. Pure: documents and a request in, a decision out."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from ipaddress import ip_address, ip_network
from typing import Any

ALLOWED, EXPLICIT, IMPLICIT = "allowed", "explicitDeny", "implicitDeny"
# Operators without a negation and a suffix; those of numbers and dates are not served.
_LIKE = frozenset({"StringLike", "ArnEquals", "ArnLike"})
_EXACT = frozenset({"StringEquals", "StringEqualsIgnoreCase", "Bool"})
Context = Mapping[str, str | tuple[str, ...]]


@dataclass(frozen=True)
class Decision:
    """What the policies decide: allowed, explicitDeny or implicitDeny."""

    decision: str


def decide(documents: Iterable[Mapping[str, Any]], action: str, resource: str, context: Context) -> Decision:
    """Return whether the policies allow the action: a Deny overrides every Allow."""
    allowed = False
    for statement in _statements(documents):
        if not _is_about(statement, action, resource) or not _met(statement.get("Condition", {}), context):
            continue
        if statement.get("Effect") == "Deny":
            return Decision(EXPLICIT)
        allowed = allowed or statement.get("Effect") == "Allow"
    return Decision(ALLOWED if allowed else IMPLICIT)


def trusts(document: Mapping[str, Any], service: str) -> bool:
    """Return whether a trust policy lets a service assume the role."""
    for statement in _statements([document]):
        principal = statement.get("Principal", {})
        services = _listed(principal.get("Service", [])) if isinstance(principal, Mapping) else []
        if statement.get("Effect") == "Allow" and service in services:
            return True
    return False


def condition_keys(documents: Iterable[Mapping[str, Any]]) -> list[str]:
    """Return the condition keys of all statements: AWS lists them all, whatever the action is."""
    keys = [
        key
        for statement in _statements(documents)
        for operands in statement.get("Condition", {}).values()
        for key in operands
    ]
    return list({key.lower(): key for key in keys}.values())


def _statements(documents: Iterable[Mapping[str, Any]]) -> Iterator[Mapping[str, Any]]:
    for document in documents:
        yield from _listed(document.get("Statement", []))


def _listed(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]


def _is_about(statement: Mapping[str, Any], action: str, resource: str) -> bool:
    def fits(key: str, value: str, ignore_case: bool) -> bool:
        if f"Not{key}" in statement:
            return not any(_matches(each, value, ignore_case) for each in _listed(statement[f"Not{key}"]))
        return any(_matches(each, value, ignore_case) for each in _listed(statement.get(key, [])))

    return fits("Action", action, True) and fits("Resource", resource, False)


def _met(conditions: Mapping[str, Any], context: Context) -> bool:
    """Whether all conditions hold. Without a value only a negated operator and …IfExists hold."""
    values_by_key = {
        key.lower(): (value,) if isinstance(value, str) else value for key, value in context.items()
    }
    return all(
        _holds(operator, values_by_key.get(key.lower()), [str(entry) for entry in _listed(allowed)])
        for operator, keys in conditions.items()
        for key, allowed in keys.items()
    )


def _holds(operator: str, values: tuple[str, ...] | None, allowed: list[str]) -> bool:
    scope, _, name = operator.rpartition(":")
    name, if_exists = name.removesuffix("IfExists"), name.endswith("IfExists")
    if name == "Null":
        return (values is None) == (allowed[0].lower() == "true")
    negated = "Not" in name
    if values is None:
        return if_exists or negated or scope == "ForAllValues"
    matched = [_compares(name.replace("Not", ""), value, allowed) != negated for value in values]
    return all(matched) if negated or scope == "ForAllValues" else any(matched)


def _compares(name: str, value: str, allowed: list[str]) -> bool:
    if name == "IpAddress":
        return any(ip_address(value) in ip_network(network, strict=False) for network in allowed)
    if name in _LIKE:
        return any(_matches(pattern, value, False) for pattern in allowed)
    if name in ("Bool", "StringEqualsIgnoreCase"):
        return value.lower() in [text.lower() for text in allowed]
    return name in _EXACT and value in allowed


def _matches(pattern: str, value: str, ignore_case: bool) -> bool:
    return _compiled(pattern, ignore_case).fullmatch(value) is not None


@cache
def _compiled(pattern: str, ignore_case: bool) -> re.Pattern[str]:
    text = re.escape(pattern).replace(r"\*", ".*").replace(r"\?", ".")
    return re.compile(text, re.DOTALL | (re.IGNORECASE if ignore_case else 0))
