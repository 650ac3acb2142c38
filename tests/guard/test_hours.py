"""The timetable: canonical text, midnight, the week's end, and daylight saving both ways."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from peagle_sm.core.spec import hours
from peagle_sm.core.spec.hours import DAYS, parse_hours

OFFICE = "Mon-Fri 08:00-19:00 Europe/Berlin"


def utc(text: str) -> datetime:
    return datetime.fromisoformat(text).replace(tzinfo=UTC)


@pytest.mark.parametrize(
    ("text", "at", "on"),
    [
        (OFFICE, "2026-11-16T06:59:59", False),
        (OFFICE, "2026-11-16T07:00:00", True),
        (OFFICE, "2026-11-16T17:59:59", True),
        (OFFICE, "2026-11-16T18:00:00", False),
        (OFFICE, "2026-11-21T10:00:00", False),
        # In summer the same clock is another moment.
        (OFFICE, "2026-07-06T06:00:00", True),
        (OFFICE, "2026-07-06T17:00:00", False),
        ("Fri-Sun 22:00-02:00 Asia/Tokyo", "2026-11-22T16:59:00", True),  # Monday 01:59, of Sunday's night
        ("Fri-Sun 22:00-02:00 Asia/Tokyo", "2026-11-22T17:00:00", False),
        ("Fri-Sun 22:00-02:00 Asia/Tokyo", "2026-11-19T16:00:00", False),  # Friday 01:00, of Thursday's
        ("08:00-12:00 13:00-24:00 UTC", "2026-11-22T12:30:00", False),
        ("08:00-12:00 13:00-24:00 UTC", "2026-11-22T23:59:00", True),
        ("08:00-12:00 13:00-24:00 UTC", "2026-11-23T00:00:00", False),
        ("Mon Wed 08:00-09:00 Fri 10:00-11:00 UTC", "2026-11-18T08:30:00", True),
        ("Mon Wed 08:00-09:00 Fri 10:00-11:00 UTC", "2026-11-20T08:30:00", False),
        ("Mon Wed 08:00-09:00 Fri 10:00-11:00 UTC", "2026-11-20T10:30:00", True),
    ],
)
def test_on_or_off(text: str, at: str, on: bool) -> None:
    assert hours.is_on(parse_hours(text), utc(at)) is on


@pytest.mark.parametrize(
    ("text", "day", "opens", "closes"),
    [
        # 29 March 2026: 02:00 becomes 03:00 in Berlin, at 01:00 UTC.
        ("Sun 02:30-12:00 Europe/Berlin", "2026-03-29", "2026-03-29T01:00", "2026-03-29T10:00"),
        ("Sun 00:30-02:30 Europe/Berlin", "2026-03-29", "2026-03-28T23:30", "2026-03-29T01:00"),
        ("Sat 20:00-04:00 Europe/Berlin", "2026-03-28", "2026-03-28T19:00", "2026-03-29T02:00"),
        # 25 October 2026: 03:00 becomes 02:00 at 01:00 UTC, so 02:30 comes twice.
        ("Sun 02:30-12:00 Europe/Berlin", "2026-10-25", "2026-10-25T00:30", "2026-10-25T11:00"),
        ("Sun 00:30-02:30 Europe/Berlin", "2026-10-25", "2026-10-24T22:30", "2026-10-25T01:30"),
        ("Sat 20:00-04:00 Europe/Berlin", "2026-10-24", "2026-10-24T18:00", "2026-10-25T03:00"),
        # A closing at the very start of the repeated hour: 02:00 is reached once before the clock goes back.
        ("Sun 00:30-02:00 Europe/Berlin", "2026-10-25", "2026-10-24T22:30", "2026-10-25T00:00"),
        ("Sun 00:30-03:00 Europe/Berlin", "2026-10-25", "2026-10-24T22:30", "2026-10-25T02:00"),
        ("Sat 20:00-02:00 Europe/Berlin", "2026-10-24", "2026-10-24T18:00", "2026-10-25T00:00"),
        # Havana repeats the hour after midnight, Lord Howe half an hour.
        ("Sat 08:00-24:00 America/Havana", "2026-10-31", "2026-10-31T12:00", "2026-11-01T04:00"),
        ("Sun 00:30-01:30 Australia/Lord_Howe", "2026-04-04", "2026-04-04T13:30", "2026-04-04T14:30"),
        ("Sun 00:30-01:45 Australia/Lord_Howe", "2026-04-04", "2026-04-04T13:30", "2026-04-04T15:15"),
    ],
)
def test_daylight_saving(text: str, day: str, opens: str, closes: str) -> None:
    table = parse_hours(text)
    start = hours.next_opening(table, utc(day) - timedelta(hours=6))
    assert start == utc(opens)
    assert start is not None
    assert hours.next_closing(table, start) == utc(closes)
    assert hours.closing(table, utc(closes)) == utc(closes)


def test_a_range_inside_the_hour_that_is_left_out_never_opens_that_day() -> None:
    table = parse_hours("Sun 02:10-02:50 Europe/Berlin")
    assert hours.next_opening(table, utc("2026-03-28T12:00")) == utc("2026-04-05T00:10")


def test_touching_ranges_are_one_open_time() -> None:
    table = parse_hours("Mon 08:00-24:00 Tue 00:00-12:00 UTC")
    assert hours.opening(table, utc("2026-11-17T11:00")) == utc("2026-11-16T08:00")
    assert hours.next_closing(table, utc("2026-11-16T09:00")) == utc("2026-11-17T12:00")


def test_a_timetable_that_never_closes() -> None:
    table = parse_hours("00:00-24:00 UTC")
    now = utc("2026-11-17T11:00")
    assert hours.is_on(table, now)
    assert hours.next_closing(table, now) is None
    assert hours.closing(table, now) is None


_CLOCK = st.integers(0, 1439).map(lambda minutes: f"{minutes // 60:02}:{minutes % 60:02}")
_DAYS = st.sets(st.sampled_from(DAYS), min_size=1)
_ZONES = st.sampled_from(["Europe/Berlin", "America/New_York", "Asia/Kolkata", "Australia/Lord_Howe", "UTC"])


_CHANGES = {
    "Europe/Berlin": "2026-10-25T01:00",
    "America/New_York": "2026-11-01T06:00",
    "America/Havana": "2026-11-01T05:00",
    "Australia/Lord_Howe": "2026-04-04T15:00",
}


@example("Europe/Berlin", "00:30", "02:00", -30)
@given(st.sampled_from(sorted(_CHANGES)), _CLOCK, _CLOCK, st.integers(-180, 180))
def test_in_autumn_it_is_open_outside_its_range_only_if_the_clock_reads_inside_again(
    zone: str, start: str, end: str, minute: int
) -> None:
    if start >= end:
        return
    table = parse_hours(f"{start}-{end} {zone}")
    at = utc(_CHANGES[zone]) + timedelta(minutes=minute)

    def reads_inside(moment: datetime) -> bool:
        return start <= f"{moment.astimezone(ZoneInfo(table.zone)):%H:%M}" < end

    if reads_inside(at):
        assert hours.is_on(table, at)
    elif hours.is_on(table, at):
        assert any(reads_inside(at + timedelta(minutes=later)) for later in range(1, 60))


@given(_DAYS, _CLOCK, _CLOCK, _ZONES, st.integers(0, 366 * 24 * 60))
def test_the_toolkits_canonical_text_means_the_same_here(
    days: set[str], start: str, end: str, zone: str, minute: int
) -> None:
    if start == end:
        return
    written = parse_hours(f"{','.join(days)} {start}-{end} {zone}")
    table = parse_hours(str(written))
    at = utc("2026-01-01T00:00") + timedelta(minutes=minute)
    local = at.astimezone(ZoneInfo(zone))
    clock = local.hour * 60 + local.minute
    yesterday = written.days[(local.weekday() - 1) % 7]
    today = written.days[local.weekday()]
    expected = any(span.start <= clock < span.end for span in today)
    expected |= any(span.start <= clock + 24 * 60 < span.end for span in yesterday)
    # Within a day of a change of the offset the clock jumps; those days are the tests above.
    day = timedelta(days=1)
    if len({(local + shift).utcoffset() for shift in (-day, day * 0, day)}) == 1:
        assert hours.is_on(table, at) is expected
    opened = hours.opening(table, at)
    assert (opened is not None) is hours.is_on(table, at)
    assert opened is None or opened <= at
