"""How fast: output tokens a second over the loads, and the speed-ups with their intervals. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby

from peagle_sm.measure.records import ComparisonRecord, Load
from peagle_sm.measure.report import words
from peagle_sm.measure.report.interval_plot import IntervalAxis
from peagle_sm.measure.report.markup import Content, Safe, join, tag
from peagle_sm.measure.report.over_load import KINDS, Figure, charts, pivot, values
from peagle_sm.measure.report.section import Section, arm_cell, folded, pair, table
from peagle_sm.measure.report.verdict import chief
from peagle_sm.measure.report.view import View, load_value

OTPS = Figure("otps", "output tokens a second, all requests together", lambda point: point.otps)
_OVER = {"prompts": "prompts", "blocks": "time blocks", "deployments": "deployments"}


def throughput(view: View) -> Section | None:
    """OTPS by load."""
    drawn = charts(view, OTPS)
    if drawn is None:
        return None
    beside = pivot(view, OTPS, "Output tokens a second (OTPS)")
    return Section("throughput", "Throughput", _leaders(view), pair(drawn, beside))


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
            best.append((max(rates, key=lambda name: rates[name]), load))
    if not best:
        return ""
    runs = [
        (name, [load.label for _, load in group]) for name, group in groupby(best, key=lambda pair: pair[0])
    ]
    parts = [
        f"{view.label(name)} at {labels[0] if len(labels) == 1 else f'{labels[0]} to {labels[-1]}'}"
        for name, labels in runs
    ]
    return "Highest rate measured: " + ", then ".join(parts) + "."


def speed_ups(view: View) -> Section | None:
    """Every comparison with its interval; controls last."""
    if not view.comparisons:
        return None
    axis = IntervalAxis.over(row.ratio for row in view.comparisons)
    body = [_group(view, axis, list(rows)) for _, rows in groupby(ordered(view), key=_pair)]
    categories = [row for row in view.comparisons if row.categories]
    if categories:
        body.append(folded("By category of prompt", *(_categories(view, row) for row in categories)))
    return Section("speed-up", "Speed-up", _range(view), join(*body))


def _pair(row: ComparisonRecord) -> tuple[str, str]:
    return row.faster, row.slower


def ordered(view: View) -> list[ComparisonRecord]:
    """The headline's pair first, controls last, each pair by load."""
    first = chief(view)
    order = {arm.name: at for at, arm in enumerate(view.arms)}

    def key(row: ComparisonRecord) -> tuple[object, ...]:
        ahead = first is not None and _pair(row) == _pair(first)
        names = -order.get(row.faster, 0), -order.get(row.slower, 0)
        return row.control, not ahead, *names, row.load.kind, load_value(row.load)

    return sorted(view.comparisons, key=key)


def _group(view: View, axis: IntervalAxis, rows: Sequence[ComparisonRecord]) -> Safe:
    first = rows[0]
    title = tag(
        "h3", arm_cell(view, first.faster), tag("span", "over", class_="over"), arm_cell(view, first.slower)
    )
    note = None
    if first.control:
        note = tag(
            "p", "The same mode twice: an interval that leaves out 1 would mean a biased run.", class_="note"
        )
    split = any(row.acceptance_ratio or row.step_time_ratio for row in rows)
    heads: list[Content] = ["load", axis.head(), "speed-up", "95% interval"]
    if split:
        heads += ["from acceptance", "from step time"]
    heads += ["over", "answers alike"]
    body = [_row(view, axis, row, split) for row in rows]
    shown = table(
        heads, body, caption=f"{view.label(first.faster)} over {view.label(first.slower)}", words=(0, 1)
    )
    return tag("div", title, note, shown, class_="group")


def _row(view: View, axis: IntervalAxis, row: ComparisonRecord, split: bool) -> list[Content]:
    figure: Content = words.ratio(row.ratio.value)
    if not row.ratio.shown:
        figure = join(tag("span", figure, class_="muted"), tag("small", " not shown", class_="muted"))
    else:
        figure = tag("strong", figure)
    cells: list[Content] = [
        row.load.label,
        axis.cell(row.ratio, view.look(row.faster)),
        figure,
        words.span(row.ratio),
    ]
    if split:
        parts = (row.acceptance_ratio, row.step_time_ratio)
        cells += [words.DASH if part is None else words.ratio(part.value) for part in parts]
    alike = words.DASH
    if row.compared_outputs:
        alike = f"{row.identical_outputs} of {row.compared_outputs}"
    units = f"{row.units} {_OVER[row.over]}"
    return [*cells, units, alike]


def _categories(view: View, row: ComparisonRecord) -> Safe:
    axis = IntervalAxis.over(row.categories.values())
    ranked = sorted(row.categories.items(), key=lambda item: -item[1].value)
    look = view.look(row.faster)
    body = [
        [name, axis.cell(found, look), words.ratio(found.value), words.span(found)] for name, found in ranked
    ]
    caption = f"{view.label(row.faster)} over {view.label(row.slower)} at {row.load.label}, by category"
    return table(["category", axis.head(), "speed-up", "95% interval"], body, caption=caption, words=(0, 1))


def _range(view: View) -> str:
    first = chief(view)
    if first is None:
        return ""
    rows = [row for row in ordered(view) if _pair(row) == _pair(first)]
    shown = sum(row.ratio.shown for row in rows)
    names = f"{view.label(first.faster)} over {view.label(first.slower)}"
    if len(rows) == 1:
        said = f"{names}: {words.with_span(rows[0].ratio)} at {rows[0].load.label}."
    else:
        ends = (rows[0], rows[-1])
        said = f"{names}: " + " and ".join(f"{words.ratio(r.ratio.value)} at {r.load.label}" for r in ends)
        said += f"; told from 1 at {shown} of {len(rows)} loads."
    least = min(row.deployments for row in rows)
    reach = (
        "One deployment: the intervals say nothing about the next one."
        if least == 1
        else (f"Intervals hold over {least} deployments.")
    )
    return f"{said} {reach}"
