"""What the register learns from looking at an endpoint, before anything is decided. Pure and idempotent."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime

from peagle_guard import costs
from peagle_guard.aws import same_time
from peagle_guard.records import Endpoint, Lifecycle, Record


def track(endpoint: Endpoint, lifecycle: Lifecycle, record: Record, now: datetime) -> Record:
    """Return the record of this endpoint as seen at ``now``; one of another creation starts afresh."""
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
    """Return the record without a mark, and without the turning off that the mark led to."""
    return replace(
        record, quiet_since=None, marked_at=None, off_at=None, off_by=None, hours_off=False, parting=False
    )


def _begun(endpoint: Endpoint, record: Record) -> Record:
    """A new life. What ``keep`` wrote before any sweep holds, and what it promised before a pause by hand."""
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
    # What the timetable woke goes on spending the same budget; what somebody deployed begins a new one.
    woken = record.woken_for is not None and endpoint.created_at >= record.woken_for
    return replace(fresh, spent_usd=record.spent_usd if woken and record.gone_at else 0.0)


def _counted(instances: int, lifecycle: Lifecycle, record: Record, now: datetime) -> Record:
    if record.base_instances is None and instances > 0:
        record = replace(record, base_instances=instances)
    if record.instances in (None, instances):
        return replace(record, instances=instances)
    return replace(costs.settled(lifecycle, record, now), instances=instances)


def _configured(endpoint: Endpoint, record: Record) -> Record:
    """Note what was described. Another configuration is a new deploy: the idle clock starts again."""
    if record.config_name not in ("", endpoint.config_name):
        record = replace(unmarked(record), first_in_service_at=None, unknown_since=None)
    return replace(
        record,
        config_name=endpoint.config_name,
        variants=endpoint.variants,
        is_async=endpoint.is_async,
        publish_seconds=endpoint.publish_seconds,
        described_at=endpoint.modified_at,
    )
