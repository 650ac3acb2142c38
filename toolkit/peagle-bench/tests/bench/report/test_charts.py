"""Scales, ticks, labels and figures: the small parts that make a chart right or wrong."""

from __future__ import annotations

import re
from xml.etree import ElementTree

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from peagle_bench.report import formatting
from peagle_bench.report.charts import (
    HALF,
    AxisHead,
    Bar,
    BarChart,
    ChartFigure,
    IntervalAxis,
    IntervalCell,
    LineChart,
    Mark,
    Series,
    Size,
    decade_ticks,
    nice_ticks,
)
from peagle_bench.report.formatting import Look
from peagle_bench.report.page import html_page
from peagle_bench.report.rendering import Rendered
from peagle_bench.results.records import Interval
from tests.bench.report import making


def svg(it: Rendered) -> str:
    """What a page shows of it."""
    return it.__html__()


VALUES = st.floats(min_value=1e-3, max_value=1e6, allow_nan=False)


@given(VALUES, VALUES)
@example(999_999.9999999999, 1_000_000.0)
def test_ticks_enclose_the_values_and_are_few(a: float, b: float) -> None:
    low, high = sorted((a, b))
    ticks = nice_ticks(low, high)
    assert ticks[0] <= low * (1 + 1e-6)
    assert ticks[-1] >= high * (1 - 1e-6)
    assert 2 <= len(ticks) <= 12
    decades = decade_ticks(low, high)
    assert decades[0] <= low * 1.001
    assert decades[-1] >= high * 0.999


def test_an_interval_that_holds_one_is_hollow() -> None:
    shown, open_ = Interval(1.3, 1.2, 1.4), Interval(1.01, 0.97, 1.05)
    axis = IntervalAxis.over([shown, open_])
    look = Look("blue", "circle")
    assert 'class="solid"' in svg(IntervalCell(axis, shown, look))
    assert 'class="hollow"' in svg(IntervalCell(axis, open_, look))
    assert 'class="hollow"' in svg(IntervalCell(axis, shown, look, doubtful=True))


def drawn(**more: object) -> str:
    look = Look("blue", "circle")
    series = (
        Series("long", look, tuple(Mark(float(x), 100.0 / x, 90.0 / x, 110.0 / x) for x in (1, 2, 4, 8))),
        Series("short", Look("orange", "square"), (Mark(1.0, 50.0), Mark(2.0, 20.0))),
    )
    chart = LineChart("t", series, "x", "y", (1.0, 2.0, 4.0, 8.0), **more)  # type: ignore[arg-type]
    return svg(chart.at(HALF))


@pytest.mark.parametrize("more", [{}, {"x_log": True}, {"y_log": True}, {"y_zero": False}])
def test_all_of_a_chart_lies_inside_its_frame(more: dict[str, bool]) -> None:
    text = drawn(**more)
    places = [float(value) for value in re.findall(r' (?:x|cx|x1|x2)="([-\d.]+)"', text)]
    heights = [float(value) for value in re.findall(r' (?:y|cy|y1|y2)="([-\d.]+)"', text)]
    assert min(places) >= 0
    assert max(places) <= HALF.width
    assert min(heights) >= 0
    assert max(heights) <= HALF.height
    assert text.count('class="whisker"') == 4


def test_a_chart_is_described_by_its_values() -> None:
    look = Look("blue", "circle")
    short = Series("P-EAGLE", look, (Mark(1.0, 0.97), Mark(2.0, 0.8), Mark(3.0, 0.5)))
    long = Series("loss", look, tuple(Mark(float(step), 3.0 / step) for step in range(1, 101)))
    chart = LineChart("t", (short,), "x", "y", (1.0, 3.0), shares=True)
    assert chart.description == "P-EAGLE: 97% at 1, 80% at 2, 50% at 3"
    assert LineChart("t", (long,), "x", "y", (1.0, 100.0)).description == "loss: 3.00 at 1, 0.03 at 100"
    assert BarChart("t", (Bar("a", look, 163.2),), "x").description == "a: 163"
    assert 'aria-label="t. a: 163"' in svg(BarChart("t", (Bar("a", look, 163.2),), "x").at(HALF))


@pytest.mark.parametrize(
    ("value", "text"),
    [(None, "–"), (0.0, "0.00"), (3.9412, "3.94"), (97.31, "97.3"), (1167.4, "1,167"), (0.0421, "0.0421")],  # noqa: RUF001
)
def test_figures_keep_the_digits_that_count(value: float | None, text: str) -> None:
    assert formatting.number(value) == text


@pytest.mark.parametrize(
    ("value", "text"),
    [(None, "–"), (0.0077, "0.0077"), (0.43, "0.43"), (12.4, "12.40"), (1250.0, "1,250")],  # noqa: RUF001
)
def test_money(value: float | None, text: str) -> None:
    assert formatting.usd(value) == text


def test_names_that_look_like_markup_stay_text_in_every_chart() -> None:
    evil = "</svg><script>alert('1')</script>\""
    look = Look("blue", "circle")
    marks = (Mark(1.0, 5.0), Mark(2.0, 9.0))
    guides = ((2.0, evil, look),)
    for chart in (
        LineChart(evil, (Series(evil, look, marks),), evil, evil, (1.0, 2.0), guides=guides, watermark=evil),
        BarChart(evil, (Bar(evil, look, 1.0),), evil, watermark=evil),
    ):
        text = svg(ChartFigure(chart, Size(2000, 400)))
        root = ElementTree.fromstring(text)
        assert not [each for each in root.iter() if each.tag == "script"]
        assert evil in "".join(root.itertext())
    head = ElementTree.fromstring(
        svg(AxisHead(IntervalAxis.over([Interval(1.3, 1.2, 1.4)]), evil, (evil, evil)))
    )
    assert {each.tag for each in head.iter()} == {"svg", "text"}


def titles(drawing: str) -> list[str]:
    return re.findall(r'<text[^>]*class="axis"[^>]*>([^<]*)</text>', drawing)


@pytest.mark.parametrize("sides", [None, ("slower", "faster")])
def test_the_axis_of_intervals_has_its_title_within_the_drawing(sides: tuple[str, str] | None) -> None:
    head = svg(AxisHead(IntervalAxis.over([Interval(1.3, 1.2, 1.4)]), "speed-up", sides))
    assert titles(head) == ["speed-up (log)"]
    _, top, _, height = (float(value) for value in re.search(r'viewBox="([^"]+)"', head)[1].split())  # type: ignore[index]
    for y in re.findall(r' y="([-\d.]+)"', head):
        assert top + 12 <= float(y) <= top + height


def test_every_chart_of_a_report_has_the_titles_of_its_axes() -> None:
    page = html_page([making.compared(), making.tuned()], title="t")
    charts = re.findall(r'<svg[^>]*class="chart".*?</svg>', page, flags=re.DOTALL)
    assert len(charts) > 10
    assert {len(titles(chart)) for chart in charts} == {2}
    heads = re.findall(r'<th[^>]*><svg[^>]*class="cell.*?</svg>', page, flags=re.DOTALL)
    assert heads
    assert all(len(titles(head)) == 1 for head in heads)
