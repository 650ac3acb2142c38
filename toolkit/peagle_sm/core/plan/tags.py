"""The keys of our own tags, and how their values are written: what the guard knows of an endpoint.

They stand on the endpoint, its config and its model alike. A value holds letters, digits, spaces and
``_ . : / = + - @`` (AWS's rule for tags), so there is no comma in any of them.
"""

from __future__ import annotations

PREFIX = "peagle-sm:"
MANAGED_BY = "peagle-sm:managed-by"
MANAGER = "peagle-sm"
ENDPOINT = "peagle-sm:endpoint"
SPEC_HASH = "peagle-sm:spec-hash"
MODE = "peagle-sm:mode"
NUM_SPECULATIVE_TOKENS = "peagle-sm:num-speculative-tokens"
"""K; absent without speculation. `list` reads this tag and the next three, and asks SageMaker for none."""
INSTANCE_TYPE = "peagle-sm:instance-type"
"""The first of placement.instance_types."""
INSTANCE_COUNT = "peagle-sm:instance-count"
"""placement.instance_count: where autoscaling starts, if the spec has it."""
INSTANCE_BOUNDS = "peagle-sm:instance-bounds"
"""The fewest and the most instances that autoscaling may come to (`1-4`); absent without it."""
IDLE_MINUTES = "peagle-sm:idle-minutes"
GRACE_MINUTES = "peagle-sm:grace-minutes"
MAX_LIFETIME_HOURS = "peagle-sm:max-lifetime-hours"
"""Hours from the endpoint's CreationTime to its end, unless `keep` has set a later one in the register."""
LIFETIME_ROLE = "peagle-sm:lifetime-role"
"""`own`: the role of the lifetime schedule is not the guard's, so it acts without the guard too."""
BUDGET_USD = "peagle-sm:budget-usd"
PUBLISH_SECONDS = "peagle-sm:publish-seconds"
"""Seconds between two utilisation datapoints: without it the guard expects one a minute."""
USD_PER_HOUR = "peagle-sm:usd-per-hour"
"""The price when it was planned, of placement.instance_count instances.

Absent where none is known, and where nothing is billed.
"""
HOURS = "peagle-sm:hours"
"""The timetable, as `peagle_sm.core.spec.hours` writes it."""
STACK = "peagle-sm:stack"
"""The CloudFormation stack that owns the endpoint; absent for one that `peagle-sm deploy` made."""
IDLE = "peagle-sm:idle"
"""What to do with an idle endpoint: `scale-to-zero`; absent means turn-off."""
PAUSED = "peagle-sm:paused"
"""On the config of an endpoint that `peagle-sm pause` turned off: since when (ISO time)."""
SCHEDULER_ROLE = "peagle-sm:scheduler-role"
"""Beside `PAUSED`: the role that the lifetime schedule had, which `resume` needs again."""


def number(value: float) -> str:
    """Write a number as a tag does: `8`, `0.5`, `113.93`; `float()` reads it back."""
    return format(value, ".12g")
