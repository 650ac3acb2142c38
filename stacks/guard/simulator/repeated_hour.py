"""Timetables that close at the hour that comes twice when the clocks go back, read apart from the guard."""

from __future__ import annotations

from datetime import UTC, datetime
from random import Random
from zoneinfo import ZoneInfo

from stacks.guard.simulator.timetables import DAYS
from stacks.guard.simulator.traffic import HOUR
from stacks.guard.simulator.worlds import Hours, Interval

CHANGES = (
    ("Europe/Berlin", "2026-10-25T01:00", 60),
    ("America/New_York", "2026-11-01T06:00", 60),
    ("Australia/Lord_Howe", "2026-04-04T15:00", 30),
)
"""(zone, the moment in UTC at which its clocks go back, by how many minutes)."""


def repeated_hour(random: Random) -> tuple[Hours, int, int]:
    """Draw a timetable; return it with the beginning and the end of a world around the change."""
    zone, text, back = random.choice(CHANGES)
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


def _open(zone: ZoneInfo, opens: int, closes: int, begin: int, end: int) -> list[Interval]:
    """The open times: from the first to the last moment at which the clock's reading is in the range.

    Found by reading the zone's clock every quarter of an hour, which divides every change of it.
    """
    found: list[Interval] = []
    for moment in range(begin // 900 * 900, end, 900):
        reading = datetime.fromtimestamp(moment, zone)
        minute = reading.hour * 60 + reading.minute
        inside = opens <= minute < closes if opens < closes else minute >= opens or minute < closes
        if not inside:
            continue
        if found and moment - found[-1][1] <= HOUR:  # A reading that comes twice does not close in between.
            found[-1] = (found[-1][0], moment + 900)
        else:
            found.append((moment, moment + 900))
    return found
