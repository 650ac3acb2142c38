"""Timetables for worlds; their open times are worked out here, apart from the guard's own reading."""

from __future__ import annotations

from collections.abc import Container
from datetime import UTC, date, datetime
from random import Random
from zoneinfo import ZoneInfo

from tests.guard.simulator.worlds.traffic import DAY, HOUR
from tests.guard.simulator.worlds.world import Hours, Interval

DAYS = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")
ZONES = ("Europe/Berlin", "America/New_York", "Asia/Kolkata", "Australia/Lord_Howe", "UTC")

# Weekends on which clocks change: Berlin, New York, Lord Howe (by half an hour).
CLOCK_CHANGES = (
    date(2026, 3, 29),
    date(2026, 10, 25),
    date(2026, 3, 8),
    date(2026, 11, 1),
    date(2026, 4, 5),
    date(2026, 10, 4),
)

REPEATED_HOURS = (
    ("Europe/Berlin", "2026-10-25T01:00", 60),
    ("America/New_York", "2026-11-01T06:00", 60),
    ("Australia/Lord_Howe", "2026-04-04T15:00", 30),
)
"""(zone, the moment in UTC at which its clocks go back, by how many minutes)."""


def timetable(random: Random, begin: int, end: int) -> Hours:
    """Draw a timetable and work out when it is open between two moments.

    Its readings of the clock exist on every day (none falls into a skipped or doubled hour): those edges have
    tests of their own, and here the meaning must be beyond dispute.
    """
    zone = random.choice(ZONES)
    first, last = random.choice(((0, 4), (0, 6), (1, 5), (5, 6)))
    opens, closes = random.randint(4, 11), random.randint(14, 23)
    minute = random.choice((0, 0, 15, 30))
    text = f"{DAYS[first]}-{DAYS[last]} {opens:02}:{minute:02}-{closes:02}:{minute:02} {zone}"
    days, span = range(first, last + 1), (begin - 2 * DAY, end + 2 * DAY)
    return Hours(text, tuple(_open(ZoneInfo(zone), opens * 60 + minute, closes * 60 + minute, *span, days)))


def repeated_hour(random: Random) -> tuple[Hours, int, int]:
    """Draw a timetable that closes at, or in, the hour that comes twice when the clocks go back.

    Return it with the beginning and the end of a world around the change.
    """
    zone, text, back = random.choice(REPEATED_HOURS)
    info, change = ZoneInfo(zone), int(datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp())
    first_reading = datetime.fromtimestamp(change, info)
    offset = random.choice((0, 0, 0, back // 2, back, -30))
    closes = (first_reading.hour * 60 + first_reading.minute + offset) % 1440
    opens = (closes - random.choice((3, 5, 8)) * 60) % 1440
    words = f"{DAYS[0]}-{DAYS[6]} {_clock(opens)}-{_clock(closes)} {zone}"
    begin = change - random.choice((4, 9)) * HOUR
    end = change + 4 * HOUR
    return Hours(words, tuple(_open(info, opens, closes, begin - 24 * HOUR, end + 24 * HOUR))), begin, end


def _clock(minutes: int) -> str:
    return f"{minutes // 60:02}:{minutes % 60:02}"


def _open(
    zone: ZoneInfo, opens: int, closes: int, begin: int, end: int, days: Container[int] = range(7)
) -> list[Interval]:
    """The open times: from the first to the last moment at which the clock's reading is in the range.

    Found by reading the zone's clock every quarter of an hour, which divides every change of it.
    """
    rows: list[Interval] = []
    for moment in range(begin // 900 * 900, end, 900):
        reading = datetime.fromtimestamp(moment, zone)
        minute = reading.hour * 60 + reading.minute
        inside = opens <= minute < closes if opens < closes else minute >= opens or minute < closes
        if not inside or reading.weekday() not in days:
            continue
        if rows and moment - rows[-1][1] <= HOUR:  # A reading that comes twice does not close in between.
            rows[-1] = (rows[-1][0], moment + 900)
        else:
            rows.append((moment, moment + 900))
    return rows
