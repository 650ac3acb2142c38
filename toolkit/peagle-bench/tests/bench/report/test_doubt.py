"""Nothing is surer than the comparison that it is a part of: marks, leads and the A/A control."""

from __future__ import annotations

import math
import re
from dataclasses import replace

from peagle_bench.load.points import with_doubts
from peagle_bench.report.merging import view_of
from peagle_bench.report.page import html_page
from peagle_bench.report.tiles import tiles
from peagle_bench.report.verdict import outcome_of
from peagle_bench.results.records import Interval
from peagle_bench.results.result_file import Results
from tests.bench.report import making


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


def test_a_page_draws_no_doubted_interval_as_a_significant_one() -> None:
    def intervals(results: Results) -> str:
        """Return what a page draws of intervals, and what it stresses in its tables."""
        drawn = re.compile(r'<svg[^>]*class="cell".*?</svg>|<td><strong>.*?</td>')
        return " ".join(drawn.findall(html_page([results])))

    assert "solid" in intervals(making.compared())
    assert "solid" not in intervals(doubted())


def test_a_lead_that_no_comparison_shows_is_not_called_one() -> None:
    for given in (doubted(), replace(making.compared(), comparisons=())):
        (lead,) = re.findall(r"Fastest: [^.<]*\.", html_page([given]))
        assert "EAGLE" in lead
        assert "(no verdict)" in lead


def test_a_key_figure_has_the_doubt_of_its_comparison() -> None:
    shown = {tile.name: tile.detail for tile in tiles(view_of([doubted()]))}
    assert "no verdict: 7 conversations" in shown["speed-up over no speculation"]
