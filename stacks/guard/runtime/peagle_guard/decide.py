"""The decision about one endpoint. Pure: the same arguments give the same answer.

mark -> notice -> grace -> look again -> turn off; unknown never idles; the limits of ``limits`` hold whatever
the metrics say; what AWS refuses to delete is not tried, and is turned off as soon as it can be.
"""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta

from peagle_guard.decide_gone import decide_gone
from peagle_guard.limits import Limit, expires_at, next_limit
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
)
from peagle_guard.track import track, unmarked

_MINUTE = timedelta(minutes=1)
# Turning off is tried again at the next sweep, not by a second one at the same time.
RETRY = timedelta(minutes=4)
# A stack that is being updated to off takes its endpoint within this, whatever the metrics show meanwhile.
_GOES_WITHIN = timedelta(minutes=30)


def decide(
    endpoint: Endpoint | None, lifecycle: Lifecycle, record: Record, evidence: Evidence, now: datetime
) -> Decision:
    """Say what to do with one endpoint of ours at ``now``; ``endpoint`` is None when it no longer exists.

    The returned record is to be written (on its version) before acting.
    """
    if endpoint is None:
        return decide_gone(lifecycle, record, now, RETRY)
    record = track(endpoint, lifecycle, record, now)
    if evidence.streams_shown is not None:
        record = replace(record, streams_hidden=not evidence.streams_shown)
    record = replace(record, unknown_since=_unknown_since(endpoint, lifecycle, record, evidence, now))
    limit = next_limit(endpoint, lifecycle, record, now)
    decision = _decide(endpoint, lifecycle, record, evidence, now, limit)
    return replace(decision, expires_at=expires_at(endpoint, lifecycle, record))


def _unknown_since(
    endpoint: Endpoint, lifecycle: Lifecycle, record: Record, evidence: Evidence, now: datetime
) -> datetime | None:
    """Return since when the metrics prove nothing; those of the first idle time are never complete."""
    served = record.first_in_service_at
    if evidence.kind is not Kind.UNKNOWN or lifecycle.scales_to_zero:
        return None
    if endpoint.status not in SERVING or served is None or now - served < lifecycle.idle:
        return record.unknown_since
    return record.unknown_since or now


def _decide(
    endpoint: Endpoint, lifecycle: Lifecycle, record: Record, evidence: Evidence, now: datetime, limit: Limit
) -> Decision:
    if endpoint.status == "Deleting":
        return Decision(Action.NONE, "it is being deleted", record)
    if endpoint.status == "Failed":
        return _turn_off(record, OffBy.FAILED, "it failed, serves nothing and may be billed", now, told=False)
    if record.parting and record.off_by is not None:
        return _carried_through(endpoint, record, record.off_by, now)
    if now >= limit.at:
        return _at_limit(endpoint, record, evidence, now, limit)
    if record.off_by not in (None, OffBy.IDLE):
        # It was to be turned off by a limit that somebody has moved since.
        record = replace(record, off_at=None, off_by=None, hours_off=False)
    decision = _on_evidence(endpoint, lifecycle, record, evidence, now)
    warned = record.warned_at is not None and record.warned_at >= limit.warn_from
    if warned or now < limit.warn_from or decision.action in (Action.MARK, Action.TURN_OFF):
        return decision
    noted = replace(decision.record, warned_at=now)
    reason = f"its {limit.by} limit is near; {decision.reason}"
    return Decision(Action.WARN, reason, noted, Tell.LIMIT_SOON, limit.by, limit.at)


def _carried_through(endpoint: Endpoint, record: Record, by: OffBy, now: datetime) -> Decision:
    """Nothing that is seen or wished now brings back the components that turning off has taken away."""
    reason = f"its components were deleted ({by}), so it serves nothing"
    if endpoint.status in BUSY:
        return Decision(Action.WAIT, f"{reason}; it is {endpoint.status}", record, off_by=by)
    return _turn_off(record, by, reason, now, told=True)


def _at_limit(
    endpoint: Endpoint, record: Record, evidence: Evidence, now: datetime, limit: Limit
) -> Decision:
    passed = f"its {limit.by} limit passed at {limit.at.isoformat(timespec='seconds')}"
    if endpoint.status in BUSY:
        reason = f"{passed}; AWS refuses a deletion while it is {endpoint.status}, so as soon as that ends"
        return Decision(Action.WAIT, reason, record, off_by=limit.by)
    if evidence.kind is Kind.TRAFFIC and now < limit.drained_at:
        until = limit.drained_at
        reason = f"{passed}; traffic drains until {until.isoformat(timespec='seconds')} at the latest"
        return Decision(Action.WAIT, reason, record, off_by=limit.by, off_at=until)
    told = record.warned_at is not None and record.warned_at >= limit.warn_from
    return _turn_off(record, limit.by, passed, now, told=told)


def _on_evidence(
    endpoint: Endpoint, lifecycle: Lifecycle, record: Record, evidence: Evidence, now: datetime
) -> Decision:
    if lifecycle.scales_to_zero:
        return Decision(Action.NONE, "idleness is left to its scaling to zero", _forgotten(record, now))
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
    marked_at = _mark_that_holds(lifecycle, record, since)
    if marked_at is None:
        off_at = now + lifecycle.grace
        marked = replace(_forgotten(record, now), quiet_since=since, marked_at=now)
        reason = f"quiet since {since.isoformat(timespec='seconds')}"
        return Decision(Action.MARK, reason, marked, Tell.IDLE_SOON, OffBy.IDLE, off_at)
    off_at = marked_at + lifecycle.grace
    if now < off_at:
        reason = f"quiet; looked at again at {off_at.isoformat(timespec='seconds')}"
        return Decision(Action.NONE, reason, record, off_at=off_at)
    if until < off_at:
        return Decision(
            Action.NONE, "the metrics do not yet reach to the end of the grace", record, off_at=off_at
        )
    return _turn_off(record, OffBy.IDLE, "proven quiet twice, with the grace in between", now, told=True)


def _mark_that_holds(lifecycle: Lifecycle, record: Record, since: datetime) -> datetime | None:
    """Return when the endpoint was marked; None where the endpoint must be marked (again).

    A mark ends with traffic that was shown since, and where the idle time was raised: then it came too early.
    """
    marked_at, quiet_since = record.marked_at, record.quiet_since
    if marked_at is None or quiet_since is None or since > quiet_since:
        return None
    return marked_at if marked_at >= quiet_since + lifecycle.idle - _MINUTE else None


def _unmark(record: Record, reason: str, now: datetime) -> Decision:
    action = Action.NONE if record.marked_at is None else Action.UNMARK
    return Decision(action, reason, _forgotten(record, now))


def _forgotten(record: Record, now: datetime) -> Record:
    """Return the record without a mark; it keeps the reason of a turn-off that may still be going on."""
    if record.off_at is None or now - record.off_at >= _GOES_WITHIN:
        return unmarked(record)
    return replace(unmarked(record), off_at=record.off_at, off_by=record.off_by)


def _turn_off(record: Record, by: OffBy, reason: str, now: datetime, *, told: bool) -> Decision:
    if record.off_at is not None and now - record.off_at < RETRY:
        since = record.off_at.isoformat(timespec="seconds")
        return Decision(Action.WAIT, f"{reason}; being turned off since {since}", record, off_by=by)
    first = record.off_at is None or record.off_by is not by
    off = replace(record, off_at=now, off_by=by, hours_off=by is OffBy.HOURS)
    return Decision(Action.TURN_OFF, reason, off, None if told or not first else Tell.OFF_NOW, by, now)
