"""Data of the guard: endpoints, records, settings from tags, evidence and decisions.

Pure. Times are aware datetimes in UTC; money is US dollars.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import StrEnum

from peagle_sm.core.plan.tags_and_schedules import ENDPOINT, HOURS, IDLE, MANAGED_BY, MANAGER, PREFIX, STACK
from peagle_sm.core.spec.hours import Hours, HoursError, parse_hours

# Statuses in which an endpoint serves, or could: metrics are checked and a deletion is accepted.
SERVING = frozenset({"InService", "OutOfService", "UpdateRollbackFailed"})
# Statuses in which AWS refuses a deletion ("Cannot update in-progress endpoint").
BUSY = frozenset({"Creating", "Updating", "SystemUpdating", "RollingBack"})


@dataclass(frozen=True)
class Endpoint:
    """One endpoint as SageMaker describes it; ``instances`` is None if only the list was read."""

    name: str
    arn: str
    created_at: datetime
    modified_at: datetime
    status: str
    config_name: str = ""
    variants: tuple[str, ...] = ()
    components: tuple[str, ...] = ()
    instances: int | None = None
    # Asynchronous inference publishes no Invocations.
    is_async: bool = False


@dataclass(frozen=True)
class Lifecycle:
    """Settings from the endpoint's tags, with defaults for missing or invalid tags."""

    idle: timedelta = timedelta(minutes=60)
    grace: timedelta = timedelta(minutes=10)
    max_lifetime: timedelta = timedelta(hours=8)
    budget_usd: float | None = None
    # Price of ``instances`` instances.
    usd_per_hour: float | None = None
    # The price is an upper bound: SageMaker's was not known to the plan.
    price_at_most: bool = False
    instances: float | None = None
    hours: Hours | None = None
    stack: str | None = None
    scales_to_zero: bool = False
    # The interval at which the endpoint's instances publish utilisation.
    publish: timedelta = timedelta(minutes=1)
    # Tags that could not be read, in words; a sweep reports them.
    faults: tuple[str, ...] = ()

    @property
    def owner(self) -> str:
        """How the endpoint is turned off: ``stack:<name>`` or ``direct``."""
        return f"stack:{self.stack}" if self.stack else "direct"


class OffBy(StrEnum):
    """Reason for turning an endpoint off."""

    IDLE = "idle"
    LIFETIME = "lifetime"
    BUDGET = "budget"
    HOURS = "hours"
    FAILED = "failed"
    OTHERS = "others"


@dataclass(frozen=True)
class Record:
    """Record of one endpoint name in the register; ``version`` counts its writes, 0: none yet."""

    name: str
    arn: str = ""
    created_at: datetime | None = None
    first_in_service_at: datetime | None = None
    # Start of the proven quiet, and when the mark was set and its notice sent.
    quiet_since: datetime | None = None
    marked_at: datetime | None = None
    # Written by ``peagle-sm keep``: no idleness before, and a later end of the lifetime.
    keep_until: datetime | None = None
    expires_at: datetime | None = None
    warned_at: datetime | None = None
    # When notices about it were sent; those older than a day are dropped.
    notices: tuple[datetime, ...] = ()
    # Paused by hand: its hours do not turn it on.
    paused: bool = False
    config_name: str = ""
    tags: Mapping[str, str] = field(default_factory=dict)
    stack: str = ""
    # Spent up to ``spent_at``; from then on at the rate of ``instances``.
    spent_usd: float = 0.0
    spent_at: datetime | None = None
    instances: int | None = None
    # The last time that turning off was tried, and why; kept once it is gone.
    off_at: datetime | None = None
    off_by: OffBy | None = None
    # Its components were being deleted for that: it serves nothing any more.
    parting: bool = False
    # When the endpoint was seen to be gone.
    gone_at: datetime | None = None
    # The opening of the timetable that was answered by waking, tries included.
    woken_for: datetime | None = None
    wake_tried_at: datetime | None = None
    wake_tries: int = 0
    # As last described, so that an unchanged endpoint need not be described again.
    described_at: datetime | None = None
    variants: tuple[str, ...] = ()
    is_async: bool = False
    # CloudWatch shows its requests as they arrive, but not those in flight.
    streams_hidden: bool = False
    # In service, and the metrics have proven neither traffic nor quiet since then.
    unknown_since: datetime | None = None
    version: int = 0


class Kind(StrEnum):
    """Values of evidence. Unknown is not idle."""

    TRAFFIC = "traffic"
    QUIET = "quiet"
    UNKNOWN = "unknown"


@dataclass(frozen=True)
class Evidence:
    """Evidence from the metrics; quiet is proven from ``since`` to ``until``, else both are None.

    ``streams_shown``: whether requests in flight are shown, None without traffic by which to tell.
    ``used_at``: the last use before the quiet, if the window shows it.
    """

    kind: Kind
    since: datetime | None = None
    until: datetime | None = None
    detail: str = ""
    streams_shown: bool | None = None
    used_at: datetime | None = None


class Action(StrEnum):
    """Action of a sweep on one endpoint."""

    NONE = "none"
    MARK = "mark"
    UNMARK = "unmark"
    WARN = "warn"
    WAIT = "wait"
    TURN_OFF = "turn-off"
    CONFIRM_GONE = "confirm-gone"
    WAKE = "wake"
    FORGET = "forget"
    FOREIGN = "foreign"


class Tell(StrEnum):
    """Notice that a decision sends, if any."""

    IDLE_SOON = "idle-soon"
    LIMIT_SOON = "limit-soon"
    OFF_NOW = "off-now"
    GONE = "gone"
    WAKE_FAILED = "wake-failed"


@dataclass(frozen=True)
class Decision:
    """Decision: action, reason, record to write before acting, and notice to send.

    ``off_at`` is the time in the notice: when the endpoint is turned off unless the user acts.
    """

    action: Action
    reason: str
    record: Record
    tell: Tell | None = None
    off_by: OffBy | None = None
    off_at: datetime | None = None
    expires_at: datetime | None = None


STACK_PREFIX = "Peagle-"
# A stream may last 8 minutes; idle plus grace is at least 15 by the spec's own rule.
_LEAST_IDLE_MINUTES, _LEAST_GRACE_MINUTES, _LEAST_SUM_MINUTES = 5.0, 10.0, 15.0
_MOST_HOURS = 8760.0
# The longest interval that SageMaker's MetricsConfig allows.
_MOST_PUBLISH_SECONDS = 300.0


def is_ours(name: str, tags: Mapping[str, str]) -> bool:
    """Decide whether the tags belong to this endpoint; with another name in them they are copied."""
    return tags.get(MANAGED_BY) == MANAGER and tags.get(ENDPOINT) == name


def stack_of(tags: Mapping[str, str]) -> str | None:
    """Return the stack that owns the endpoint: ``Peagle-<endpoint>`` or none.

    A tag with another stack is ignored: that stack owns another endpoint.
    """
    stack = tags.get(STACK)
    return stack if stack and stack == _stack_for(tags) else None


def _stack_for(tags: Mapping[str, str]) -> str:
    return f"{STACK_PREFIX}{tags.get(ENDPOINT, '')}"


def lifecycle_from_tags(tags: Mapping[str, str]) -> Lifecycle:
    """Read the settings in the tags.

    A tag that cannot be read falls back to its default and is named in ``faults``: a bad tag must neither
    turn an endpoint off nor leave it running without a limit.
    """
    faults: list[str] = []

    def read(key: str, default: float, least: float, most: float) -> float:
        return _number(tags, key, faults, lambda n: least <= n <= most, default)

    def positive(key: str) -> float | None:
        number = _number(tags, key, faults, lambda n: n > 0, 0.0)
        return number or None

    plain = Lifecycle()
    stack = tags.get(STACK)
    if stack and stack_of(tags) is None:
        faults.append(
            f"tag {STACK}: found {stack!r}; allowed: {_stack_for(tags)!r}; "
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
        price_at_most=PREFIX + "price-bound" in tags,
        instances=positive("instance-count"),
        hours=_timetable(tags.get(HOURS), faults),
        stack=stack_of(tags),
        publish=timedelta(seconds=publish_s),
        scales_to_zero=tags.get(IDLE) == "scale-to-zero",
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


def _timetable(text: str | None, faults: list[str]) -> Hours | None:
    if not text:
        return None
    try:
        return parse_hours(text)
    except HoursError as error:
        faults.append(f"tag {HOURS}: found {text!r}; allowed: {error}; no timetable is kept")
        return None
