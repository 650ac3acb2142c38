"""How fast: output tokens a second over the loads. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import groupby

from peagle_sm.core.display.markup import join, tag
from peagle_sm.measure.records import Load
from peagle_sm.measure.report.frame import HALF
from peagle_sm.measure.report.over_load import KINDS, Figure, charts, pivot, values
from peagle_sm.measure.report.section import Section, doubts, grid, pair
from peagle_sm.measure.report.view import View
from peagle_sm.measure.withholding import short_lines

OTPS = Figure("otps", "output tokens a second, all requests together", lambda point: point.otps)
EACH = Figure("each", "output tokens a second, one request", lambda point: point.otps_per_request)
_CAPTIONS = {
    "otps": "All requests together, output tokens a second",
    "each": "One request, output tokens a second",
}


def throughput(view: View) -> Section | None:
    """OTPS by load: of all requests together, and of one request on its own."""
    if not view.points:
        return None
    alone = all(point.load.concurrency == 1 for point in view.points)  # then both figures are one
    figures = (OTPS,) if alone else (OTPS, EACH)
    drawn = [chart for figure in figures if (chart := charts(view, figure, HALF))]
    tables = [pivot(view, figure, _CAPTIONS[figure.id]) for figure in figures]
    if len(drawn) == len(tables) == 1:
        body = pair(drawn[0], tables[0])
    else:
        body = join(grid(*drawn) if drawn else None, tag("div", *tables, class_="multiples"))
    return Section("throughput", "Throughput", _leaders(view), join(doubts(view, short_lines), body))


def _leaders(view: View) -> str:
    """Who wrote most at which loads; that a gap is more than chance is for the next section to say."""
    best: list[tuple[str, Load]] = []
    for load in (load for kind in KINDS for load in view.loads(kind)):
        rates = {
            arm.name: v[0]
            for arm in view.arms
            if not arm.control and (v := values(view, OTPS, arm.name, load))
        }
        if len(rates) > 1:
            best.append((_first(view, load, rates), load))
    if not best:
        return ""
    runs = [
        (name, [load.label for _, load in group]) for name, group in groupby(best, key=lambda one: one[0])
    ]
    parts = [
        f"{name} at {labels[0] if len(labels) == 1 else f'{labels[0]} to {labels[-1]}'}"
        for name, labels in runs
    ]
    return "Fastest: " + ", then ".join(parts) + "."


def _first(view: View, load: Load, rates: Mapping[str, float]) -> str:
    """The fastest arm, and the next where a comparison tells no difference between the two."""
    first, second = sorted(rates, key=lambda name: -rates[name])[:2]
    alike = any(
        {row.faster, row.slower} == {first, second} and row.load == load and not row.ratio.shown
        for row in view.comparisons
    )
    if alike:
        return f"{view.label(first)} or {view.label(second)} (no difference shown)"
    return view.label(first)
