"""How much of each draft was kept: acceptance length, and survival by position. Pure."""

from __future__ import annotations

from peagle_sm.core.display.markup import Content, tag
from peagle_sm.measure.records import Acceptance, PointRecord
from peagle_sm.measure.report import words
from peagle_sm.measure.report.frame import both
from peagle_sm.measure.report.line_chart import LineChart, Mark, Series
from peagle_sm.measure.report.over_load import KINDS, Figure, pivot
from peagle_sm.measure.report.section import Section, arm_cell, pair, table
from peagle_sm.measure.report.view import View

_SOURCES = {
    "per-request": "each request's own figures",
    "metrics": "the engine's counters",
    "cloudwatch": "the engine's log in CloudWatch",
}


def acceptance(view: View) -> Section | None:
    """Survival by position at the least load that has it, and lengths at every load."""
    shown = _first(view)
    if not shown:
        return None
    depth = max(len(found.survival) for _, found in shown)
    chart = LineChart(
        title="Share of drafts accepted up to each position",
        description=". ".join(
            f"{view.label(point.arm)}: " + ", ".join(words.share(s) for s in found.survival)
            for point, found in shown
        ),
        series=tuple(
            Series(
                view.label(point.arm),
                view.look(point.arm),
                tuple(Mark(float(at), share) for at, share in enumerate(found.survival, start=1)),
            )
            for point, found in shown
        ),
        x_title="position in the draft",
        y_title=f"drafts accepted up to this position, {shown[0][0].load.label}",
        x_ticks=tuple(float(at) for at in range(1, max(depth, 2) + 1)),
        y_label=words.share,
        y_high=1.0,
        watermark=view.watermark,
    )
    sources = " and ".join(sorted({_SOURCES[found.source] for _, found in shown}))
    beside = table(
        ["arm", "K", "per step", "per request", "temperature"],
        [_row(view, point, found) for point, found in shown],
        caption=f"Acceptance length at {shown[0][0].load.label}, from {sources}",
    )
    lengths = Figure("al", "length", lambda point: point.acceptance.per_step if point.acceptance else None)
    every = pivot(view, lengths, "Acceptance length per step, by load")
    several = sum(len(view.loads(kind)) for kind in KINDS) > 1
    right = tag("div", beside, every if several else None, class_="stack")
    return Section("acceptance", "Acceptance", _lead(view, shown), pair(both(chart, "survival"), right))


def _first(view: View) -> list[tuple[PointRecord, Acceptance]]:
    """For each arm its point at the least load at which any survival is known."""
    for load in (load for kind in KINDS for load in view.loads(kind)):
        found = [
            (point, point.acceptance)
            for arm in view.arms
            if not arm.control
            for point in view.measured(arm.name, load)[:1]
            if point.acceptance and point.acceptance.survival
        ]
        if found:
            return found
    return []


def _row(view: View, point: PointRecord, found: Acceptance) -> list[Content]:
    return [
        arm_cell(view, point.arm),
        str(view.arm(point.arm).num_speculative_tokens or words.DASH),
        words.number(found.per_step),
        words.number(found.per_request),
        words.DASH if point.temperature is None else f"{point.temperature:g}",
    ]


def _lead(view: View, shown: list[tuple[PointRecord, Acceptance]]) -> str:
    said = ", ".join(f"{words.number(found.per_step)} with {view.label(point.arm)}" for point, found in shown)
    return f"Tokens for each pass of the target at {shown[0][0].load.label}: {said}; 1 without speculation."
