from __future__ import annotations

from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from peagle_sm.cli.terminal import parse_duration, render_fields, render_table
from peagle_sm.core.words import elapsed, relative, usd
from tests.cli.samples import NOW


@pytest.mark.parametrize(
    ("seconds", "text"), [(0, "0s"), (59.9, "59s"), (187, "3m07s"), (7500, "2h05m"), (-1, "0s")]
)
def test_elapsed(seconds: float, text: str) -> None:
    assert elapsed(seconds) == text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "now"),
        (-29, "now"),
        (31, "in 1 min"),
        (-180, "3 min ago"),
        (7800, "in 2 h 10 min"),
        (3600, "in 1 h"),
        (3599, "in 1 h"),
        (356_400, "in 4 d 3 h"),
        (-86_400, "1 d ago"),
        (86_430, "in 1 d"),
    ],
)
def test_a_time_relative_to_now(seconds: int, text: str) -> None:
    assert relative(NOW + timedelta(seconds=seconds), NOW) == text


@pytest.mark.parametrize(("amount", "text"), [(None, "unknown"), (0.0, "0.00 USD"), (1234.5, "1,234.50 USD")])
def test_usd_never_takes_unknown_for_free(amount: float | None, text: str) -> None:
    assert usd(amount) == text


@pytest.mark.parametrize(
    ("text", "seconds"), [("90s", 90), ("45m", 2700), ("2h", 7200), ("1h30m", 5400), (" 1 D ", 86400)]
)
def test_a_duration(text: str, seconds: float) -> None:
    assert parse_duration(text) == seconds


@pytest.mark.parametrize("text", ["", "2", "h", "-2h", "0s", "2h5", "2 weeks"])
def test_what_is_no_duration_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"is not a duration|is zero"):
        parse_duration(text)


@given(st.integers(1, 10**6))
def test_elapsed_reads_back_to_the_minute(seconds: int) -> None:
    assert abs(parse_duration(elapsed(seconds)) - seconds) < 60


def test_a_table_is_aligned_and_has_no_trailing_spaces() -> None:
    table = render_table(("name", "usd"), [("a", "1.00"), ("longer", "12.00")], right=("usd",))
    assert table == "NAME      USD\na        1.00\nlonger  12.00"


def test_fields_indent_further_lines() -> None:
    assert render_fields([("a", "one\ntwo"), ("long", "x")]) == "a     one\n      two\nlong  x"
