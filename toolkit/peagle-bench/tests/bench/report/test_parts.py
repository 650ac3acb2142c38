"""A report of several files: a part for each run, nothing compared across runs, every name readable."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from peagle_bench.report import charts
from peagle_bench.report.charts import HALF, LineChart, Mark, Series
from peagle_bench.report.formatting import Look
from peagle_bench.report.markdown import markdown
from peagle_bench.report.merging import parts_of
from peagle_bench.report.page import html_page
from peagle_bench.results.result_file import Results
from tests.bench.report import making
from tests.bench.report.test_page import Outline


def named(results: Results, source: str, workload: str = "HumanEval") -> Results:
    config = {**results.header.config, "workload": {"name": workload}}
    return replace(results, source=source, header=replace(results.header, config=config))


FIRST = named(making.compared(), "results/first.jsonl")
SECOND = named(making.compared(deployments=2), "results/second.jsonl", "held-out code")
FILES = (FIRST, SECOND, making.verified(), making.tuned())


def test_each_run_is_a_part_and_what_was_found_of_its_endpoints_joins_it() -> None:
    parts = parts_of(FILES)
    assert [(part.title, [each.header.command for each in part.files]) for part in parts] == [
        ("first · HumanEval", ["compare", "verify"]),
        ("second · held-out code", ["compare"]),
        ("20261120T135200Z-5f0c (4) · HumanEval", ["tune"]),
    ]


def test_one_run_with_its_checks_is_one_part() -> None:
    assert len(parts_of((making.compared(), making.tuned(), making.verified()))) == 1
    assert len(parts_of((making.tuned(), making.verified()))) == 2


def test_the_page_of_several_runs_has_a_headline_each_and_no_charts_of_two() -> None:
    page = html_page(FILES)
    outline = Outline(page)
    assert outline.text("h1").startswith("3 runs")
    assert "Compare modes only within one run." in outline.text("header")
    ids = Counter(attributes["id"] for _, attributes in outline.seen if "id" in attributes)
    assert {name for name, count in ids.items() if count > 1} == set()
    links = {(attributes["href"] or "").lstrip("#") for attributes in outline.named("a")}
    assert links <= ids.keys()
    for _, attributes in outline.seen:
        assert set((attributes.get("aria-labelledby") or "").split()) <= ids.keys()
    assert "held-out code" not in page.split('id="run-2"')[0].split("<ol")[1].split("</ol>")[1]


def test_the_markdown_of_several_runs_keeps_them_apart() -> None:
    text = markdown(FILES, title="Mine")
    assert text.startswith("### Mine\n\n3 runs. Compare modes only within one run.\n\n#### first · HumanEval")
    assert text.count("#### ") == 3


def test_the_modes_names_do_not_break_where_they_are_read() -> None:
    page = html_page([making.compared()])
    assert not re.search(r">[^<]*(P-EAGLE|EAGLE-3)", page.split("<script")[0].split("</title>")[1])
    assert 'aria-label="P-EAGLE' in page or "P\N{NON-BREAKING HYPHEN}EAGLE" in page


ENDS = st.tuples(st.floats(1, 8), st.floats(0, 220))


@given(st.lists(ENDS, min_size=1, max_size=10))
def test_names_of_lines_never_touch(ends: list[tuple[float, float]]) -> None:
    look = Look("blue", "circle")
    series = tuple(Series(f"arm {n}", look, (Mark(1.0, 30.0), Mark(*end))) for n, end in enumerate(ends))
    lines = LineChart("t", series, "x", "y", (1.0, 8.0)).at(HALF)
    heights = sorted(name.y for name in lines.names)
    assert len(heights) == len(series)
    assert all(b - a >= 15.9 for a, b in pairwise(heights))
    assert lines.top <= heights[0]
    assert heights[-1] <= lines.bottom
    drawn = re.findall(r'<text x="([^"]*)" y="[^"]*" class="name"', lines.__html__())
    assert [float(x) for x in drawn] == [pytest.approx(lines.x.end + 20, abs=0.01)] * len(series)


@pytest.mark.parametrize(
    ("text", "width", "shown"),
    [("P-EAGLE", 100, "P-EAGLE"), ("P-EAGLE tiny-code-p-eagle", 94, "P-EAGLE…-eagle"), ("abcdef", 0, "a…f")],
)
def test_a_long_name_is_shortened_in_its_middle(text: str, width: float, shown: str) -> None:
    assert charts.fitted(text, width) == shown
