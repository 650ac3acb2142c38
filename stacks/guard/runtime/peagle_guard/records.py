"""The guard's words: what it sees, what it remembers, what it is told, and what it concludes. No behaviour.

Times are aware datetimes in UTC; money is US dollars.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import StrEnum

from peagle_guard.hours import Timetable

# Statuses in which an endpoint serves, or could: metrics are looked at and a deletion is accepted.
SERVING = frozenset({"InService", "OutOfService", "UpdateRollbackFailed"})
# Statuses in which AWS refuses a deletion ("Cannot update in-progress endpoint").
BUSY = frozenset({"Creating", "Updating", "SystemUpdating", "RollingBack"})


@dataclass(frozen=True)
class Endpoint:
    """One endpoint as SageMaker describes it; ``instances`` is None where only the list was read."""

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
    # The interval at which its instances publish utilisation.
    publish_seconds: int = 60


@dataclass(frozen=True)
class Lifecycle:
    """What the endpoint's tags ask for. The defaults hold where a tag is missing or cannot be read."""

    idle: timedelta = timedelta(minutes=60)
    grace: timedelta = timedelta(minutes=10)
    max_lifetime: timedelta = timedelta(hours=8)
    budget_usd: float | None = None
    usd_per_hour: float | None = None
    hours: Timetable | None = None
    stack: str | None = None
    scales_to_zero: bool = False
    # The interval at which the endpoint's instances publish utilisation; without its tag, as described.
    publish: timedelta = timedelta(minutes=1)
    # Tags that could not be read, in words; a sweep reports them.
    faults: tuple[str, ...] = ()

    @property
    def owner(self) -> str:
        """Who turns the endpoint off: ``stack:<name>`` or ``direct``."""
        return f"stack:{self.stack}" if self.stack else "direct"


class OffBy(StrEnum):
    """Why an endpoint was turned off."""

    IDLE = "idle"
    LIFETIME = "lifetime"
    BUDGET = "budget"
    HOURS = "hours"
    FAILED = "failed"
    OTHERS = "others"


@dataclass(frozen=True)
class Record:
    """What the register remembers of one endpoint name. ``version`` counts its writes; 0: none yet."""

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
    # Paused by hand: the timetable does not wake it. hours_off: turned off by the timetable.
    paused: bool = False
    hours_off: bool = False
    config_name: str = ""
    tags: Mapping[str, str] = field(default_factory=dict)
    stack: str = ""
    # Spent up to ``spent_at``; from then on at the rate of ``instances`` of ``base_instances``.
    spent_usd: float = 0.0
    spent_at: datetime | None = None
    instances: int | None = None
    base_instances: int | None = None
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
    publish_seconds: int | None = None
    # CloudWatch shows its requests as they arrive, but not those in flight.
    streams_hidden: bool = False
    # In service, and the metrics have proven neither traffic nor quiet since then.
    unknown_since: datetime | None = None
    version: int = 0


class Kind(StrEnum):
    """The three values of evidence. Unknown is not idle."""

    TRAFFIC = "traffic"
    QUIET = "quiet"
    UNKNOWN = "unknown"


@dataclass(frozen=True)
class Evidence:
    """What the metrics show. Quiet is proven from ``since`` to ``until``; both are None otherwise.

    ``streams_shown``: whether requests in flight are shown, None without traffic by which to tell.
    """

    kind: Kind
    since: datetime | None = None
    until: datetime | None = None
    detail: str = ""
    streams_shown: bool | None = None


class Action(StrEnum):
    """What a sweep does with one endpoint."""

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
    """Which notice a decision sends, if any."""

    IDLE_SOON = "idle-soon"
    LIMIT_SOON = "limit-soon"
    OFF_NOW = "off-now"
    GONE = "gone"
    WAKE_FAILED = "wake-failed"


@dataclass(frozen=True)
class Decision:
    """What to do, why, what to remember (written before acting), and which notice to send.

    ``off_at`` is the time told in the notice: when the endpoint is turned off unless somebody acts.
    """

    action: Action
    reason: str
    record: Record
    tell: Tell | None = None
    off_by: OffBy | None = None
    off_at: datetime | None = None
    expires_at: datetime | None = None
