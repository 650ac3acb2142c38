"""The one rule of what is withheld."""

from __future__ import annotations

from dataclasses import replace

import pytest

from peagle_bench.load.points import (
    doubt_lines,
    doubted_lines,
    is_late,
    is_short,
    is_withheld,
    late_lines,
    separate_withheld,
)
from peagle_bench.results.records import ClientHealth, Load
from tests.bench.compare.test_notes import FINE, LATE, SLOW, comparison, point

IN_THE_WAY = replace(SLOW, bottleneck=True)
ROW = comparison(1.1, 1.2)


@pytest.mark.parametrize(
    ("client", "withheld", "late"),
    [(FINE, False, False), (LATE, False, True), (IN_THE_WAY, True, False), (SLOW, True, False)],
    ids=["kept up", "late", "bottleneck", "a file that does not tell"],
)
def test_what_a_client_withholds(client: ClientHealth, withheld: bool, late: bool) -> None:
    assert (is_withheld(client), is_late(client)) == (withheld, late)
    result = separate_withheld([point(client)], [ROW])
    assert (result.points == (), result.withheld_points != ()) == (withheld, withheld)
    assert (result.comparisons == (), result.withheld_comparisons != ()) == (withheld, withheld)


def test_a_comparison_stands_where_the_side_was_also_measured_well() -> None:
    result = separate_withheld([point(IN_THE_WAY), point(FINE)], [ROW])
    assert result.comparisons == (ROW,)
    assert result.withheld_points == (point(IN_THE_WAY),)


def test_a_comparison_falls_with_either_side_and_only_at_that_load() -> None:
    other = replace(ROW, load=Load("closed", 8))
    for name in ("p-eagle", "none"):
        result = separate_withheld([replace(point(IN_THE_WAY), arm=name)], [ROW, other])
        assert result.comparisons == (other,)
        assert result.withheld_comparisons == (ROW,)


@pytest.mark.parametrize(
    ("failed", "requests", "doubt"),
    [
        (1, 64, None),
        (2, 64, "2 of 64 requests of p-eagle failed"),
        (2, 200, None),
        (3, 200, "3 of 200 requests of p-eagle failed"),
    ],
)
def test_an_arm_that_failed_more_than_a_hundredth_has_no_verdict(
    failed: int, requests: int, doubt: str | None
) -> None:
    """What fails is no random choice: who loses the prompts on which it is slow looks faster."""
    some = replace(point(FINE), requests=requests, errors={"StreamError": failed})
    (row,) = separate_withheld([some], [ROW]).comparisons
    assert (row.doubt, row.significant) == (doubt, doubt is None)


def test_a_note_is_printed_once_with_all_its_loads() -> None:
    loads = [Load("closed", 1), Load("closed", 8), Load("closed", 32)]
    points = [replace(point(LATE), load=load, arm=arm) for load in loads for arm in ("none", "p-eagle")]
    points[4] = replace(points[4], client=replace(LATE, reason="the client was 77 ms late"))
    (late,) = late_lines(points)
    assert late.startswith("c=1, c=8, c=32: measured latencies may be too long")
    assert late.count("may be too long") == 1
    assert "(none, p-eagle at c=1, c=8; p-eagle at c=32)" in late
    assert late.endswith("the client was 77 ms late (none at c=32)")
    few = replace(ROW, doubt="7 conversations; a verdict needs 8")
    (doubted,) = doubted_lines([replace(few, load=load) for load in loads])
    assert doubted.startswith("c=1, c=8, c=32: no verdict: 7 conversations")


@pytest.mark.parametrize(
    ("requests", "seconds", "short"), [(4, 30.0, True), (100, 0.9, True), (8, 1.0, False)]
)
def test_a_short_window_puts_its_rates_in_doubt_with_the_reason(
    requests: int, seconds: float, short: bool
) -> None:
    measured = replace(point(FINE), requests=requests, seconds=seconds)
    assert is_short(measured) == short
    text = (
        f"c=1: measured rates may be too high: the window is too short: {requests} requests,"
        f" {seconds} seconds (p-eagle)"
    )
    assert doubt_lines([measured]) == ([text] if short else [])
    assert separate_withheld([measured], [ROW]).points == (measured,)  # its requests and latencies hold


def test_nothing_more_is_said_of_a_short_window_that_is_withheld() -> None:
    assert doubt_lines([replace(point(IN_THE_WAY), requests=1)]) == []
