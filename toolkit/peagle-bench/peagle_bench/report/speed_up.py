"""Report section on speed-up: every comparison with its confidence interval and factors. Pure.

The intervals are drawn as cells of the table, all on one logarithmic axis with 1 marked.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import groupby

from peagle_bench.report import formatting
from peagle_bench.report.blocks import Cell, PageTable, Ratio, Section, pair_cell
from peagle_bench.report.charts import AxisHead, IntervalAxis, IntervalCell
from peagle_bench.report.tables import alike, factor, ordered
from peagle_bench.report.verdict import chief
from peagle_bench.report.view import View
from peagle_bench.results.records import ComparisonRecord

Column = tuple[Cell, Callable[[ComparisonRecord], Cell]]  #: a head, and its cell for a row


def speed_ups(view: View) -> Section | None:
    """Make the section with every comparison and its interval; controls last."""
    if not view.comparisons:
        return None
    rows = ordered(view)
    one_load = len({row.load for row in rows}) == 1
    axis = IntervalAxis.over(row.ratio for row in rows)

    def drawn(row: ComparisonRecord) -> Cell:
        return IntervalCell(axis, row.ratio, view.look(row.faster), doubtful=row.doubt is not None)

    columns: list[Column] = [
        ("speed-up", _ratio),
        ("95% interval", lambda row: formatting.span(row.ratio)),
        (AxisHead(axis, "speed-up"), drawn),
        ("from acceptance", lambda row: factor(row.acceptance_ratio)),
        ("from step time", lambda row: factor(row.step_time_ratio)),
        ("over", lambda row: f"{row.units} {'time blocks' if row.over == 'blocks' else row.over}"),
        ("identical answers", alike),
    ]
    caption = f"Speed-up of each pair {f'at {rows[0].load.label}' if one_load else 'by load'}"
    for name, cell in [*columns]:  # in the caption if it is the same in every row, to keep the table narrow
        texts = {cell(row) for row in rows}
        if texts == {formatting.DASH}:
            columns.remove((name, cell))
        elif name in ("over", "identical answers") and len(texts) == 1:
            columns.remove((name, cell))
            caption += f", {name} {texts.pop()}"
    cells: list[list[Cell]] = []
    for (faster, slower), group in groupby(rows, key=lambda row: (row.faster, row.slower)):
        if not one_load:
            cells.append([pair_cell(view, faster, slower)])
        for row in group:
            first: Cell = pair_cell(view, faster, slower) if one_load else row.load.label
            cells.append([first, *(cell(row) for _, cell in columns)])
    heads: list[Cell] = ["arms" if one_load else "load", *(head for head, _ in columns)]
    table = PageTable(heads, cells, caption)
    return Section("speed-up", "Speed-up", _lead(view), [table])


def _ratio(row: ComparisonRecord) -> Ratio:
    reason = "not significant" if row.doubt is None else f"no verdict: {row.doubt}"
    return Ratio(formatting.ratio(row.ratio.value), row.significant, reason)


def _lead(view: View) -> str:
    first = chief(view)
    if first is None:
        return ""
    rows = [row for row in ordered(view) if (row.faster, row.slower) == (first.faster, first.slower)]
    names = f"{view.label(first.faster)} over {view.label(first.slower)}"
    if len(rows) == 1:
        doubt = "" if first.doubt is None else f" (no verdict: {first.doubt})"
        sentence = f"{names}: {formatting.with_span(first.ratio)} at {first.load.label}{doubt}."
    else:
        ends = [f"{formatting.ratio(row.ratio.value)} at {row.load.label}" for row in (rows[0], rows[-1])]
        significant = sum(row.significant for row in rows)
        sentence = f"{names}: {' and '.join(ends)}; significant at {significant} of {len(rows)} loads."
    deployments = min(row.deployments for row in rows)
    if deployments == 1:
        return f"{sentence} One deployment: the intervals do not cover other deployments."
    return f"{sentence} The intervals cover {deployments} deployments."
