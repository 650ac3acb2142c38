"""Report sections on the tuner's results: the best K at each load, and step times. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby

from peagle_bench.report import tables
from peagle_bench.report.blocks import Folded, Grid, Section, page_tables
from peagle_bench.report.charts import HALF, THIRD, ChartFigure, LineChart, Mark, Series
from peagle_bench.report.formatting import looks_of
from peagle_bench.report.view import View, load_value
from peagle_bench.results.records import ArmRecord, FitRecord, Load
from peagle_sm.core.spec.modes import title_of


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
        parts.append(f"{title_of(mode)}: {', '.join(f'{fit.best_k} at {fit.load.label}' for fit in own)}")
    lead = f"{'; '.join(parts)}. Solid markers are measured, hollow ones predicted."
    return Section("k", "Best K", lead, blocks)


def step_times(view: View) -> Section | None:
    """Make the section on step times with synthetic acceptance."""
    if not view.step_times:
        return None
    blocks = [block for times in view.step_times for block in page_tables(tables.step_times(times))]
    lead = (
        "The engine accepted no draft token (AL 1), and then all (AL K+1), whatever its head drafted. A token"
        " of an answer takes fixed ms + step ms / AL."
    )
    return Section("step-times", "Step times", lead, blocks)


def k_chart(view: View, load: Load, fits: Sequence[FitRecord]) -> LineChart:
    """Make the chart of one load: tokens per second by K, a line for each mode; K=0 is no speculation."""
    series, guides = [], []
    for fit in fits:
        arms = [arm for arm in view.arms if arm.mode == fit.mode and not arm.control]
        # The files may have no arm of the fit's mode.
        arm = arms[0] if arms else ArmRecord("any", fit.mode, None, "")
        look = view.look(arm.name) if arms else looks_of([arm])[arm.name]
        marks = tuple(
            Mark(point.k, point.otps, point.low, point.high, hollow=not point.measured)
            for point in sorted(fit.points, key=lambda point: point.k)
        )
        series.append(Series(title_of(fit.mode), look, marks, dashed=True))
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
