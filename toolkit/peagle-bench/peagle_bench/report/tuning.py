"""Report sections on the tuner's results: the best K at each load, and the table of K by load. Pure."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import groupby

from peagle_bench.report import formatting, tables
from peagle_bench.report.blocks import Folded, Grid, Section, page_tables
from peagle_bench.report.charts import HALF, THIRD, ChartFigure, LineChart, Mark, Series
from peagle_bench.report.formatting import MODE_NAMES, Look, looks_of
from peagle_bench.report.view import View, load_value
from peagle_bench.results.records import ArmRecord, FitRecord, Load, TableRecord
from peagle_sm.core.spec.endpoint_spec import k_at, table_text


def best_k(view: View) -> Section | None:
    """Make the section on the best K: a chart for each load, and a table of choices and reasons."""
    if not view.fits:
        return None
    fits = sorted(view.fits, key=lambda fit: (fit.load.kind, load_value(fit.load)))
    loads = [(load, list(group)) for load, group in groupby(fits, key=lambda fit: fit.load)]
    size = HALF if len(loads) % 3 else THIRD
    blocks = [
        Grid([ChartFigure(k_chart(view, load, group), size) for load, group in loads]),
        *page_tables(tables.best_k(view)),
        Folded("Rate at each K", page_tables(tables.rates(view))),
    ]
    parts = []
    for mode, own in groupby(sorted(fits, key=lambda fit: fit.mode), key=lambda fit: fit.mode):
        parts.append(f"{MODE_NAMES[mode]}: {', '.join(f'{fit.best_k} at {fit.load.label}' for fit in own)}")
    lead = f"{'; '.join(parts)}. Solid markers are measured, hollow ones predicted."
    return Section("k", "Best K", lead, blocks)


def look_of_mode(fit: FitRecord) -> Look:
    """Return the look of a fit's mode, also if the files have no arm of it."""
    return looks_of([ArmRecord("any", fit.mode, None, "")])["any"]


def k_chart(view: View, load: Load, fits: Sequence[FitRecord]) -> LineChart:
    """Make the chart of one load: tokens per second by K, a line for each mode; K=0 is no speculation."""
    series, guides = [], []
    for fit in fits:
        arms = [arm for arm in view.arms if arm.mode == fit.mode and not arm.control]
        look = view.look(arms[0].name) if arms else look_of_mode(fit)
        marks = tuple(
            Mark(point.k, point.otps, point.low, point.high, hollow=not point.measured)
            for point in sorted(fit.points, key=lambda point: point.k)
        )
        series.append(Series(MODE_NAMES[fit.mode], look, marks, dashed=True))
        guides.append((float(fit.best_k), f"K={fit.best_k}", look))
    return LineChart(
        title=f"Output tokens per second by K at {load.label}",
        series=tuple(series),
        x_title="K (num_speculative_tokens)",
        y_title=f"output tokens per second at {load.label}",
        x_ticks=tuple(sorted({float(point.k) for fit in fits for point in fit.points})),
        y_zero=False,
        guides=tuple(guides),
        watermark=view.watermark,
    )


def by_load(view: View) -> Section | None:
    """Make the section on K by load: the rates, the reasons, the validation, the other modes."""
    if not view.tables:
        return None
    blocks = [
        *_by_load_chart(view),
        *page_tables(
            tables.by_load(view),
            tables.validations(view.tables, view),
            tables.alternatives(view.tables, view),
        ),
    ]
    parts = []
    for table in view.tables:
        ks = f"K={table_text(table.rows)} requests in flight" if table.accepted else None
        parts.append(f"{MODE_NAMES[table.mode]}: {ks or f'K={table.fixed_k} at every load'}")
    lead = "; ".join(parts) + ". The intervals of the validation hold for all looks together."
    return Section("by-load", "K by load", lead, blocks)


def _by_load_chart(view: View) -> list[Grid]:
    """Draw the rates of each table, its fixed K and no speculation, from the tuner's fits."""
    lines = [line for table in view.tables for line in _lines(table, view.fits)]
    first = [fit for fit in view.fits if fit.mode == view.tables[0].mode]
    lines.append(_line(MODE_NAMES["none"], Look("grey", "diamond"), first, lambda load: 0))
    lines = [line for line in lines if len(line.marks) > 1]
    if not lines:
        return []
    loads = tuple(sorted({mark.x for line in lines for mark in line.marks}))
    chart = LineChart(
        title="Output tokens per second by requests in flight",
        series=tuple(lines),
        x_title="requests in flight",
        y_title="output tokens per second, all requests together",
        x_ticks=loads,
        x_log=loads[-1] / loads[0] >= 8,
        watermark=view.watermark,
    )
    return [Grid([ChartFigure(chart, HALF)])]


def _lines(table: TableRecord, fits: Sequence[FitRecord]) -> list[Series]:
    """Make the lines of one mode: its table, if it has several rows, and its fixed K."""
    own = [fit for fit in fits if fit.mode == table.mode]
    if not own:
        return []
    look, name = look_of_mode(own[0]), MODE_NAMES[table.mode]
    fixed = _line(f"{name} K={table.fixed_k}", look, own, lambda load: table.fixed_k)
    if len(table.rows) == 1:
        return [fixed]
    of_table = _line(f"{name} table", look, own, lambda load: k_at(table.rows, load))
    return [of_table, replace(fixed, look=replace(look, faint=True))]


def _line(name: str, look: Look, fits: Sequence[FitRecord], k_of: Callable[[int], int]) -> Series:
    """Make the line of one choice of K by load; a load without a figure for its K has no mark."""
    marks = []
    for fit in sorted(fits, key=lambda fit: load_value(fit.load)):
        k = k_of(fit.load.concurrency or 1)
        point = next((point for point in fit.points if point.k == k), None)
        # K=0 in a fit is an engine without a head; a table's K=0 still runs the head.
        if point is not None and (k or name == formatting.MODE_NAMES["none"]):
            marks.append(
                Mark(load_value(fit.load), point.otps, point.low, point.high, hollow=not point.measured)
            )
    return Series(name, look, tuple(marks))
