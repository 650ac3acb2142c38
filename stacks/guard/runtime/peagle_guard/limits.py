"""The limits that hold whatever the metrics say: the lifetime, the budget, the end of the hours. Pure.

The rule of the drain: where traffic is still flowing at a limit, the sweeper waits ``DRAIN`` and no longer
(at the end of the hours: the endpoint's grace). The lifetime's own schedule knows no metrics and does not
wait, so the drain comes before it: the sweeper begins ``DRAIN`` before the end of the lifetime.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from peagle_guard import hours
from peagle_guard.costs import budget_ends_at
from peagle_guard.records import Endpoint, Lifecycle, OffBy, Record

# A streamed answer may last 8 minutes (SageMaker's limit for InvokeEndpointWithResponseStream).
DRAIN = timedelta(minutes=10)
# How long before a limit its notice is sent; of a short life, its last quarter.
WARNING = timedelta(minutes=30)


@dataclass(frozen=True)
class Limit:
    """The moment at which the endpoint is turned off, why, and until when traffic may still drain."""

    at: datetime
    by: OffBy
    drained_at: datetime
    warning: timedelta

    @property
    def warn_from(self) -> datetime:
        """When its notice is due."""
        return self.at - self.warning


def expires_at(endpoint: Endpoint, lifecycle: Lifecycle, record: Record) -> datetime:
    """Return the end of the lifetime: creation plus the tag's hours, or what ``keep`` wrote, if later."""
    ends = endpoint.created_at + lifecycle.max_lifetime
    return ends if record.expires_at is None else max(ends, record.expires_at)


def next_limit(endpoint: Endpoint, lifecycle: Lifecycle, record: Record, now: datetime) -> Limit:
    """Return the limit that comes (or came) first."""
    warning = min(WARNING, lifecycle.max_lifetime / 4)
    ends = expires_at(endpoint, lifecycle, record)
    found = [Limit(_drains_from(ends, lifecycle, record), OffBy.LIFETIME, ends, warning)]
    spent = budget_ends_at(lifecycle, record)
    if spent is not None:
        found.append(Limit(spent, OffBy.BUDGET, spent + DRAIN, warning))
    closes = _closes_at(endpoint, lifecycle, record, now)
    if closes is not None:
        found.append(Limit(closes, OffBy.HOURS, closes + lifecycle.grace, warning))
    # One limit's drain does not outlast another's.
    drained_at = min(limit.drained_at for limit in found)
    return replace(min(found, key=lambda limit: limit.at), drained_at=drained_at)


def _drains_from(ends: datetime, lifecycle: Lifecycle, record: Record) -> datetime:
    """When the lifetime's drain begins: of a short life in its last quarter, and never during a lease."""
    begins = ends - min(DRAIN, lifecycle.max_lifetime / 4)
    return begins if record.keep_until is None else max(begins, min(record.keep_until, ends))


def _closes_at(endpoint: Endpoint, lifecycle: Lifecycle, record: Record, now: datetime) -> datetime | None:
    """The closing that counts: the coming one, or the last one if the endpoint was there before it.

    What somebody turned on outside the hours stays until the next closing: a hand overrides the timetable
    until its next change. A lease holds the closing off.
    """
    if lifecycle.hours is None:
        return None
    passed = hours.closing(lifecycle.hours, now)
    closes = hours.next_closing(lifecycle.hours, now) if passed is None else passed
    if closes is None or endpoint.created_at > closes:
        return None
    return closes if record.keep_until is None else max(closes, record.keep_until)
