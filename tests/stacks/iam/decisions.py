"""Calls against policies: which are denied, and which part of a policy no call needs."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from sagemaker_local.other_services.policies import ALLOWED, decide
from tests.stacks.iam.calls import Call

Document = dict[str, Any]


def denied(documents: Sequence[Document], calls: Iterable[Call]) -> list[str]:
    """Return each action with the resource on which no policy allows it."""
    return [
        f"{call.action} on {resource}"
        for call in calls
        for resource in call.resources
        if decide(documents, call.action, resource, call.keys).decision != ALLOWED
    ]


def unused(documents: Sequence[Document], calls: Sequence[Call]) -> list[str]:
    """Return each action, and each pattern of a resource, that no call needs."""
    rows = []
    for statement in (each for document in documents for each in document["Statement"]):
        for field in ("Action", "Resource"):
            values = statement[field] if isinstance(statement[field], list) else [statement[field]]
            rows += [
                f"{statement['Sid']}: {value}"
                for value in values
                if not _is_used({**statement, field: value}, calls)
            ]
    return rows


def _is_used(statement: Document, calls: Sequence[Call]) -> bool:
    document = {"Statement": [statement]}
    return any(
        decide([document], call.action, resource, call.keys).decision == ALLOWED
        for call in calls
        for resource in call.resources
    )
