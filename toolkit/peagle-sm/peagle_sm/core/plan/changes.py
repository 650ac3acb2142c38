"""Differences between an existing endpoint and its spec, by field."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from peagle_sm.core.plan.tags_and_schedules import PAUSED, PREFIX, SCHEDULER_ROLE, SPEC_HASH

# Names and tags differ between any two plans; ARNs and times are AWS's own.
_NAMES = frozenset({"ModelName", "EndpointConfigName", "Tags"})
# What stands below these and is not asked for any more goes; elsewhere AWS fills in defaults of its own.
_WHOLE = (
    "Environment",
    "AdditionalModelDataSources",
    "VpcConfig",
    "InstancePools",
    "CapacityReservationConfig",
)


@dataclass(frozen=True)
class Change:
    """One changed field; None means absent before, or afterwards."""

    field: str
    before: str | None
    after: str | None


def changes(found: Mapping[str, Any], wanted: Mapping[str, Any]) -> tuple[Change, ...]:
    """Compare a described resource with its request; only requested fields count."""
    has, wants = dict(_flat(found)), dict(_flat(wanted))
    gone = [path for path in has if path not in wants and any(f"{part}." in path for part in _WHOLE)]
    differing = [path for path, value in wants.items() if has.get(path) != value]
    return tuple(Change(path, has.get(path), wants.get(path)) for path in sorted({*differing, *gone}))


def tag_changes(found: Mapping[str, str], wanted: Mapping[str, str]) -> tuple[Change, ...]:
    """Compare tags; of unrequested tags only peagle-sm's are removed."""
    lasting = {key: value for key, value in found.items() if key not in (PAUSED, SCHEDULER_ROLE)}
    gone = {key for key in lasting if key.startswith(PREFIX) and key not in wanted}
    keys = sorted({*gone, *(key for key, value in wanted.items() if lasting.get(key) != value)} - {SPEC_HASH})
    return tuple(Change(f"Tags.{key}", lasting.get(key), wanted.get(key)) for key in keys)


def stale_tags(found: Mapping[str, str], wanted: Mapping[str, str]) -> tuple[str, ...]:
    """Return the keys of peagle-sm's tags that the new spec lacks."""
    return tuple(sorted(key for key in found if key.startswith(PREFIX) and key not in wanted))


def _flat(value: Any, path: str = "") -> Iterator[tuple[str, str]]:
    if isinstance(value, Mapping):
        for key, one in value.items():
            if key not in _NAMES:
                yield from _flat(one, f"{path}.{key}" if path else str(key))
    elif isinstance(value, list | tuple):
        for number, one in enumerate(value):
            yield from _flat(one, f"{path}.{number}")
    elif (inner := _object(value)) is not None:  # a config within a variable: what differs in it is told
        yield from _flat(inner, path)
    else:
        yield path, value if isinstance(value, str) else json.dumps(value, default=str)


def _object(value: Any) -> dict[str, Any] | None:
    if not isinstance(value, str) or not value.startswith("{"):
        return None
    try:
        document = json.loads(value)
    except ValueError:
        return None
    return document if isinstance(document, dict) and document else None
