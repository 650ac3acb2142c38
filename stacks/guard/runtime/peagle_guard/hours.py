"""Working hours in which an endpoint is on. Pure; daylight saving by zoneinfo.

The tag ``peagle-sm:hours`` holds groups of days and times, and the time zone last, parted by blanks:
``Mon-Thu 08:00-19:00 Fri 08:00-15:00 Europe/Berlin``. A day after a time begins a new group; times without
days are every day's. A time that ends at or before its start ends on the next day; 24:00 is a day's end.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from functools import lru_cache
from zoneinfo import ZoneInfo

DAYS = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")
_DAY_MINUTES = 24 * 60
_EXAMPLE = "Mon-Fri 08:00-19:00 Europe/Berlin"
_TIMES = re.compile(r"(\d\d):(\d\d)-(\d\d):(\d\d)")


@dataclass(frozen=True)
class Range:
    """Minutes of the day from ``start`` to ``end`` on ``days`` (0 is Monday); end <= start: next day."""

    days: frozenset[int]
    start: int
    end: int


@dataclass(frozen=True)
class Timetable:
    """Ranges of local time in one zone."""

    text: str
    ranges: tuple[Range, ...]
    zone: ZoneInfo


def parse(text: str) -> Timetable:
    """Read a timetable.

    Raises:
        ValueError: it cannot be read; the message says what was found and what is allowed.
    """
    *words, zone_name = text.split() or [""]
    try:
        zone = ZoneInfo(zone_name)
    except (KeyError, ValueError, OSError):
        raise ValueError(f"found {text!r}; the last word must be a time zone, as in {_EXAMPLE!r}") from None
    ranges: list[Range] = []
    days: set[int] = set()
    fresh = True
    for word in words:
        if _TIMES.fullmatch(word):
            ranges.append(_range(word, frozenset(days or range(7))))
            fresh = False
        else:
            days = _days(word) | (days if fresh else set())
            fresh = True
    if fresh:
        raise ValueError(f"found {text!r}; times must stand before the time zone, as in {_EXAMPLE!r}")
    return Timetable(text=text, ranges=tuple(ranges), zone=zone)


def _range(word: str, days: frozenset[int]) -> Range:
    hour, minute, end_hour, end_minute = (int(part) for part in word.replace("-", ":").split(":"))
    start, end = hour * 60 + minute, end_hour * 60 + end_minute
    if max(minute, end_minute) > 59 or start >= _DAY_MINUTES or end > _DAY_MINUTES or start == end:
        raise ValueError(f"found {word!r}; allowed: times from 00:00 to 24:00, start and end not the same")
    return Range(days, start, end)


def _days(word: str) -> set[int]:
    first, _, last = word.partition("-")
    try:
        begin, end = DAYS.index(first), DAYS.index(last or first)
    except ValueError:
        raise ValueError(f"found {word!r}; allowed: {', '.join(DAYS)} or a range of them") from None
    # Fri-Mon passes the end of the week.
    return {(begin + step) % 7 for step in range((end - begin) % 7 + 1)}


def is_on(table: Timetable, at: datetime) -> bool:
    """Say whether the endpoint is to be on at this moment; the end is not inside."""
    return opening(table, at) is not None


def opening(table: Timetable, at: datetime) -> datetime | None:
    """When the open time in which ``at`` lies began, touching ranges joined; None outside hours."""
    return next((start for start, end in _open_times(table, at) if start <= at < end), None)


def closing(table: Timetable, at: datetime) -> datetime | None:
    """When the timetable last closed, at or before ``at``; None while it is open, or if it never closed."""
    ended = [end for start, end in _open_times(table, at) if end <= at]
    return None if opening(table, at) is not None or not ended else max(ended)


def next_closing(table: Timetable, at: datetime) -> datetime | None:
    """When the open time in which ``at`` lies ends; None outside hours, and where it never ends."""
    for start, end in _open_times(table, at):
        if start <= at < end:
            return None if end - at > timedelta(days=8) else end
    return None


def next_opening(table: Timetable, at: datetime) -> datetime | None:
    """When the timetable next opens, after ``at``; None where it never closes."""
    return min((start for start, _ in _open_times(table, at) if start > at), default=None)


def _open_times(table: Timetable, at: datetime) -> list[tuple[datetime, datetime]]:
    """The open times from a fortnight before ``at`` to a fortnight after, in UTC, joined and in order."""
    return _around(table, at.astimezone(table.zone).date())


@lru_cache(maxsize=256)
def _around(table: Timetable, today: date) -> list[tuple[datetime, datetime]]:
    spans = sorted(
        span
        for offset in range(-14, 15)
        for each in table.ranges
        if (span := _span(table, each, today + timedelta(days=offset))) is not None
    )
    joined: list[tuple[datetime, datetime]] = []
    for start, end in spans:
        if joined and start <= joined[-1][1]:
            joined[-1] = (joined[-1][0], max(end, joined[-1][1]))
        else:
            joined.append((start, end))
    return joined


def _span(table: Timetable, each: Range, day: date) -> tuple[datetime, datetime] | None:
    if day.weekday() not in each.days:
        return None
    ends_on = day if each.end > each.start else day + timedelta(days=1)
    # In a repeated hour, opening takes the first reading and closing the second, so nothing is cut early. A
    # closing at the start of that hour takes the first: the minute before it is not repeated.
    repeated = _is_repeated(table, ends_on, each.end) and _is_repeated(table, ends_on, each.end - 1)
    start, end = _utc(table, day, each.start, fold=0), _utc(table, ends_on, each.end, fold=int(repeated))
    # In the hour that is left out a range may shrink to nothing.
    return (start, end) if start < end else None


def _local(table: Timetable, day: date, minutes: int, fold: int) -> datetime:
    """Return the local time that is ``minutes`` after the midnight at which ``day`` begins."""
    days, minutes = divmod(minutes, _DAY_MINUTES)
    clock = time(minutes // 60, minutes % 60, fold=fold)
    return datetime.combine(day + timedelta(days=days), clock, tzinfo=table.zone)


def _is_repeated(table: Timetable, day: date, minutes: int) -> bool:
    """Return whether the local clock shows this reading twice, in autumn."""
    first, second = (_local(table, day, minutes, fold).utcoffset() for fold in (0, 1))
    return first is not None and second is not None and first > second


def _utc(table: Timetable, day: date, minutes: int, *, fold: int) -> datetime:
    """Return the moment of a local clock reading.

    A reading in the hour that is left out in spring means the moment at which the clock jumps.
    """
    local = _local(table, day, minutes, fold)
    moment = local.astimezone(UTC)
    if moment.astimezone(table.zone).replace(tzinfo=None) == local.replace(tzinfo=None):
        return moment
    # PEP 495: with fold=1 a reading in a gap takes the offset after it, with fold=0 the one before.
    after = local.replace(fold=0).utcoffset(), local.replace(fold=1).utcoffset()
    before_jump = local.replace(fold=1).astimezone(UTC)
    missing = (after[1] or timedelta()) - (after[0] or timedelta())
    return _jump(table, before_jump, before_jump + missing)


def _jump(table: Timetable, low: datetime, high: datetime) -> datetime:
    """The moment between ``low`` and ``high`` at which the zone's offset changes, to the second."""
    offset = low.astimezone(table.zone).utcoffset()
    while high - low > timedelta(seconds=1):
        middle = low + (high - low) / 2
        if middle.astimezone(table.zone).utcoffset() == offset:
            low = middle
        else:
            high = middle
    return high.replace(microsecond=0)
