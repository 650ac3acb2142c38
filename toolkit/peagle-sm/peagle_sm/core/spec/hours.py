"""Timetables of endpoints: parser, canonical format, and when they open and close. Pure, without a clock.

The guard turns endpoints on and off by it. Input, with blanks or commas between the parts::

    Mon-Fri 08:00-19:00 Europe/Berlin
    Mon,Wed,Fri 08:00-12:00,13:00-18:00 Europe/Berlin
    Mon-Thu 08:00-19:00, Fri 08:00-15:00 America/New_York
    Fri-Sun 22:00-02:00 Asia/Tokyo

Days (a day, or a range of days; none means every day) are followed by the times at which the endpoint is
on; more days with their own times may follow; the IANA time zone is last. A range that ends at or before
its start runs over midnight and belongs to the day on which it begins. 24:00 is the end of a day.

The canonical text has the same parts with single blanks and no commas, since AWS allows none in a tag::

    timetable = group {" " group} " " zone      each day in at most one group, groups by their first day
    group     = days {" " days} " " range {" " range}
    days      = day ["-" day]                   Mon Tue Wed Thu Fri Sat Sun; a range never wraps the week
    range     = HH:MM "-" HH:MM                 start 00:00 to 23:59, end 00:00 to 24:00, never equal

Days are sorted, and so are ranges by their start; an end below its start is over midnight. A reader splits
the text at blanks, takes the last part as the zone, and starts a new group at each day after a range.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from difflib import get_close_matches
from functools import cache, lru_cache
from importlib import resources
from itertools import pairwise
from zoneinfo import ZoneInfo

DAYS = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")
_FULL_NAMES = ("monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday")
DAY_MINUTES = 24 * 60
MAX_LENGTH = 256
"""Maximum characters of a tag's value, which stores the canonical text."""
EXAMPLE = "Mon-Fri 08:00-19:00 Europe/Berlin"
_RANGE = re.compile(r"(\d{1,2}):(\d{2})-(\d{1,2}):(\d{2})")
_DAY = re.compile(r"([A-Za-z]+)(?:-([A-Za-z]+))?")
_DASHES = re.compile(r"\s*[-\u2012-\u2015]\s*")


class HoursError(ValueError):
    """An invalid timetable; the message has the wrong part and what is allowed."""


@dataclass(frozen=True, order=True)
class Span:
    """Minutes of a day in which the endpoint is on; above 1440: of the next day."""

    start: int
    end: int

    def __str__(self) -> str:
        """Format it as `HH:MM-HH:MM`."""
        end = self.end if self.end <= DAY_MINUTES else self.end - DAY_MINUTES
        return f"{_clock(self.start)}-{_clock(end)}"


@dataclass(frozen=True)
class Hours:
    """A timetable: sorted spans for each weekday, Monday first, and the time zone."""

    days: tuple[tuple[Span, ...], ...]
    zone: str

    def __str__(self) -> str:
        """Return the canonical text, which `parse_hours` parses to the same timetable."""
        parts: list[str] = []
        for spans in dict.fromkeys(day_spans for day_spans in self.days if day_spans):
            parts += _day_words([day for day, those in enumerate(self.days) if those == spans])
            parts += [str(span) for span in spans]
        return " ".join([*parts, self.zone])


def parse_hours(text: str) -> Hours:
    """Parse a timetable.

    Raises:
        HoursError: the message has the wrong part and what is allowed.
    """
    words = _DASHES.sub("-", text.replace(",", " ").replace(";", " ")).split()
    if not words:
        raise HoursError(f"a timetable such as {EXAMPLE!r}")
    zone = _zone(words.pop())
    days: list[tuple[Span, ...]] = [()] * len(DAYS)
    for chosen, spans in _groups(words):
        for day in chosen:
            if days[day]:
                raise HoursError(f"each day only once (found {DAYS[day]} twice)")
            days[day] = spans
    hours = Hours(tuple(days), zone)
    if len(str(hours)) > MAX_LENGTH:
        raise HoursError(
            f"a timetable of at most {MAX_LENGTH} characters, the limit of a tag (found {len(str(hours))})"
        )
    return hours


def _groups(words: list[str]) -> Iterator[tuple[list[int], tuple[Span, ...]]]:
    days: list[int] = []
    spans: list[Span] = []
    for word in words:
        match = _RANGE.fullmatch(word)
        if match is not None:
            spans.append(_span(word, *(int(part) for part in match.groups())))
            continue
        if spans:
            yield _group(days, spans)
            days, spans = [], []
        days += _days(word)
    if not spans:
        raise HoursError(f"times such as 08:00-19:00 before the time zone, as in {EXAMPLE!r}")
    yield _group(days, spans)


def _group(days: list[int], spans: list[Span]) -> tuple[list[int], tuple[Span, ...]]:
    spans.sort()
    for span, next_span in pairwise(spans):
        if next_span.start < span.end:
            raise HoursError(f"times that do not overlap (found {span} and {next_span})")
    return days or list(range(len(DAYS))), tuple(spans)


def _span(word: str, hour: int, minute: int, end_hour: int, end_minute: int) -> Span:
    start, end = hour * 60 + minute, end_hour * 60 + end_minute
    if minute > 59 or end_minute > 59 or start >= DAY_MINUTES or end > DAY_MINUTES:
        raise HoursError(f"times from 00:00 to 24:00 (found {word!r})")
    if start == end:
        raise HoursError(
            f"a range that begins and ends at different times (found {word!r}); 00:00-24:00 is all day"
        )
    return Span(start, end if end > start else end + DAY_MINUTES)


def _days(word: str) -> list[int]:
    match = _DAY.fullmatch(word)
    if match is None:
        raise HoursError(f"days such as Mon-Fri, times such as 08:00-19:00, and a time zone (found {word!r})")
    first, last = _day(match[1]), _day(match[2] or match[1])
    return [day % len(DAYS) for day in range(first, last + 1 if last >= first else last + 1 + len(DAYS))]


def _day(word: str) -> int:
    day = _day_of(word)
    if day is None:
        raise HoursError(f"days {', '.join(DAYS)} (found {word!r})")
    return day


def _day_of(word: str) -> int | None:
    """Return a day by its name, or by at least its first three letters."""
    named = [day for day, name in enumerate(_FULL_NAMES) if name.startswith(word.lower())]
    return named[0] if named and len(word) >= 3 else None


def _day_words(days: list[int]) -> list[str]:
    runs: list[list[int]] = []
    for day in days:
        if runs and runs[-1][-1] == day - 1:
            runs[-1].append(day)
        else:
            runs.append([day])
    return [DAYS[run[0]] if len(run) == 1 else f"{DAYS[run[0]]}-{DAYS[run[-1]]}" for run in runs]


def _clock(minutes: int) -> str:
    return f"{minutes // 60:02d}:{minutes % 60:02d}"


def _zone(word: str) -> str:
    known = {name.lower(): name for name in time_zones()}
    zone = known.get(word.lower())
    if zone is not None:
        return zone
    if _RANGE.fullmatch(word) or _day_of(word.partition("-")[0]) is not None:
        raise HoursError(f"a time zone such as Europe/Berlin or UTC at the end, as in {EXAMPLE!r}")
    near = get_close_matches(word.lower(), known, n=1)
    such = f"perhaps {known[near[0]]}" if near else "such as Europe/Berlin or UTC"
    raise HoursError(f"an IANA time zone, {such} (found {word!r}); the whole is like {EXAMPLE!r}")


@cache
def time_zones() -> tuple[str, ...]:
    """Return the names of the IANA time zones, from the guard's tzdata package."""
    return tuple(resources.files("tzdata").joinpath("zones").read_text(encoding="utf-8").split())


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
        if (span := _open_span(zone, each, today + timedelta(days=offset))) is not None
    )
    joined: list[tuple[datetime, datetime]] = []
    for start, end in spans:
        if joined and start <= joined[-1][1]:
            joined[-1] = (joined[-1][0], max(end, joined[-1][1]))
        else:
            joined.append((start, end))
    return joined


def _open_span(zone: ZoneInfo, each: Span, day: date) -> tuple[datetime, datetime] | None:
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
