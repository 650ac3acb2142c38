"""Nothing is surer than the comparison that it is a part of: slices, marks, leads and the A/A control."""

from __future__ import annotations

import math
import re
from dataclasses import replace

import pytest

from peagle_bench.load.points import with_doubts
from peagle_bench.report.merging import view_of
from peagle_bench.report.page import html_page
from peagle_bench.report.slices import slices_in, verdict
from peagle_bench.report.tiles import tiles
from peagle_bench.report.verdict import outcome_of
from peagle_bench.results.records import Interval, SliceRecord
from peagle_bench.results.result_file import Results
from tests.bench.report import making


@pytest.mark.parametrize(("conversations", "expected"), [(7, "no verdict"), (8, "slower")])
def test_a_slice_has_the_doubt_of_its_comparison(conversations: int, expected: str) -> None:
    results = making.stand_in()
    row = next(each for each in results.comparisons if not each.control)
    row = replace(row, conversations=conversations)
    slow = Interval(0.8, 0.7, 0.9)
    one = SliceRecord(
        row.faster, row.load, "script", "latin", 20, 20, None, baseline=row.slower, speed_up=slow
    )
    (record,) = slices_in(replace(results, comparisons=(row,), slices=(one,), points=()))
    assert (verdict(record), record.costs_money) == (expected, conversations == 8)


def doubted() -> Results:
    """A run that measured clear differences, of one conversation too few."""
    results = making.compared()
    rows = tuple(replace(row, conversations=7) for row in results.comparisons)
    return replace(results, comparisons=rows)


def test_an_interval_that_is_not_a_number_is_not_significant() -> None:
    assert not Interval(math.nan, math.nan, math.nan).shown


def test_the_control_has_no_verdict_either_on_too_few_conversations() -> None:
    rows = [row for row in with_doubts((), doubted().comparisons) if row.control]
    assert rows
    assert all(outcome_of(row).startswith("no verdict: 7 conversations") for row in rows)


@pytest.mark.parametrize(("slices", "mark"), [((), "solid"), (("a slice",), "<strong>0.8")])
def test_a_page_draws_no_doubted_interval_as_a_significant_one(slices: tuple[str, ...], mark: str) -> None:
    results = doubted()
    row = next(each for each in results.comparisons if not each.control)
    slow = Interval(0.8, 0.7, 0.9)
    records = tuple(
        SliceRecord(row.faster, row.load, "script", name, 20, 20, None, baseline=row.slower, speed_up=slow)
        for name in slices
    )
    sure = replace(results, slices=records, comparisons=making.compared().comparisons)

    def intervals(given: Results) -> str:
        """Return what a page draws of intervals, and what it stresses in its tables."""
        drawn = re.compile(r'<svg[^>]*class="cell".*?</svg>|<td><strong>.*?</td>')
        return " ".join(drawn.findall(html_page([given])))

    assert mark in intervals(sure)
    assert mark not in intervals(replace(results, slices=records))


def test_a_lead_that_no_comparison_shows_is_not_called_one() -> None:
    for given in (doubted(), replace(making.compared(), comparisons=())):
        (lead,) = re.findall(r"Fastest: [^.<]*\.", html_page([given]))
        assert "EAGLE" in lead
        assert "(no verdict)" in lead


def test_a_key_figure_has_the_doubt_of_its_comparison() -> None:
    shown = {tile.name: tile.detail for tile in tiles(view_of([doubted()]))}
    assert "no verdict: 7 conversations" in shown["speed-up over no speculation"]
