"""The K curve: measured rates, what the fit predicts between them, and the K that was chosen. Pure."""

from __future__ import annotations

from itertools import groupby

from peagle_sm.core.display.markup import Content, Safe, join
from peagle_sm.measure.records import FitRecord, Load
from peagle_sm.measure.report import words
from peagle_sm.measure.report.frame import HALF, THIRD, both
from peagle_sm.measure.report.line_chart import LineChart, Mark, Series
from peagle_sm.measure.report.looks import Look, looks_of
from peagle_sm.measure.report.rows import baseline, rates
from peagle_sm.measure.report.section import Section, folded, grid, table
from peagle_sm.measure.report.view import View, load_value


def curve(view: View) -> Section | None:
    """One chart for each load, its modes together; a table of what was chosen and why."""
    if not view.fits:
        return None
    ordered = sorted(view.fits, key=lambda fit: (fit.load.kind, load_value(fit.load)))
    loads = [(load, list(fits)) for load, fits in groupby(ordered, key=lambda fit: fit.load)]
    size = HALF if len(loads) % 3 else THIRD
    drawn = [both(_chart(view, load, fits), f"k-{at}", size) for at, (load, fits) in enumerate(loads)]
    body = join(grid(*drawn), _chosen(ordered), _every(view))
    return Section("k", "Best K", _lead(ordered), body)


def _look(view: View, fit: FitRecord) -> Look:
    named = [arm for arm in view.arms if arm.mode == fit.mode and not arm.control]
    return view.look(named[0].name) if named else looks_of_mode(fit)


def looks_of_mode(fit: FitRecord) -> Look:
    """A mode's own look, where no arm of it is in the files."""
    from peagle_sm.measure.records import ArmRecord

    return looks_of([ArmRecord("any", fit.mode, None, "")])["any"]


def _chart(view: View, load: Load, fits: list[FitRecord]) -> LineChart:
    series, guides = [], []
    for fit in fits:
        look, name = _look(view, fit), words.MODE_NAMES[fit.mode]
        points = sorted(fit.points, key=lambda point: point.k)
        marks = tuple(
            Mark(point.k, point.otps, point.low, point.high, hollow=not point.measured) for point in points
        )
        series.append(Series(name, look, marks, dashed=True))
        guides.append((float(fit.best_k), f"K={fit.best_k}", look))
    depths = tuple(sorted({float(point.k) for fit in fits for point in fit.points}))
    return LineChart(
        title=f"Output tokens a second by K at {load.label}",
        description=". ".join(
            f"{words.MODE_NAMES[fit.mode]}: best K {fit.best_k}, {fit.reason}" for fit in fits
        ),
        series=tuple(series),
        x_title="K (num_speculative_tokens)",
        y_title=f"output tokens a second at {load.label}",
        x_ticks=depths,
        y_zero=False,
        guides=tuple(guides),
        watermark=view.watermark,
    )


def _chosen(fits: list[FitRecord]) -> Safe:
    rows: list[list[Content]] = []
    for fit in fits:
        best = next((point for point in fit.points if point.k == fit.best_k), None)
        measured = ", ".join(
            str(point.k) for point in sorted(fit.points, key=lambda p: p.k) if point.measured
        )
        rows.append(
            [
                fit.load.label,
                words.MODE_NAMES[fit.mode],
                str(fit.best_k),
                words.number(best.otps if best else None),
                words.number(plain.otps if (plain := baseline(fit)) else None),
                words.number(best.acceptance_length if best else None),
                words.number(best.step_ms if best else None),
                measured or words.DASH,
                str(fit.deployments),
                words.usd(fit.usd),
                fit.reason,
            ]
        )
    heads = [
        "load",
        "mode",
        "best K",
        "OTPS",
        "without speculation",
        "accepted",
        "step, ms",
        "K measured",
        "deployments",
        "USD",
        "why",
    ]
    return table(heads, rows, caption="What was chosen, and what finding it cost", words=(0, 1, 7, 10))


def _every(view: View) -> Safe | None:
    found = rates(view)
    if found is None:
        return None
    left = [at for at, head in enumerate(found.heads) if head not in found.figures]
    return folded(
        "The rate at each K", table(found.heads, found.rows, caption="The rate at each K", words=left)
    )


def _lead(fits: list[FitRecord]) -> str:
    parts = []
    for mode, group in groupby(sorted(fits, key=lambda fit: fit.mode), key=lambda fit: fit.mode):
        said = ", ".join(f"{fit.best_k} at {fit.load.label}" for fit in group)
        parts.append(f"{words.MODE_NAMES[mode]}: {said}")
    return "; ".join(parts) + ". Solid marks are measured, hollow ones predicted."
