"""Timetables for worlds; their open times are worked out here, apart from the guard's own reading."""

from __future__ import annotations

from datetime import UTC, date, datetime, time, timedelta
from random import Random
from zoneinfo import ZoneInfo

from stacks.guard.simulator.worlds import Hours, Interval

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
    info = ZoneInfo(zone)
    day = datetime.fromtimestamp(begin, UTC).date() - timedelta(days=2)
    found: list[Interval] = []
    while datetime.combine(day, time(), tzinfo=UTC).timestamp() < end + 2 * 86400:
        if first <= day.weekday() <= last:
            on = datetime.combine(day, time(opens, minute), tzinfo=info)
            off = datetime.combine(day, time(closes, minute), tzinfo=info)
            found.append((int(on.timestamp()), int(off.timestamp())))
        day += timedelta(days=1)
    return Hours(text, tuple(found))
