"""Moments at which an endpoint's timetable opens and closes. Pure; daylight saving by zoneinfo."""

from __future__ import annotations

from datetime import UTC, date, datetime, time, timedelta
from functools import lru_cache
from zoneinfo import ZoneInfo

from peagle_sm.core.spec.hours import DAY_MINUTES, Hours, Span


def is_on(table: Hours, at: datetime) -> bool:
    """Say whether the endpoint is to be on at this moment; the end is not inside."""
    return opening(table, at) is not None


def opening(table: Hours, at: datetime) -> datetime | None:
    """When the open time in which ``at`` lies began, touching ranges joined; None outside hours."""
    return next((start for start, end in _open_times(table, at) if start <= at < end), None)


def closing(table: Hours, at: datetime) -> datetime | None:
    """When the timetable last closed, at or before ``at``; None while it is open, or if it never closed."""
    ended = [end for start, end in _open_times(table, at) if end <= at]
    return None if opening(table, at) is not None or not ended else max(ended)


def next_closing(table: Hours, at: datetime) -> datetime | None:
    """When the open time in which ``at`` lies ends; None outside hours, and where it never ends."""
    for start, end in _open_times(table, at):
        if start <= at < end:
            return None if end - at > timedelta(days=8) else end
    return None


def next_opening(table: Hours, at: datetime) -> datetime | None:
    """When the timetable next opens, after ``at``; None where it never closes."""
    return min((start for start, _ in _open_times(table, at) if start > at), default=None)


def _open_times(table: Hours, at: datetime) -> list[tuple[datetime, datetime]]:
    """The open times from a fortnight before ``at`` to a fortnight after, in UTC, joined and in order."""
    return _around(table, at.astimezone(ZoneInfo(table.zone)).date())


@lru_cache(maxsize=256)
def _around(table: Hours, today: date) -> list[tuple[datetime, datetime]]:
    zone = ZoneInfo(table.zone)
    spans = sorted(
        span
        for offset in range(-14, 15)
        for each in table.days[(today + timedelta(days=offset)).weekday()]
        if (span := _span(zone, each, today + timedelta(days=offset))) is not None
    )
    joined: list[tuple[datetime, datetime]] = []
    for start, end in spans:
        if joined and start <= joined[-1][1]:
            joined[-1] = (joined[-1][0], max(end, joined[-1][1]))
        else:
            joined.append((start, end))
    return joined


def _span(zone: ZoneInfo, each: Span, day: date) -> tuple[datetime, datetime] | None:
    # In a repeated hour, opening takes the first reading and closing the second, so nothing is cut early. A
    # closing at the start of that hour takes the first: the minute before it is not repeated.
    repeated = _is_repeated(zone, day, each.end) and _is_repeated(zone, day, each.end - 1)
    start, end = _utc(zone, day, each.start, fold=0), _utc(zone, day, each.end, fold=int(repeated))
    # In the hour that is left out a range may shrink to nothing.
    return (start, end) if start < end else None


def _local(zone: ZoneInfo, day: date, minutes: int, fold: int) -> datetime:
    """Return the local time that is ``minutes`` after the midnight at which ``day`` begins."""
    days, minutes = divmod(minutes, DAY_MINUTES)
    clock = time(minutes // 60, minutes % 60, fold=fold)
    return datetime.combine(day + timedelta(days=days), clock, tzinfo=zone)


def _is_repeated(zone: ZoneInfo, day: date, minutes: int) -> bool:
    """Return whether the local clock shows this reading twice, in autumn."""
    first, second = (_local(zone, day, minutes, fold).utcoffset() for fold in (0, 1))
    return first is not None and second is not None and first > second


def _utc(zone: ZoneInfo, day: date, minutes: int, *, fold: int) -> datetime:
    """Return the moment of a local clock reading.

    A reading in the hour that is left out in spring means the moment at which the clock jumps.
    """
    local = _local(zone, day, minutes, fold)
    moment = local.astimezone(UTC)
    if moment.astimezone(zone).replace(tzinfo=None) == local.replace(tzinfo=None):
        return moment
    # PEP 495: with fold=1 a reading in a gap takes the offset after it, with fold=0 the one before.
    after = local.replace(fold=0).utcoffset(), local.replace(fold=1).utcoffset()
    before_jump = local.replace(fold=1).astimezone(UTC)
    missing = (after[1] or timedelta()) - (after[0] or timedelta())
    return _jump(zone, before_jump, before_jump + missing)


def _jump(zone: ZoneInfo, low: datetime, high: datetime) -> datetime:
    """The moment between ``low`` and ``high`` at which the zone's offset changes, to the second."""
    offset = low.astimezone(zone).utcoffset()
    while high - low > timedelta(seconds=1):
        middle = low + (high - low) / 2
        if middle.astimezone(zone).utcoffset() == offset:
            low = middle
        else:
            high = middle
    return high.replace(microsecond=0)
