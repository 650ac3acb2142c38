"""Whose a resource is: ours carry tags, and what is not ours is never touched."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime

MANAGED_BY = "peagle-sm:managed-by"
MANAGER = "peagle-sm"
ENDPOINT = "peagle-sm:endpoint"
SPEC_HASH = "peagle-sm:spec-hash"
MODE = "peagle-sm:mode"
IDLE_MINUTES = "peagle-sm:idle-minutes"
GRACE_MINUTES = "peagle-sm:grace-minutes"
EXPIRES = "peagle-sm:expires"


def is_ours(tags: Mapping[str, str] | None) -> bool:
    """Whether the tags say that peagle-sm made the resource."""
    return (tags or {}).get(MANAGED_BY) == MANAGER


def belongs_to(tags: Mapping[str, str] | None, endpoint: str) -> bool:
    """Whether peagle-sm made the resource for that endpoint."""
    return tags is not None and is_ours(tags) and tags.get(ENDPOINT) == endpoint


def whole_minutes(tags: Mapping[str, str], key: str) -> int | None:
    """Return a tag as a number, None when absent or not a number."""
    text = tags.get(key, "")
    return int(text) if text.isdigit() else None


def moment(tags: Mapping[str, str], key: str) -> datetime | None:
    """Return a tag as a time, None when absent or not a time."""
    try:
        return datetime.fromisoformat(tags[key])
    except (KeyError, ValueError):
        return None
