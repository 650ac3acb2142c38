"""The page needs no other file and shows where its figures come from."""

from __future__ import annotations

import re
import sys
from dataclasses import replace
from html.parser import HTMLParser

import pytest

from peagle_bench.report import rendering
from peagle_bench.report.markdown import markdown
from peagle_bench.report.page import html_page
from peagle_bench.results.records import ClientHealth, Interval, Load, PackRecord, SliceRecord
from peagle_bench.results.result_file import Results
from peagle_sm.core.errors import SpecError
from tests.bench.report import making

VOID = {"meta", "circle", "line", "path", "rect"}
ALL = (making.compared(), making.tuned(), making.verified())


class Outline(HTMLParser):
    """Element names, attributes and text; fails where elements do not nest."""

    def __init__(self, page: str) -> None:
        super().__init__(convert_charrefs=True)
        self.open: list[str] = []
        self.seen: list[tuple[str, dict[str, str | None]]] = []
        self.texts: list[tuple[tuple[str, ...], str]] = []
        self.feed(page)
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.seen.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        assert tag in VOID
        self.handle_starttag(tag, attrs)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag, f"</{tag}> closes another element"

    def handle_data(self, data: str) -> None:
        self.texts.append((tuple(self.open), data.replace("\N{NON-BREAKING HYPHEN}", "-")))

    def named(self, tag: str) -> list[dict[str, str | None]]:
        return [attributes for name, attributes in self.seen if name == tag]

    def text(self, *inside: str) -> str:
        """The text inside elements of these names."""
        return " ".join(text for places, text in self.texts if set(inside) <= set(places))


@pytest.fixture(scope="module")
def page() -> str:
    return html_page(ALL)


@pytest.fixture(scope="module")
def outline(page: str) -> Outline:
    return Outline(page)


def test_nothing_is_fetched(page: str, outline: Outline) -> None:
    assert not re.findall(r"https?:|url\(|@import", page)
    assert not outline.named("script")
    for tag, attributes in outline.seen:
        assert not {"src", "srcset", "data", "xlink:href"} & attributes.keys(), tag
        assert (attributes.get("href") or "#").startswith("#")


def test_every_chart_is_told_in_words(outline: Outline) -> None:
    charts = [attributes for attributes in outline.named("svg") if attributes.get("role") == "img"]
    assert len(charts) == len(outline.named("title")) - 1 > 10
    labels = [attributes.get("aria-label") or "" for attributes in charts]
    assert any(label.startswith("output tokens per second, all requests together, by ") for label in labels)
    assert all(re.search(r"\. .*\d", label) for label in labels)
    others = [attributes for attributes in outline.named("svg") if attributes.get("role") != "img"]
    assert all(attributes.get("aria-hidden") == "true" for attributes in others)


def test_the_headline_stands_first(outline: Outline) -> None:
    headline = outline.text("h1").replace("  ", " ").strip()
    assert headline == "P-EAGLE is 1.36x EAGLE-3 [1.29, 1.44] at c=1, in this deployment"
    assert "this deployment only" in outline.text("header")
    order = [tag for tag, _ in outline.seen if tag in ("h1", "h2")]
    assert order[0] == "h1"
    assert order.count("h1") == 1


def test_prompts_answered_alike_and_each_k_are_told() -> None:
    outline = Outline(html_page([making.stand_in()]))
    assert "96 of 96" in outline.text("header")
    assert "identical answers" in outline.text("header")
    (table,) = [part for part in html_page([making.stand_in()]).split("<table") if "per request" in part]
    assert [f">{k}</td>" in table for k in (3, 7)] == [True, True]


def test_a_machine_that_bills_nothing_is_told_by_its_cores() -> None:
    results = making.stand_in()
    arms = tuple(replace(arm, instance_type="ml.c7i.2xlarge") for arm in results.arms)
    header = Outline(html_page([replace(results, arms=arms)])).text("header")
    assert "2 cores of AMD EPYC" in header
    assert "ml." not in header
    assert "ml.g7e.2xlarge" in Outline(html_page([making.compared()])).text("header")


def test_no_text_of_a_file_becomes_markup() -> None:
    """Prompts, answers and names of a file are another's text; autoescape must reach each of them."""
    evil = "<script>alert('1')</script>\" onload=\"alert(1)"
    load = Load("closed", concurrency=1)
    check = replace(
        making.verified().checks[0],
        name=f"check {evil}",
        passed=False,
        summary=f"summary {evil}",
        power=f"power {evil}",
        examples=(f"example {evil}",),
    )
    compared, tuned = making.compared(), making.tuned()
    results = replace(
        compared,
        source=f"lab/{evil}.jsonl",
        checks=(check,),
        packs=(PackRecord(f"pack {evil}", "p-eagle", "none", False, f"figure {evil}", f"why {evil}"),),
        slices=(
            SliceRecord(
                "p-eagle", load, f"label:dimension {evil}", f"value {evil}", 9, 9, Interval(2.5, 2, 3)
            ),
        ),
        points=tuple(replace(point, errors={f"error {evil}": 1}) for point in compared.points),
        fits=tuple(replace(fit, reason=f"reason {evil}") for fit in tuned.fits),
        arms=tuple(replace(arm, price_source=f"price {evil}") for arm in compared.arms),
    )
    page = html_page([results], title=f"title {evil}")
    outline = Outline(page)
    assert not outline.named("script")
    assert not [tag for tag, attributes in outline.seen if "onload" in attributes]
    shown = outline.text("body")
    for word in (
        *("title", "check", "summary", "power", "example", "pack", "figure", "why", "dimension", "value"),
        *("error", "reason", "price"),
    ):
        assert f"{word} {evil}" in shown, word


def test_only_a_page_needs_jinja2(monkeypatch: pytest.MonkeyPatch) -> None:
    rendering._environment.cache_clear()
    monkeypatch.setitem(sys.modules, "jinja2", None)  # as if it were not installed
    assert markdown([making.stand_in()])


def test_stand_ins_are_named_wherever_a_figure_stands() -> None:
    created = making.stand_in()
    measured = replace(created, header=replace(created.header, provenance={"date": "2026-11-20"}))
    page = html_page([measured])
    outline = Outline(page)
    assert "small stand-in weights" in outline.text("head", "title")
    assert "do not apply to a large model" in outline.text("div")
    assert "small stand-in weights" in outline.text("header")
    captions = outline.text("figcaption")
    assert captions.count("small stand-in weights") == len(outline.named("figcaption")) > 0
    assert "synthetic" not in page


def test_stand_ins_and_real_weights_are_not_put_side_by_side() -> None:
    with pytest.raises(SpecError, match="one report must not mix them"):
        html_page([making.compared(), making.stand_in()])


def test_no_file_is_no_report() -> None:
    with pytest.raises(SpecError, match="no results file"):
        html_page([])


def test_figures_of_a_late_client_are_shown_nowhere() -> None:
    results = making.stand_in()
    late = ClientHealth(False, "the client was 40 ms late", 40.0, 1.0, None)
    withheld = replace(
        results, points=tuple(replace(point, client=late, otps=98765.0) for point in results.points)
    )
    shown = html_page([withheld])
    assert "No figures to publish: the client could not keep up" in shown
    assert "98,765" not in shown
    assert "0.98x" not in shown
    assert shown.count("withheld: the client was 40 ms late") == 3


def test_a_late_event_loop_is_said_beside_the_latencies_and_withholds_nothing() -> None:
    results = making.stand_in()
    late = ClientHealth(False, "the client was 40 ms late", 40.0, 0.3, None, bottleneck=False)
    shown = replace(results, points=tuple(replace(point, client=late) for point in results.points))
    outline = Outline(html_page([shown]))
    assert outline.text("h1") == Outline(html_page([results])).text("h1")
    line = "c=1: measured latencies may be too long; rates and ratios are valid: the client was 40 ms late"
    assert f"{line} (no speculation, EAGLE-3, P-EAGLE)" in outline.text("section", "li")
    assert "withheld" not in outline.text("main")
    assert "kept up at 0 of 3 points" in outline.text("section", "p")


def test_wrong_answers_are_said_before_any_speed_up() -> None:
    failed = replace(ALL[2].checks[0], passed=False, examples=("<a> against <b>",))
    verified = replace(ALL[2], checks=(failed, *ALL[2].checks[1:]))
    page = html_page([ALL[0], verified])
    assert page.index('class="banner"') < page.index("<h1>")
    outline = Outline(page)
    assert "Answers are not the target's own" in outline.text("strong")
    assert "<a> against <b>" in outline.text("pre")


def test_a_failed_control_is_said_first() -> None:
    results = making.compared()
    rows = tuple(
        replace(row, ratio=Interval(1.05, 1.02, 1.08)) if row.control else row for row in results.comparisons
    )
    page = html_page([replace(results, comparisons=rows)])
    assert page.index("The A/A control failed") < page.index("<h1>")


def test_a_page_for_a_file_with_nothing_in_it() -> None:
    outline = Outline(html_page([Results(making.header())]))
    assert "The file has no finished load" in outline.text("h1")


def test_an_open_load_and_a_closed_one_have_charts_of_their_own() -> None:
    results = making.compared()
    opened = tuple(
        replace(point, load=replace(point.load, kind="open", concurrency=None, rate_per_s=rate))
        for rate in (0.5, 2.5)
        for point in results.points[:1]
    )
    outline = Outline(html_page([replace(results, points=(*results.points, *opened))]))
    shown = outline.text("svg", "title")
    for loop in ("concurrency", "requests per second, sent"):
        assert f"output tokens per second, all requests together, by {loop}" in shown
    assert "2.5 req/s" in outline.text("th")
