"""A verdict is never stronger than its note: a comparison with a doubt, from the file to every output."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import replace
from html import unescape
from pathlib import Path

import pytest

from peagle_bench.report.costs import cheapest, cost_rows
from peagle_bench.report.merging import view_of
from peagle_bench.report.tiles import tiles
from peagle_bench.report.verdict import verdict
from peagle_bench.results.records import Interval
from peagle_bench.results.result_file import Results
from tests.bench.report import making
from tests.cli.running import run

FASTER = Interval(1.3, 1.2, 1.4)
CLAIMS = re.compile(r"(P-EAGLE|EAGLE-3) is 1\.\d+x|is faster|significant at [1-9]")


def too_short(results: Results) -> Results:
    return replace(results, points=tuple(replace(point, seconds=0.9, requests=4) for point in results.points))


def few_conversations(results: Results) -> Results:
    rows = tuple(replace(row, conversations=7) for row in results.comparisons)
    return replace(results, comparisons=rows)


def failed_control(results: Results) -> Results:
    first = results.comparisons[0]
    control = replace(first, faster=f"{first.slower}-again", control=True)
    arm = replace(
        next(each for each in results.arms if each.name == first.slower), name=control.faster, control=True
    )
    return replace(results, arms=(*results.arms, arm), comparisons=(*results.comparisons, control))


DOUBTS = [
    (too_short, "the window is too short"),
    (few_conversations, "7 conversations; a verdict needs 8"),
    (failed_control, "the A/A control failed"),
]


def text_of(page: str) -> str:
    """Return the words of a page, without its style, script and drawings."""
    page = re.sub(r"<(style|script|svg)\b.*?</\1>", "", page, flags=re.DOTALL)
    words = re.sub(r"<[^>]+>", " ", page).replace("\N{NON-BREAKING HYPHEN}", "-")
    return " ".join(unescape(words).split())


@pytest.mark.parametrize(("doubted", "why"), DOUBTS, ids=["short", "conversations", "control"])
def test_no_output_of_a_doubted_comparison_has_a_verdict(
    tmp_path: Path, doubted: Callable[[Results], Results], why: str
) -> None:
    file = making.write(doubted(making.stand_in(FASTER)), tmp_path / "compare.jsonl")
    page = tmp_path / "report.html"
    data = json.loads(run("report", file, "--html", page, "--format", "json").stdout)
    assert data["headline"].startswith("No verdict on P-EAGLE and EAGLE-3: " + why)
    assert data["gain"] is False
    for text in (
        run("report", file).stdout,
        run("report", file, "--markdown").stdout,
        text_of(page.read_text(encoding="utf-8")),
    ):
        assert "No verdict on P-EAGLE and EAGLE-3: " + why in text
        assert not CLAIMS.search(text)
    solid = re.findall(r'<svg[^>]*class="cell".*?</svg>', page.read_text(encoding="utf-8"))
    assert solid
    # Of the control itself there is a verdict: it failed.
    assert sum('class="solid"' in cell for cell in solid) == (doubted is failed_control)


def test_without_a_doubt_the_same_file_has_its_verdict(tmp_path: Path) -> None:
    file = making.write(making.stand_in(FASTER), tmp_path / "compare.jsonl")
    page = tmp_path / "report.html"
    data = json.loads(run("report", file, "--html", page, "--format", "json").stdout)
    assert data["gain"] is True
    assert CLAIMS.search(text_of(page.read_text(encoding="utf-8")))


def test_the_figures_at_the_top_have_the_doubt_of_their_comparison() -> None:
    (tile,) = [
        tile for tile in tiles(view_of([too_short(making.stand_in(FASTER))])) if "speed-up" in tile.name
    ]
    assert tile.detail.endswith("no verdict: the window is too short")


def test_too_short_a_window_is_never_the_cheapest() -> None:
    results = making.compared()
    one = next(point for point in results.points if "p-eagle" in point.arm and point.load.label == "c=64")
    short = replace(one, requests=4)
    points = tuple(short if point is one else point for point in results.points)
    view = view_of([replace(results, points=points)])
    before, after = (cheapest(cost_rows(view.arms, each)) for each in (results.points, view.points))
    assert before is not None
    assert after is not None
    assert (before.arm.name, before.load) == (one.arm, one.load)
    assert (after.arm.name, after.load) != (one.arm, one.load)


def test_the_headline_of_one_short_run_says_so() -> None:
    results = making.stand_in()
    view = view_of([too_short(replace(results, comparisons=()))])
    assert "rate may be too high: the window is too short" in verdict(view).limits
