"""Whose endpoint it is, and what its tags ask for. Pure."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from datetime import timedelta

from peagle_guard import hours
from peagle_guard.records import Lifecycle

PREFIX = "peagle-sm:"
MANAGED_BY = f"{PREFIX}managed-by"
PUBLISH_SECONDS = f"{PREFIX}publish-seconds"
STACK_PREFIX = "Peagle-"
# A stream may last 8 minutes; idle plus grace is at least 15 by the spec's own rule.
_LEAST_IDLE_MINUTES, _LEAST_GRACE_MINUTES, _LEAST_SUM_MINUTES = 5.0, 10.0, 15.0
_MOST_HOURS = 8760.0
# The longest interval that SageMaker's MetricsConfig allows.
_MOST_PUBLISH_SECONDS = 300.0


def is_ours(name: str, tags: Mapping[str, str]) -> bool:
    """Say whether the tags claim this very endpoint: another's name in them is a copy, and not ours."""
    return tags.get(MANAGED_BY) == "peagle-sm" and tags.get(f"{PREFIX}endpoint") == name


def stack_of(tags: Mapping[str, str]) -> str | None:
    """Return the stack that owns the endpoint: ``Peagle-<endpoint>`` or none.

    A tag that names another stack is not believed: that stack owns another endpoint.
    """
    stack = tags.get(f"{PREFIX}stack")
    return stack if stack and stack == _stack_for(tags) else None


def _stack_for(tags: Mapping[str, str]) -> str:
    return f"{STACK_PREFIX}{tags.get(f'{PREFIX}endpoint', '')}"


def lifecycle(tags: Mapping[str, str]) -> Lifecycle:
    """Read what the tags ask for.

    A tag that cannot be read falls back to its default and is named in ``faults``: a bad tag must neither
    turn an endpoint off nor leave it running without a limit.
    """
    faults: list[str] = []

    def read(key: str, default: float, least: float, most: float) -> float:
        return _number(tags, key, faults, lambda n: least <= n <= most, default)

    def positive(key: str) -> float | None:
        found = _number(tags, key, faults, lambda n: n > 0, 0.0)
        return found or None

    plain = Lifecycle()
    stack = tags.get(f"{PREFIX}stack")
    if stack and stack_of(tags) is None:
        faults.append(
            f"tag {PREFIX}stack: found {stack!r}; allowed: {_stack_for(tags)!r}; "
            "the endpoint is turned off without a stack"
        )
    idle = read("idle-minutes", plain.idle / timedelta(minutes=1), _LEAST_IDLE_MINUTES, math.inf)
    grace = read("grace-minutes", plain.grace / timedelta(minutes=1), _LEAST_GRACE_MINUTES, math.inf)
    publish_s = read("publish-seconds", plain.publish / timedelta(seconds=1), 1.0, _MOST_PUBLISH_SECONDS)
    lifetime_hours = read("max-lifetime-hours", plain.max_lifetime / timedelta(hours=1), 1e-3, _MOST_HOURS)
    return Lifecycle(
        idle=_minutes(max(idle, _LEAST_SUM_MINUTES - grace)),
        grace=_minutes(grace),
        max_lifetime=timedelta(hours=lifetime_hours),
        budget_usd=positive("budget-usd"),
        usd_per_hour=positive("usd-per-hour"),
        hours=_timetable(tags.get(f"{PREFIX}hours"), faults),
        stack=stack_of(tags),
        publish=timedelta(seconds=publish_s),
        scales_to_zero=tags.get(f"{PREFIX}idle") == "scale-to-zero",
        faults=tuple(faults),
    )


def _minutes(minutes: float) -> timedelta:
    return timedelta(minutes=min(minutes, _MOST_HOURS * 60))


def _number(
    tags: Mapping[str, str], key: str, faults: list[str], fits: Callable[[float], bool], default: float
) -> float:
    text = tags.get(PREFIX + key)
    if text is None:
        return default
    try:
        number = float(text)
    except ValueError:
        number = math.nan
    if math.isnan(number) or not fits(number):
        faults.append(f"tag {PREFIX}{key}: found {text!r}; {default:g} is used instead")
        return default
    return number


def _timetable(text: str | None, faults: list[str]) -> hours.Timetable | None:
    if not text:
        return None
    try:
        return hours.parse(text)
    except ValueError as error:
        faults.append(f"tag {PREFIX}hours: {error}; no timetable is kept")
        return None
