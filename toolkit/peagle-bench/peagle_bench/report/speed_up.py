"""Report section on speed-up: every comparison with its confidence interval and factors. Pure.

The intervals are drawn as cells of the table, all on one logarithmic axis with 1 marked.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import groupby

from peagle_bench.report import formatting
from peagle_bench.report.charts import AxisHead, IntervalAxis, IntervalCell
from peagle_bench.report.merging import are_alike
from peagle_bench.report.section import Cell, PageTable, PairName, Ratio, Section, pair_cell
from peagle_bench.report.verdict import chief
from peagle_bench.report.view import View, load_value
from peagle_bench.results.records import ComparisonRecord, Interval

Column = tuple[Cell, Callable[[ComparisonRecord], Cell]]  #: a head, and its cell for a row


@dataclass(frozen=True)
class Group:
    """The comparisons of one pair at every load, below its names."""

    names: PairName
    control: bool
    table: PageTable


def speed_ups(view: View) -> Section | None:
    """Make the section with every comparison and its interval; controls last."""
    if not view.comparisons:
        return None
    groups = [list(rows) for _, rows in groupby(ordered(view), key=_pair)]
    one_table = all(len(rows) == 1 for rows in groups)  # then it has the names of the arms
    split = any(each.slices for _, each in view.files)  # then the section on slices has the categories
    content = {
        "table": _ratios(view, ordered(view), "Speed-up of each pair", paired=True) if one_table else None,
        "groups": [] if one_table else [_group(view, rows) for rows in groups],
        "categories": [_categories(view, row) for row in ordered(view) if row.categories and not split],
    }
    return Section("speed-up", "Speed-up", _range(view), content)


def _pair(row: ComparisonRecord) -> tuple[str, str]:
    return row.faster, row.slower


def ordered(view: View) -> list[ComparisonRecord]:
    """Sort comparisons: the headline's pair first, controls last, each pair by load."""
    first = chief(view)
    order = {arm.name: at for at, arm in enumerate(view.arms)}

    def key(row: ComparisonRecord) -> tuple[object, ...]:
        ahead = first is not None and _pair(row) == _pair(first)
        names = -order.get(row.faster, 0), -order.get(row.slower, 0)
        return row.control, not ahead, *names, row.load.kind, load_value(row.load)

    return sorted(view.comparisons, key=key)


def _group(view: View, rows: Sequence[ComparisonRecord]) -> Group:
    first = rows[0]
    caption = f"{view.label(first.faster)} over {view.label(first.slower)}"
    return Group(pair_cell(view, *_pair(first)), first.control, _ratios(view, rows, caption))


def _ratios(view: View, rows: Sequence[ComparisonRecord], caption: str, *, paired: bool = False) -> PageTable:
    """Make a table of ratios on one axis; ``paired`` adds the names of each row's arms."""
    axis = IntervalAxis.over(row.ratio for row in rows)
    loads = {row.load for row in rows}
    if paired and len(loads) == 1:
        caption += f" at {rows[0].load.label}"
    # In the caption if it is the same in every row, to keep the table narrow.
    same_units = paired and len({_units(row) for row in rows}) == 1
    caption += f", over {_units(rows[0])}" if same_units else ""
    same_answers = paired and len({_alike(row) for row in rows}) == 1
    if same_answers and rows[0].compared_outputs:
        caption += f"; identical answers: {_alike(rows[0])}"
    left: list[Column] = [("arms", lambda row: pair_cell(view, *_pair(row)))] if paired else []
    left += [("load", lambda row: row.load.label)] if not paired or len(loads) > 1 else []
    left += [("run", view.run_of)] if are_alike((*_pair(row), row.load) for row in rows) else []
    columns: list[Column] = [
        *left,
        ("speed-up", _figure),
        ("95% interval", lambda row: formatting.span(row.ratio)),
        (AxisHead(axis, "speed-up"), lambda row: _drawn(view, axis, row, row.ratio)),
    ]
    if any(row.acceptance_ratio or row.step_time_ratio for row in rows):
        columns += [
            ("from acceptance", lambda row: _factor(row.acceptance_ratio)),
            ("from step time", lambda row: _factor(row.step_time_ratio)),
        ]
    columns += [] if same_units else [("over", _units)]
    if not same_answers and any(row.compared_outputs for row in rows):
        columns.append(("identical answers", _alike))
    heads = [head for head, _ in columns]
    cells = [[cell(row) for _, cell in columns] for row in rows]
    return PageTable(heads, cells, caption, range(len(left)), titled=not paired)


def _drawn(view: View, axis: IntervalAxis, row: ComparisonRecord, interval: Interval) -> IntervalCell:
    return IntervalCell(axis, interval, view.look(row.faster), doubtful=row.doubt is not None)


def _factor(factor: Interval | None) -> str:
    return formatting.DASH if factor is None else formatting.with_span(factor)


def _units(row: ComparisonRecord) -> str:
    return f"{row.units} {'time blocks' if row.over == 'blocks' else row.over}"


def _alike(row: ComparisonRecord) -> str:
    return f"{row.identical_outputs} of {row.compared_outputs}" if row.compared_outputs else formatting.DASH


def _figure(row: ComparisonRecord) -> Ratio:
    reason = "not significant" if row.doubt is None else f"no verdict: {row.doubt}"
    return Ratio(formatting.ratio(row.ratio.value), row.significant, reason)


def _categories(view: View, row: ComparisonRecord) -> PageTable:
    axis = IntervalAxis.over(row.categories.values())
    ranked = sorted(row.categories.items(), key=lambda item: -item[1].value)
    body: list[list[Cell]] = [
        [name, formatting.ratio(each.value), formatting.span(each), _drawn(view, axis, row, each)]
        for name, each in ranked
    ]
    caption = f"{view.label(row.faster)} over {view.label(row.slower)} at {row.load.label}, by category"
    caption += "" if row.doubt is None else f"; no verdict: {row.doubt}"
    return PageTable(["category", "speed-up", "95% interval", AxisHead(axis, "speed-up")], body, caption)


def _range(view: View) -> str:
    first = chief(view)
    if first is None:
        return ""
    rows = [row for row in ordered(view) if _pair(row) == _pair(first)]
    significant = sum(row.significant for row in rows)
    names = f"{view.label(first.faster)} over {view.label(first.slower)}"
    if len(rows) == 1:
        doubt = "" if rows[0].doubt is None else f" (no verdict: {rows[0].doubt})"
        sentence = f"{names}: {formatting.with_span(rows[0].ratio)} at {rows[0].load.label}{doubt}."
    else:
        ends = (rows[0], rows[-1])
        sentence = f"{names}: " + " and ".join(
            f"{formatting.ratio(r.ratio.value)} at {r.load.label}" for r in ends
        )
        what = "comparisons" if are_alike(row.load for row in rows) else "loads"
        sentence += f"; significant at {significant} of {len(rows)} {what}."
    least = min(row.deployments for row in rows)
    reach = (
        "One deployment: the intervals do not cover other deployments."
        if least == 1
        else f"The intervals cover {least} deployments."
    )
    return f"{sentence} {reach}"
