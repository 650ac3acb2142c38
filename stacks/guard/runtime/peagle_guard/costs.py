"""What an endpoint has cost so far, by the price in its tags. Pure; US dollars and hours.

The price (``peagle-sm:usd-per-hour``) is that of the plan, for the number of instances that the endpoint was
first seen with; more or fewer instances cost in proportion. AWS's bill is the truth: this is an estimate to
stop by.
"""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta

from peagle_guard.records import Lifecycle, Record

_HOUR = timedelta(hours=1)


def usd_per_hour(lifecycle: Lifecycle, record: Record) -> float | None:
    """Return what the endpoint costs an hour now; None where its price is not known."""
    if lifecycle.usd_per_hour is None:
        return None
    if record.instances is None or not record.base_instances:
        return lifecycle.usd_per_hour
    return lifecycle.usd_per_hour * record.instances / record.base_instances


def spent_usd(lifecycle: Lifecycle, record: Record, now: datetime) -> float:
    """Return what has been spent by ``now``, from the endpoint's creation on; 0 without a price."""
    rate = usd_per_hour(lifecycle, record)
    if rate is None or record.spent_at is None or record.gone_at is not None:
        return record.spent_usd
    return record.spent_usd + rate * (max(now, record.spent_at) - record.spent_at) / _HOUR


def settled(lifecycle: Lifecycle, record: Record, now: datetime) -> Record:
    """Return the record with all that was spent by ``now`` written down, before the rate changes."""
    return replace(record, spent_usd=round(spent_usd(lifecycle, record, now), 6), spent_at=now)


def budget_ends_at(lifecycle: Lifecycle, record: Record) -> datetime | None:
    """Return when the budget is spent at the present rate; None without a budget, a price, or instances."""
    rate = usd_per_hour(lifecycle, record)
    if lifecycle.budget_usd is None or not rate or record.spent_at is None:
        return None
    hours_left = max(0.0, lifecycle.budget_usd - record.spent_usd) / rate
    # A budget of centuries is no limit, and would overflow a date.
    return record.spent_at + _HOUR * hours_left if hours_left < 1e6 else None
