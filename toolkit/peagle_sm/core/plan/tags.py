"""Tag keys of peagle-sm and the format of their values, which the guard reads.

Endpoint, config and model have the same tags. A value may have letters, digits, spaces and
``_ . : / = + - @`` (AWS's rule for tags), so no value has a comma.
"""

from __future__ import annotations

PREFIX = "peagle-sm:"
MANAGED_BY = "peagle-sm:managed-by"
MANAGER = "peagle-sm"
ENDPOINT = "peagle-sm:endpoint"
SPEC_HASH = "peagle-sm:spec-hash"
MODE = "peagle-sm:mode"
NUM_SPECULATIVE_TOKENS = "peagle-sm:num-speculative-tokens"
"""K; absent without speculation. `list` reads this tag and the next three instead of calling SageMaker."""
INSTANCE_TYPE = "peagle-sm:instance-type"
"""First type of placement.instance_types."""
INSTANCE_COUNT = "peagle-sm:instance-count"
"""placement.instance_count; with autoscaling, the initial count."""
INSTANCE_BOUNDS = "peagle-sm:instance-bounds"
"""Autoscaling's minimum and maximum of instances (`1-4`); absent without autoscaling."""
IDLE_MINUTES = "peagle-sm:idle-minutes"
GRACE_MINUTES = "peagle-sm:grace-minutes"
MAX_LIFETIME_HOURS = "peagle-sm:max-lifetime-hours"
"""Hours from the endpoint's CreationTime to its end, unless `keep` set a later one in the register."""
LIFETIME_ROLE = "peagle-sm:lifetime-role"
"""`own`: the lifetime schedule's role is not the guard's, so the schedule works without the guard, too."""
BUDGET_USD = "peagle-sm:budget-usd"
PUBLISH_SECONDS = "peagle-sm:publish-seconds"
"""Seconds between two utilization data points; by default the guard expects one per minute."""
USD_PER_HOUR = "peagle-sm:usd-per-hour"
"""Planned price per hour of placement.instance_count instances.

Absent if unknown, or if nothing is billed.
"""
HOURS = "peagle-sm:hours"
"""Timetable in the format of `peagle_sm.core.spec.hours`."""
STACK = "peagle-sm:stack"
"""CloudFormation stack that owns the endpoint; absent if `peagle-sm deploy` created it."""
IDLE = "peagle-sm:idle"
"""Action for an idle endpoint: `scale-to-zero`; absent means turn-off."""
PAUSED = "peagle-sm:paused"
"""On the config of an endpoint that `peagle-sm pause` turned off: the ISO time of the pause."""
SCHEDULER_ROLE = "peagle-sm:scheduler-role"
"""Together with `PAUSED`: the role of the lifetime schedule, which `resume` needs."""


def number(value: float) -> str:
    """Format a number for a tag: `8`, `0.5`, `113.93`; `float()` parses it."""
    return format(value, ".12g")
