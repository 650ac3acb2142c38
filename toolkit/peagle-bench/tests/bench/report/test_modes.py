"""One row for each mode: against none, against the best other mode, and what is the same."""

from __future__ import annotations

from dataclasses import replace

import pytest

from peagle_bench.report.merging import view_of
from peagle_bench.report.modes import data, mode_rows, modes
from peagle_bench.report.page import html_page
from peagle_bench.report.view import View
from peagle_bench.results.records import Interval
from peagle_sm.cli.terminal import column_widths
from tests.bench.report.making import compared


def at_one(view: View) -> View:
    """The load of one request alone, as most comparisons have it."""
    points = tuple(point for point in view.points if point.load.concurrency == 1)
    rows = tuple(row for row in view.comparisons if row.load.concurrency == 1)
    return replace(view, points=points, comparisons=rows)


def test_each_mode_has_its_ratio_over_none_and_over_the_best_other() -> None:
    rows = {row.mode: row for row in mode_rows(view_of([compared()])) if row.load.concurrency == 1}
    assert list(rows) == ["none", "eagle3", "p-eagle"]
    assert {mode: row.best_other for mode, row in rows.items()} == {
        "none": rows["p-eagle"].arm,
        "eagle3": rows["p-eagle"].arm,
        "p-eagle": rows["eagle3"].arm,
    }
    fast, slow, plain = rows["p-eagle"], rows["eagle3"], rows["none"]
    assert plain.over_none is None
    assert fast.over_none is not None
    assert fast.over_best_other is not None
    assert slow.over_best_other is not None
    assert slow.over_best_other.value == pytest.approx(1 / fast.over_best_other.value)
    assert slow.over_best_other.low == pytest.approx(1 / fast.over_best_other.high)
    assert slow.over_best_other.low < slow.over_best_other.value < slow.over_best_other.high


def test_the_table_fits_80_columns_and_names_the_fastest() -> None:
    table = modes(at_one(view_of([compared()])))
    assert table is not None
    assert table.heads == (
        *("mode", "OTPS", "TTFT ms", "accepted", "over none", "over best other", "same", "USD/1M"),
    )
    assert [row[0] for row in table.rows] == ["none", "eagle3=3", "p-eagle=7"]
    assert [row[6] for row in table.rows][1:] == ["96/96", "96/96"]
    assert "p-eagle=7, then eagle3=3" in table.title
    lines = [table.heads, *table.rows]
    widths = column_widths(lines, [head in table.right for head in table.heads], 80)
    assert widths is not None
    assert sum(widths) + 2 * (len(widths) - 1) <= 80


def test_a_ratio_without_a_verdict_is_marked() -> None:
    view = at_one(view_of([compared()]))
    doubted = replace(view, comparisons=tuple(replace(row, doubt="too few") for row in view.comparisons))
    table = modes(doubted)
    assert table is not None
    assert "?: no verdict" in table.title
    assert all(row[4].endswith("?") for row in table.rows[1:])


def test_no_mode_is_named_the_fastest_if_the_interval_over_the_next_includes_1() -> None:
    view = at_one(view_of([compared()]))
    wide = tuple(
        replace(row, ratio=Interval(row.ratio.value, 0.9, 2 * row.ratio.high)) for row in view.comparisons
    )
    table = modes(replace(view, comparisons=wide))
    assert table is not None
    assert "p-eagle=7 or eagle3=3, undecided" in table.title


def test_deployments_of_a_mode_are_one_row() -> None:
    results = compared()
    plain = next(arm for arm in results.arms if arm.mode == "none")
    second = replace(plain, name=f"{plain.name}@2", deployment="d2")
    points = [point for point in results.points if point.arm == plain.name and point.load.concurrency == 1]
    slower = tuple(replace(point, arm=second.name, otps=point.otps / 2) for point in points)
    both = replace(results, arms=(*results.arms, second), points=(*results.points, *slower))
    (row,) = [row for row in mode_rows(at_one(view_of([both]))) if row.mode == "none"]
    assert row.otps == pytest.approx(0.75 * points[0].otps)


def test_modes_without_none_are_compared_with_each_other_alone() -> None:
    results = compared()
    plain = next(arm.name for arm in results.arms if arm.mode == "none")
    rows = tuple(row for row in results.comparisons if plain not in (row.faster, row.slower))
    table = modes(view_of([replace(results, comparisons=rows)]))
    assert table is not None
    assert "over none" not in table.heads
    assert "same" not in table.heads
    assert "over best other" in table.heads


def test_the_page_and_the_json_have_the_rows() -> None:
    page = html_page([compared()])
    assert 'id="modes"' in page
    assert "over best other" in page
    rows = data(view_of([compared()]))
    assert {row["mode"] for row in rows} == {"none", "eagle3", "p-eagle"}
    assert all(row["usd_per_million_tokens"] > 0 for row in rows)
