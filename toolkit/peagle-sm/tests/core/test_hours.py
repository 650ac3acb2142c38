"""The timetable: what people write, what the guard reads, and what is refused in which words."""

from __future__ import annotations

from contextlib import suppress
from itertools import pairwise

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from peagle_sm.core.spec.endpoint_spec import parse_spec
from peagle_sm.core.spec.hours import DAY_MINUTES, DAYS, HoursError, Span, parse_hours, time_zones

WRITTEN = [
    ("Mon-Fri 08:00-19:00 Europe/Berlin", "Mon-Fri 08:00-19:00 Europe/Berlin"),
    (
        "mon,WED, friday 8:00-12:00,13:00-18:00 europe/berlin",
        "Mon Wed Fri 08:00-12:00 13:00-18:00 Europe/Berlin",
    ),
    ("Mon-Thu 08:00-19:00; Fri 08:00-15:00 UTC", "Mon-Thu 08:00-19:00 Fri 08:00-15:00 UTC"),
    ("Fri-Mon 22:00-02:00 Asia/Tokyo", "Mon Fri-Sun 22:00-02:00 Asia/Tokyo"),
    ("Mon \u2013 Fri 08:00 \u2013 19:00 Etc/GMT+1", "Mon-Fri 08:00-19:00 Etc/GMT+1"),
    ("00:00-24:00 America/Argentina/Buenos_Aires", "Mon-Sun 00:00-24:00 America/Argentina/Buenos_Aires"),
    ("Sat 13:00-14:00 09:00-10:00 UTC", "Sat 09:00-10:00 13:00-14:00 UTC"),
    ("Tue 08:00-09:00 Mon 08:00-09:00 UTC", "Mon-Tue 08:00-09:00 UTC"),
]
REFUSED = [
    ("", "a timetable such as 'Mon-Fri 08:00-19:00 Europe/Berlin'"),
    ("Mon-Fri 08:00-19:00", "a time zone such as Europe/Berlin or UTC at the end"),
    ("Mon-Fri 08:00-19:00 Europe/Berln", "an IANA time zone, perhaps Europe/Berlin (found 'Europe/Berln')"),
    ("Mon-Fri 08:00-19:00 Nowhere/Land9", "an IANA time zone, such as Europe/Berlin or UTC"),
    ("Mon-Fri Europe/Berlin", "times such as 08:00-19:00 before the time zone"),
    ("Mon 08:00-25:00 UTC", "times from 00:00 to 24:00 (found '08:00-25:00')"),
    ("Mon 24:00-01:00 UTC", "times from 00:00 to 24:00 (found '24:00-01:00')"),
    ("Mon 08:60-09:00 UTC", "times from 00:00 to 24:00 (found '08:60-09:00')"),
    ("Mon 08:00-08:00 UTC", "different times (found '08:00-08:00'); 00:00-24:00 is all day"),
    ("Mon 8-9 UTC", "days such as Mon-Fri, times such as 08:00-19:00, and a time zone (found '8-9')"),
    ("Mondo 08:00-09:00 UTC", "days Mon, Tue, Wed, Thu, Fri, Sat, Sun (found 'Mondo')"),
    ("Mon-Fri", "a time zone such as Europe/Berlin or UTC at the end"),
    ("Xyz 08:00-09:00 UTC", "days Mon, Tue, Wed, Thu, Fri, Sat, Sun (found 'Xyz')"),
    ("Mon 08:00-09:00 Mon 10:00-11:00 UTC", "each day only once (found Mon twice)"),
    ("Mon 08:00-12:00 11:00-13:00 UTC", "times that do not overlap (found 08:00-12:00 and 11:00-13:00)"),
]


@pytest.mark.parametrize(("written", "canonical"), WRITTEN)
def test_what_people_write_becomes_one_text(written: str, canonical: str) -> None:
    assert str(parse_hours(written)) == canonical
    assert parse_spec(f"name: a\nmodel: tiny-code\nhours: '{written}'").hours == canonical


@pytest.mark.parametrize(("written", "said"), REFUSED)
def test_what_is_no_timetable_is_told_what_is_allowed(written: str, said: str) -> None:
    with pytest.raises(HoursError) as caught:
        parse_hours(written)
    assert said in str(caught.value)


def test_a_timetable_that_no_tag_can_hold_is_refused() -> None:
    ranges = " ".join(f"{hour:02d}:00-{hour:02d}:30" for hour in range(23))
    with pytest.raises(HoursError, match="a timetable of at most"):
        parse_hours(f"{ranges} UTC")


def test_the_zones_are_those_that_an_operator_names() -> None:
    assert {"Europe/Berlin", "America/New_York", "UTC"} <= set(time_zones())


@st.composite
def _spans(draw: st.DrawFn) -> tuple[Span, ...]:
    edges = sorted(draw(st.sets(st.integers(0, DAY_MINUTES), min_size=2, max_size=6)))
    edges = edges[: len(edges) // 2 * 2]
    spans = [Span(start, end) for start, end in zip(edges[::2], edges[1::2], strict=True)]
    last = spans[-1]
    over = draw(st.integers(0, last.start)) if last.start else 0
    if 0 < over < last.start and draw(st.booleans()):
        spans[-1] = Span(last.start, DAY_MINUTES + over)
    return tuple(spans)


@given(
    week=st.lists(st.one_of(st.just(()), _spans()), min_size=7, max_size=7).filter(any),
    zone=st.sampled_from(time_zones()),
)
def test_the_canonical_text_means_the_same_and_stands_in_a_tag(
    week: list[tuple[Span, ...]], zone: str
) -> None:
    words = [f"{DAYS[day]} {','.join(map(str, spans))}" for day, spans in enumerate(week) if spans]
    try:
        hours = parse_hours(f"{', '.join(words)} {zone}")
    except HoursError:
        assume(False)  # too long for a tag
        raise
    text = str(hours)
    assert parse_hours(text) == hours
    assert str(parse_hours(text)) == text
    assert hours.days == tuple(week)
    assert len(text) <= 256
    assert "," not in text
    assert all(one.end <= other.start for spans in hours.days for one, other in pairwise(spans))


@given(st.text("MonTueFrSaSu0123456789:-, /EuropBlin", max_size=60))
def test_any_text_is_a_timetable_or_is_refused_in_words(text: str) -> None:
    with suppress(HoursError):
        hours = parse_hours(text)
        assert parse_hours(str(hours)) == hours
