"""Decision on one endpoint. Pure: the same arguments give the same result.

mark -> notice -> grace -> check again -> turn off. Missing metrics never count as idle. The limits
(lifetime, budget, end of the hours) apply whatever the metrics show. An endpoint that AWS refuses to delete
in its state is turned off as soon as that is possible. For a deleted endpoint the cost is recorded, or it is
turned on at the start of its hours.

Drain: if there is still traffic at a limit, the sweeper waits at most ``DRAIN`` (at the end of the hours: the
endpoint's grace). The lifetime schedule does not check metrics and does not wait, so the sweeper begins
``DRAIN`` before the end of the lifetime.

Costs use the price in the tag ``peagle-sm:usd-per-hour``. It is the plan's price for the number of instances
in the tag ``peagle-sm:instance-count``, and is scaled by the number of instances that run. It is an estimate
for the budget; AWS's bill is the truth.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from peagle_guard.aws import same_time
from peagle_guard.evidence import LONGEST_MARK
from peagle_guard.records import (
    BUSY,
    SERVING,
    Action,
    Decision,
    Endpoint,
    Evidence,
    Kind,
    Lifecycle,
    OffBy,
    Record,
    Tell,
    lifecycle_from_tags,
)
from peagle_sm.core.spec import hours

_HOUR = timedelta(hours=1)


def usd_per_hour(lifecycle: Lifecycle, record: Record) -> float | None:
    """Return the endpoint's present price per hour; None if unknown."""
    if lifecycle.usd_per_hour is None:
        return None
    if record.instances is None or not lifecycle.instances:
        return lifecycle.usd_per_hour
    return lifecycle.usd_per_hour * record.instances / lifecycle.instances


def spent_usd(lifecycle: Lifecycle, record: Record, now: datetime) -> float:
    """Return the cost from the endpoint's creation to ``now``; 0 without a price."""
    rate = usd_per_hour(lifecycle, record)
    if rate is None or record.spent_at is None or record.gone_at is not None:
        return record.spent_usd
    return record.spent_usd + rate * (max(now, record.spent_at) - record.spent_at) / _HOUR


def settled(lifecycle: Lifecycle, record: Record, now: datetime) -> Record:
    """Return the record with the cost up to ``now``, before the rate changes."""
    return replace(record, spent_usd=round(spent_usd(lifecycle, record, now), 6), spent_at=now)


def repriced(record: Record, tags: Mapping[str, str], now: datetime) -> Record:
    """Return the record with these tags; what was spent under other tags keeps their price."""
    before, after = lifecycle_from_tags(record.tags), lifecycle_from_tags(tags)
    changed = (before.usd_per_hour, before.instances) != (after.usd_per_hour, after.instances)
    if changed and before.usd_per_hour is not None and record.spent_at is not None and record.gone_at is None:
        record = settled(before, record, now)
    return replace(record, tags=tags)


def budget_ends_at(lifecycle: Lifecycle, record: Record) -> datetime | None:
    """Return when the budget will be spent; None without a budget, a price, or instances."""
    rate = usd_per_hour(lifecycle, record)
    if lifecycle.budget_usd is None or not rate or record.spent_at is None:
        return None
    hours_left = max(0.0, lifecycle.budget_usd - record.spent_usd) / rate
    # A budget for centuries would overflow a date.
    return record.spent_at + _HOUR * hours_left if hours_left < 1e6 else None


# A streamed answer may last 8 minutes (SageMaker's limit for InvokeEndpointWithResponseStream).
DRAIN = timedelta(minutes=10)
# Time between a limit's notice and the limit; for a short lifetime its last quarter.
WARNING = timedelta(minutes=30)


@dataclass(frozen=True)
class Limit:
    """Time at which the endpoint is turned off, the reason, and the end of the drain."""

    at: datetime
    by: OffBy
    drained_at: datetime
    warning: timedelta

    @property
    def warn_from(self) -> datetime:
        """Time at which the notice is due."""
        return self.at - self.warning

    def announced(self, record: Record) -> bool:
        """Decide whether a notice named this limit, or one that was only a little earlier.

        The end of a budget moves to and fro with the number of instances.
        """
        return record.warned_at is not None and record.warned_at >= self.warn_from - self.warning


def expires_at(created_at: datetime, lifecycle: Lifecycle, record: Record) -> datetime:
    """Return the end of the lifetime: creation plus the tag's hours, or what ``keep`` wrote, if later."""
    ends = created_at + lifecycle.max_lifetime
    return ends if record.expires_at is None else max(ends, record.expires_at)


def next_limit(endpoint: Endpoint, lifecycle: Lifecycle, record: Record, now: datetime) -> Limit:
    """Return the limit that comes (or came) first."""
    warning = min(WARNING, lifecycle.max_lifetime / 4)
    ends = expires_at(endpoint.created_at, lifecycle, record)
    limits = [Limit(_drains_from(ends, lifecycle, record), OffBy.LIFETIME, ends, warning)]
    spent = budget_ends_at(lifecycle, record)
    if spent is not None:
        limits.append(Limit(spent, OffBy.BUDGET, spent + DRAIN, warning))
    closes = _closes_at(endpoint, lifecycle, record, now)
    if closes is not None:
        limits.append(Limit(closes, OffBy.HOURS, closes + lifecycle.grace, warning))
    # One limit's drain does not outlast another's.
    drained_at = min(limit.drained_at for limit in limits)
    return replace(min(limits, key=lambda limit: limit.at), drained_at=drained_at)


def _drains_from(ends: datetime, lifecycle: Lifecycle, record: Record) -> datetime:
    """Return when the lifetime's drain begins: a short lifetime's last quarter, never during a lease."""
    begins = ends - min(DRAIN, lifecycle.max_lifetime / 4)
    return begins if record.keep_until is None else max(begins, min(record.keep_until, ends))


def _closes_at(endpoint: Endpoint, lifecycle: Lifecycle, record: Record, now: datetime) -> datetime | None:
    """Return the closing that applies: the next, or the last if the endpoint existed before it.

    An endpoint that was turned on by hand outside its hours stays on until the next closing. A lease
    postpones the closing.
    """
    if lifecycle.hours is None:
        return None
    passed = hours.closing(lifecycle.hours, now)
    closes = hours.next_closing(lifecycle.hours, now) if passed is None else passed
    if closes is None or endpoint.created_at > closes:
        return None
    return closes if record.keep_until is None else max(closes, record.keep_until)


def track(endpoint: Endpoint, lifecycle: Lifecycle, record: Record, now: datetime) -> Record:
    """Return this endpoint's record as of ``now``; a new creation starts a new record."""
    if not same_time(record.created_at, endpoint.created_at):
        record = _begun(endpoint, record)
    # The command line may have written the record first, with less in it.
    record = replace(
        record,
        arn=record.arn or endpoint.arn,
        spent_at=record.spent_at or endpoint.created_at,
        stack=lifecycle.stack or "",
    )
    if endpoint.instances is not None:
        record = _counted(endpoint.instances, lifecycle, record, now)
    if endpoint.config_name:
        record = _configured(endpoint, record)
    if endpoint.status == "InService" and record.first_in_service_at is None:
        # The list's LastModifiedTime is when it went into service, or later: never too early.
        since = min(now, max(endpoint.created_at, endpoint.modified_at))
        record = replace(record, first_in_service_at=since)
    return record


def unmarked(record: Record) -> Record:
    """Return the record without its mark and without the turn-off that followed from it."""
    return replace(record, quiet_since=None, marked_at=None, off_at=None, off_by=None, parting=False)


def _begun(endpoint: Endpoint, record: Record) -> Record:
    """Begin a new record; ``keep``'s lease stays, also from before a pause by hand."""
    fresh = Record(
        name=endpoint.name,
        arn=endpoint.arn,
        created_at=endpoint.created_at,
        spent_at=endpoint.created_at,
        tags=record.tags,
        version=record.version,
    )
    if record.created_at is None or record.paused:
        return replace(fresh, keep_until=record.keep_until, expires_at=record.expires_at)
    # An endpoint turned on by its hours continues the same budget; a deployed one begins a new one.
    woken = record.woken_for is not None and endpoint.created_at >= record.woken_for
    return replace(fresh, spent_usd=record.spent_usd if woken and record.gone_at else 0.0)


def _counted(instances: int, lifecycle: Lifecycle, record: Record, now: datetime) -> Record:
    if record.instances in (None, instances):
        return replace(record, instances=instances)
    return replace(settled(lifecycle, record, now), instances=instances)


def _configured(endpoint: Endpoint, record: Record) -> Record:
    """Record the description; another endpoint config is a new deploy, so the idle time starts again."""
    if record.config_name not in ("", endpoint.config_name):
        record = replace(unmarked(record), first_in_service_at=None, unknown_since=None)
    return replace(
        record,
        config_name=endpoint.config_name,
        variants=endpoint.variants,
        is_async=endpoint.is_async,
        described_at=endpoint.modified_at,
    )


MOST_WAKE_TRIES = 3
_LOOK_EVERY = timedelta(hours=1)
_SWEEP_EVERY = timedelta(minutes=5)
# After one of these reasons the next opening turns it on; not after a spent budget, a failure or a pause.
WOKEN_AFTER = frozenset({OffBy.IDLE, OffBy.LIFETIME, OffBy.HOURS})


def decide_gone(lifecycle: Lifecycle, record: Record, now: datetime) -> Decision:
    """Decide on a name whose endpoint no longer exists."""
    if record.created_at is None:
        return Decision(Action.NONE, "never seen", record)
    if record.gone_at is None:
        return _first_seen_gone(lifecycle, record, now)
    return _wake(lifecycle, record, now)


def asks_for_its_stack(lifecycle: Lifecycle, record: Record, now: datetime) -> bool:
    """Decide whether this sweep checks that the stack of an endpoint that is off exists: once an hour.

    A destroyed stack would otherwise leave its record for ever, and its hours would try for ever to turn the
    endpoint on.
    """
    if lifecycle.stack is None or record.created_at is None or record.gone_at is None:
        return False
    since = now - record.gone_at
    return since >= _LOOK_EVERY and since % _LOOK_EVERY < _SWEEP_EVERY


def _first_seen_gone(lifecycle: Lifecycle, record: Record, now: datetime) -> Decision:
    off_at, off_by = record.off_at, record.off_by
    expires = None if record.created_at is None else expires_at(record.created_at, lifecycle, record)
    if off_by is None:
        # The lifetime schedule deletes without a notice.
        off_by = OffBy.LIFETIME if expires is not None and now >= expires else OffBy.OTHERS
    gone = replace(
        unmarked(settled(lifecycle, record, now)),
        gone_at=now,
        off_at=off_at or now,
        off_by=off_by,
        warned_at=None,
        unknown_since=None,
        # A pause by hand does not end the lease of ``keep``: after resuming it still applies.
        keep_until=record.keep_until if record.paused else None,
        expires_at=record.expires_at if record.paused else None,
    )
    if off_by is OffBy.OTHERS:
        return Decision(Action.NONE, "deleted, but not by the guard", gone, off_by=off_by)
    return Decision(Action.CONFIRM_GONE, f"gone ({off_by})", gone, Tell.GONE, off_by, gone.off_at)


def _wake(lifecycle: Lifecycle, record: Record, now: datetime) -> Decision:
    if lifecycle.hours is None:
        return Decision(Action.NONE, "off", record)
    opened = hours.opening(lifecycle.hours, now)
    if opened is None:
        return Decision(Action.NONE, "off, outside its hours", record)
    if record.paused:
        return Decision(Action.NONE, "paused by hand", record)
    if record.off_by not in WOKEN_AFTER:
        return Decision(Action.NONE, f"off ({record.off_by}): not turned on when its hours begin", record)
    if (record.off_at or record.gone_at or now) >= opened:
        return Decision(Action.NONE, "turned off during its hours: turned on when they next begin", record)
    tries = record.wake_tries if record.woken_for == opened else 0
    if tries >= MOST_WAKE_TRIES:
        return Decision(
            Action.NONE, f"turning on failed {tries} times: retried when its hours next begin", record
        )
    if record.woken_for == opened and record.wake_tried_at and now - record.wake_tried_at < RETRY:
        return Decision(Action.WAIT, "being turned on", record)
    woken = replace(record, woken_for=opened, wake_tried_at=now, wake_tries=tries + 1)
    return Decision(Action.WAKE, f"its hours began at {opened.isoformat(timespec='seconds')}", woken)


_MINUTE = timedelta(minutes=1)
_DAY = timedelta(days=1)
# Notices about one endpoint within a day, as long as nobody moves its limits.
_MOST_NOTICES = 3
# Turning off is retried at the next sweep, not by a second sweep at the same time.
RETRY = timedelta(minutes=4)
# A stack that is being updated to off deletes its endpoint within this time, whatever the metrics show.
_GOES_WITHIN = timedelta(minutes=30)


def decide(
    endpoint: Endpoint | None, lifecycle: Lifecycle, record: Record, evidence: Evidence, now: datetime
) -> Decision:
    """Decide on one endpoint at ``now``; ``endpoint`` is None if it no longer exists.

    The returned record is to be written (on its version) before acting.
    """
    if endpoint is None:
        return _announced(decide_gone(lifecycle, record, now), now)
    record = track(endpoint, lifecycle, record, now)
    if evidence.streams_shown is not None:
        record = replace(record, streams_hidden=not evidence.streams_shown)
    record = replace(record, unknown_since=_unknown_since(endpoint, lifecycle, record, evidence, now))
    limit = next_limit(endpoint, lifecycle, record, now)
    decision = _announced(_decide(endpoint, lifecycle, record, evidence, now, limit), now)
    return replace(decision, expires_at=expires_at(endpoint.created_at, lifecycle, record))


def _announced(decision: Decision, now: datetime) -> Decision:
    """Record the decision's notice, without one that would be the day's fourth.

    A limit, a failure and a turn-off that nobody was warned of are always announced, once each. So only the
    last word, that the endpoint is off, may be one too many: its end was announced then.
    """
    if decision.tell is None:
        return decision
    recent = _recent_notices(decision.record, now)
    if decision.tell is Tell.GONE and len(recent) >= _MOST_NOTICES:
        return replace(decision, tell=None)
    return replace(decision, record=replace(decision.record, notices=(*recent, now)))


def _recent_notices(record: Record, now: datetime) -> tuple[datetime, ...]:
    """Return when notices about the endpoint were sent within a day."""
    return tuple(at for at in record.notices if now - at < _DAY)


def _unknown_since(
    endpoint: Endpoint, lifecycle: Lifecycle, record: Record, evidence: Evidence, now: datetime
) -> datetime | None:
    """Return since when the metrics are incomplete; in the first idle time they always are.

    Quiet that does not last until the turn-off does not end it: metrics may be lost again and again.
    """
    served, since = record.first_in_service_at, evidence.since
    if evidence.kind is Kind.TRAFFIC or lifecycle.scales_to_zero:
        return None
    if since is not None:
        return None if since <= now - lifecycle.idle - lifecycle.grace else record.unknown_since
    if endpoint.status not in SERVING or served is None or now - served < lifecycle.idle:
        return record.unknown_since
    return record.unknown_since or now


def _decide(
    endpoint: Endpoint, lifecycle: Lifecycle, record: Record, evidence: Evidence, now: datetime, limit: Limit
) -> Decision:
    if endpoint.status == "Deleting":
        return Decision(Action.NONE, "it is being deleted", record)
    if endpoint.status == "Failed":
        return _turn_off(
            record, OffBy.FAILED, "it failed, serves nothing and may be billed", now, announced=False
        )
    if record.parting and record.off_by is not None:
        return _carried_through(endpoint, record, record.off_by, now)
    if now >= limit.at:
        return _at_limit(endpoint, record, evidence, now, limit)
    if record.off_by not in (None, OffBy.IDLE):
        # A limit had started the turn-off, but the limit was moved since.
        record = replace(record, off_at=None, off_by=None)
    decision = _on_evidence(endpoint, lifecycle, record, evidence, now)
    if limit.announced(record) or now < limit.warn_from:
        return decision
    if decision.action in (Action.MARK, Action.TURN_OFF):
        return decision
    noted = replace(decision.record, warned_at=now)
    reason = f"its {limit.by} limit is near; {decision.reason}"
    return Decision(Action.WARN, reason, noted, Tell.LIMIT_SOON, limit.by, limit.at)


def _carried_through(endpoint: Endpoint, record: Record, by: OffBy, now: datetime) -> Decision:
    """Always finish turning off once components have been deleted."""
    reason = f"its components were deleted ({by}), so it serves nothing"
    if endpoint.status in BUSY:
        return Decision(Action.WAIT, f"{reason}; it is {endpoint.status}", record, off_by=by)
    return _turn_off(record, by, reason, now, announced=True)


def _at_limit(
    endpoint: Endpoint, record: Record, evidence: Evidence, now: datetime, limit: Limit
) -> Decision:
    passed = f"its {limit.by} limit passed at {limit.at.isoformat(timespec='seconds')}"
    if endpoint.status in BUSY:
        reason = (
            f"{passed}; AWS refuses a deletion while it is {endpoint.status}; retried as soon as that ends"
        )
        return Decision(Action.WAIT, reason, record, off_by=limit.by)
    if evidence.kind is Kind.TRAFFIC and now < limit.drained_at:
        until = limit.drained_at
        reason = f"{passed}; traffic drains until {until.isoformat(timespec='seconds')} at the latest"
        return Decision(Action.WAIT, reason, record, off_by=limit.by, off_at=until)
    return _turn_off(record, limit.by, passed, now, announced=limit.announced(record))


def _on_evidence(
    endpoint: Endpoint, lifecycle: Lifecycle, record: Record, evidence: Evidence, now: datetime
) -> Decision:
    if lifecycle.scales_to_zero:
        return Decision(Action.NONE, "when idle it scales to zero by itself", _forgotten(record, now))
    if record.keep_until is not None and record.keep_until > now:
        until = record.keep_until.isoformat(timespec="seconds")
        return _unmark(record, f"it is kept until {until}", now)
    if evidence.kind is Kind.TRAFFIC:
        return _unmark(record, f"traffic: {evidence.detail}" if evidence.detail else "traffic", now)
    if endpoint.status in BUSY:
        return Decision(Action.NONE, f"it is {endpoint.status}", record)
    if evidence.kind is Kind.UNKNOWN:
        return Decision(Action.NONE, f"unknown is not idle: {evidence.detail or 'no proof'}", record)
    return _on_quiet(lifecycle, record, evidence, now)


def _on_quiet(lifecycle: Lifecycle, record: Record, evidence: Evidence, now: datetime) -> Decision:
    served = record.first_in_service_at
    if served is None or now - served < lifecycle.idle:
        return Decision(Action.NONE, "quiet, but not yet in service for its idle time", record)
    since, until = evidence.since, evidence.until
    if since is None or until is None or since > now - lifecycle.idle + _MINUTE:
        return Decision(Action.NONE, "unknown is not idle: quiet is not proven for the idle time", record)
    marked_at = _mark_that_holds(lifecycle, record, since, now)
    if marked_at is None:
        off_at = now + lifecycle.grace
        marked = replace(_forgotten(record, now), quiet_since=since, marked_at=now)
        reason = f"quiet since {since.isoformat(timespec='seconds')}"
        tell = Tell.IDLE_SOON if _is_news(record, evidence, now) else None
        return Decision(Action.MARK, reason, marked, tell, OffBy.IDLE, off_at)
    off_at = marked_at + lifecycle.grace
    if now < off_at:
        reason = f"quiet; checked again at {off_at.isoformat(timespec='seconds')}"
        return Decision(Action.NONE, reason, record, off_at=off_at)
    if until < off_at:
        return Decision(Action.NONE, "the metrics do not yet cover the grace period", record, off_at=off_at)
    return _turn_off(
        record, OffBy.IDLE, "proven quiet before and after the grace period", now, announced=True
    )


def _mark_that_holds(lifecycle: Lifecycle, record: Record, since: datetime, now: datetime) -> datetime | None:
    """Return when the endpoint was marked; None if it must be marked (again).

    A mark holds if the quiet reaches back over the idle time before it. It does not if a request or a lost
    minute came since, or if the idle time was raised.
    """
    marked_at, quiet_since = record.marked_at, record.quiet_since
    if marked_at is None or quiet_since is None or now - marked_at > LONGEST_MARK:
        return None
    return marked_at if max(since, quiet_since) <= marked_at - lifecycle.idle + _MINUTE else None


def _is_news(record: Record, evidence: Evidence, now: datetime) -> bool:
    """Decide whether a mark is announced: at most two a day, and not one that only lost metrics renewed."""
    recent = _recent_notices(record, now)
    marked_at, used_at = record.marked_at, evidence.used_at
    if marked_at is None or now - marked_at > LONGEST_MARK or (used_at is not None and used_at >= marked_at):
        return len(recent) < _MOST_NOTICES - 1
    return not recent


def _unmark(record: Record, reason: str, now: datetime) -> Decision:
    action = Action.NONE if record.marked_at is None else Action.UNMARK
    return Decision(action, reason, _forgotten(record, now))


def _forgotten(record: Record, now: datetime) -> Record:
    """Return the record without a mark, with the reason of a turn-off that may still be in progress."""
    if record.off_at is None or now - record.off_at >= _GOES_WITHIN:
        return unmarked(record)
    return replace(unmarked(record), off_at=record.off_at, off_by=record.off_by)


def _turn_off(record: Record, by: OffBy, reason: str, now: datetime, *, announced: bool) -> Decision:
    if record.off_at is not None and now - record.off_at < RETRY:
        since = record.off_at.isoformat(timespec="seconds")
        return Decision(Action.WAIT, f"{reason}; being turned off since {since}", record, off_by=by)
    first = record.off_at is None or record.off_by is not by
    off = replace(record, off_at=now, off_by=by)
    return Decision(Action.TURN_OFF, reason, off, None if announced or not first else Tell.OFF_NOW, by, now)
