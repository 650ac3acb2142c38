"""How long one request waits: first token, tokens after it, gaps, the whole answer. Pure."""

from __future__ import annotations

from collections.abc import Callable

from peagle_sm.core.display.markup import Content, Safe, join, tag
from peagle_sm.measure.records import Percentiles, PointRecord
from peagle_sm.measure.report import words
from peagle_sm.measure.report.frame import HALF
from peagle_sm.measure.report.over_load import KINDS, Figure, charts, pivot
from peagle_sm.measure.report.section import Section, arm_cell, doubts, folded, grid, table
from peagle_sm.measure.report.view import View
from peagle_sm.measure.withholding import late_lines

Part = Callable[[Percentiles], float]


def _of(name: str, part: Part) -> Callable[[PointRecord], float | None]:
    def value(point: PointRecord) -> float | None:
        found: Percentiles | None = getattr(point, name)
        return None if found is None else part(found)

    return value


FIGURES = (
    Figure("ttft", "time to first token, p95, ms", _of("ttft_ms", lambda p: p.p95)),
    Figure("tpot", "time per output token, p50, ms", _of("tpot_ms", lambda p: p.p50)),
    Figure("itl", "gap between chunks (ITL), p99, ms", _of("itl_ms", lambda p: p.p99)),
    Figure("e2e", "whole answer, p95, ms", _of("e2e_ms", lambda p: p.p95)),
)
_COLUMNS = (("TTFT", "ttft_ms"), ("TPOT", "tpot_ms"), ("ITL", "itl_ms"), ("E2E", "e2e_ms"))


def latency(view: View) -> Section | None:
    """Four small charts, the share of requests within the objective, and every percentile."""
    if not any(figure.value(point) is not None for figure in FIGURES for point in view.points):
        return None
    drawn = [chart for figure in FIGURES if (chart := charts(view, figure, HALF))]
    every = _percentiles(view)
    parts = (
        [grid(*drawn), _goodput(view), folded("Every percentile", every)]
        if drawn
        else [every, _goodput(view)]
    )
    return Section("latency", "Latency", _lead(view), join(doubts(view, late_lines), *parts))


def _lead(view: View) -> str:
    said = "Lower is better."
    if any(point.itl_ms for point in view.points):
        said += (
            " A chunk may hold several tokens when speculating, so gaps between chunks grow while the time"
            " per token falls."
        )
    elif not any(point.ttft_ms for point in view.points):
        said += " Answers were not streamed, so there is only the time of the whole answer."
    return said


def _goodput(view: View) -> Safe | None:
    asked = {
        (p.goodput.ttft_ms, p.goodput.tpot_ms, p.goodput.e2e_ms) for p in view.points if p.goodput is not None
    }
    if not asked:
        return None
    names = ("TTFT", "TPOT", "end to end")
    objectives = " or ".join(
        ", ".join(
            f"{name} up to {limit:g} ms" for name, limit in zip(names, one, strict=True) if limit is not None
        )
        for one in sorted(asked, key=str)
    )
    figure = Figure("goodput", "within", lambda point: point.goodput.share if point.goodput else None)
    caption = f"Requests within the objective ({objectives}), errors counted as missed"
    return tag("div", pivot(view, figure, caption, words.share), class_="solo")


def _percentiles(view: View) -> Safe:
    columns = [(head, name) for head, name in _COLUMNS if any(getattr(one, name) for one in view.points)]
    heads: list[Content] = ["load", "arm"]
    heads += [f"{head} {part}" for head, _ in columns for part in ("p50", "p95", "p99")]
    rows: list[list[Content]] = []
    for load in (load for kind in KINDS for load in view.loads(kind)):
        for arm in view.arms:
            for point in view.measured(arm.name, load):
                cells: list[Content] = [load.label, arm_cell(view, arm.name)]
                for _, name in columns:
                    found: Percentiles | None = getattr(point, name)
                    cells += [
                        words.number(getattr(found, p) if found else None) for p in ("p50", "p95", "p99")
                    ]
                rows.append(cells)
    return table(heads, rows, caption="Milliseconds", words=(0, 1))
