"""The names of the dead-man's schedules of one endpoint."""

from __future__ import annotations

import hashlib

# EventBridge Scheduler's limit for a schedule's name.
_LONGEST = 64
_LIFETIME, _HARD = "-lifetime", "-hard"


def schedule_name(endpoint: str) -> str:
    """Return the name of the schedule that ends an endpoint's life; the toolkit gives the same."""
    return f"peagle-{_shortened(endpoint, _LONGEST - len('peagle-') - len(_LIFETIME))}{_LIFETIME}"


def hard_name(schedule: str, number: int | None = None) -> str:
    """Return the name of the schedule that deletes the endpoint itself, or its component of that number."""
    suffix = _HARD if number is None else f"{_HARD}-{number}"
    return _shortened(schedule, _LONGEST - len(suffix)) + suffix


def _shortened(name: str, limit: int) -> str:
    if len(name) <= limit:
        return name
    digest = hashlib.sha256(name.encode()).hexdigest()[:8]
    return f"{name[: limit - 9].rstrip('-')}-{digest}"
