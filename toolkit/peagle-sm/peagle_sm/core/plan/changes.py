"""Differences between an existing endpoint and its spec, by field."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from peagle_sm.core.changes import Change, leaves
from peagle_sm.core.plan.tags_and_schedules import PAUSED, PREFIX, SCHEDULER_ROLE, SPEC_HASH

# Names and tags differ between any two plans; ARNs and times are AWS's own.
_NAMES = frozenset({"ModelName", "EndpointConfigName", "Tags"})
# Fields below these that the request lacks are removed; elsewhere AWS fills in its own defaults.
_WHOLE = (
    "Environment",
    "AdditionalModelDataSources",
    "VpcConfig",
    "InstancePools",
    "CapacityReservationConfig",
)


def changes(described: Mapping[str, Any], wanted: Mapping[str, Any]) -> tuple[Change, ...]:
    """Compare a described resource with its request; only requested fields count."""
    has, wants = dict(leaves(described, skip=_NAMES)), dict(leaves(wanted, skip=_NAMES))
    gone = [path for path in has if path not in wants and any(f"{part}." in path for part in _WHOLE)]
    differing = [path for path, value in wants.items() if has.get(path) != value]
    return tuple(Change(path, has.get(path), wants.get(path)) for path in sorted({*differing, *gone}))


def tag_changes(present: Mapping[str, str], wanted: Mapping[str, str]) -> tuple[Change, ...]:
    """Compare tags; of unrequested tags only peagle-sm's are removed."""
    lasting = {key: value for key, value in present.items() if key not in (PAUSED, SCHEDULER_ROLE)}
    gone = {key for key in lasting if key.startswith(PREFIX) and key not in wanted}
    keys = sorted({*gone, *(key for key, value in wanted.items() if lasting.get(key) != value)} - {SPEC_HASH})
    return tuple(Change(f"Tags.{key}", lasting.get(key), wanted.get(key)) for key in keys)


def stale_tags(present: Mapping[str, str], wanted: Mapping[str, str]) -> tuple[str, ...]:
    """Return the keys of peagle-sm's tags that the new spec lacks."""
    return tuple(sorted(key for key in present if key.startswith(PREFIX) and key not in wanted))
