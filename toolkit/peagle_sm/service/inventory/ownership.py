"""Whose a resource is: ours carry tags, and what is not ours is never touched."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from math import isfinite

from peagle_sm.core.errors import PlanRefused
from peagle_sm.core.guard.names import endpoint_stack
from peagle_sm.core.plan.tags import ENDPOINT, MANAGED_BY, MANAGER, STACK


def is_ours(tags: Mapping[str, str] | None) -> bool:
    """Whether the tags say that peagle-sm made the resource."""
    return (tags or {}).get(MANAGED_BY) == MANAGER


def belongs_to(tags: Mapping[str, str] | None, endpoint: str) -> bool:
    """Whether peagle-sm made the resource for that endpoint."""
    return tags is not None and is_ours(tags) and tags.get(ENDPOINT) == endpoint


def stack_of(tags: Mapping[str, str] | None) -> str | None:
    """Return the stack that owns the resource; None for one that `peagle-sm deploy` made."""
    return (tags or {}).get(STACK) or None


def require_own_stack(endpoint: str, stack: str) -> None:
    """Refuse to act through a stack of another name: it owns another endpoint.

    Raises:
        PlanRefused: the tag does not name the endpoint's own stack.
    """
    own = endpoint_stack(endpoint)
    if stack != own:
        raise PlanRefused(
            f"The tag {STACK} of endpoint {endpoint} names {stack}; allowed: {own}. Nothing was changed.",
            next_step=f"Correct the tag, or remove it if no stack owns {endpoint}: "
            f"`aws sagemaker delete-tags --tag-keys {STACK} --resource-arn ARN`.",
            details={"findings": [], "stack": stack},
        )


def whole_number(tags: Mapping[str, str], key: str) -> int | None:
    """Return a tag as a whole number, None when absent or not one."""
    text = tags.get(key, "")
    return int(text) if text.isdigit() else None


def amount(tags: Mapping[str, str], key: str) -> float | None:
    """Return a tag as a number (hours, USD), None when absent or not a number."""
    try:
        value = float(tags[key])
    except (KeyError, ValueError):
        return None
    return value if isfinite(value) else None


def moment(tags: Mapping[str, str], key: str) -> datetime | None:
    """Return a tag as a time, None when absent or not a time."""
    try:
        return datetime.fromisoformat(tags[key])
    except (KeyError, ValueError):
        return None
