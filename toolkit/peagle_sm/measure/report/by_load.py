"""Report section on K by load: the table, its validation, and the other modes at each load. Pure."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from peagle_sm.core.display import Safe, tag
from peagle_sm.core.spec.endpoint_spec import k_at, table_text
from peagle_sm.measure.report import formatting, tables
from peagle_sm.measure.report.charts import WIDE, LineChart, Mark, Series, both
from peagle_sm.measure.report.formatting import MODE_NAMES, Look
from peagle_sm.measure.report.performance import looks_of_mode
from peagle_sm.measure.report.section import Section, pair, shown
from peagle_sm.measure.report.tables import decision
from peagle_sm.measure.report.view import View, load_value
from peagle_sm.measure.results.records import FitRecord, TableRecord


def by_load(view: View) -> Section | None:
    """Make the section: the rate by load, the reasons, the validation, the other modes; None without any."""
    if not view.tables:
        return None
    reasons = tag("ul", *(tag("li", _reason(one)) for one in view.tables), class_="note")
    chart = _chart(view)
    parts = (
        reasons if chart is None else pair(chart, reasons),
        shown(
            tables.validations(view.tables, view),
            "Rate of the table's own endpoint over that of the fixed K; the intervals hold for all looks "
            "together",
        ),
        shown(
            tables.alternatives(view.tables, view),
            "The other modes at each load; all run on the same instance, so a faster one is also cheaper",
        ),
    )
    return Section("by-load", "K by load", _lead(view), tag("div", *parts, class_="stack"))


def _reason(record: TableRecord) -> str:
    return f"{MODE_NAMES[record.mode]}: {decision(record)}. {record.reason[0].upper()}{record.reason[1:]}."


def _lead(view: View) -> str:
    said = []
    for one in view.tables:
        ks = f"K={table_text(one.rows)} requests in flight"
        said.append(f"{MODE_NAMES[one.mode]}: {ks if one.accepted else f'K={one.fixed_k} at every load'}")
    return "; ".join(said) + "."


def _chart(view: View) -> Safe | None:
    """Draw the rate of each table, of its fixed K and of no speculation, from the tuner's fits."""
    drawn = [line for one in view.tables for line in _lines(one, view.fits)]
    first = [fit for fit in view.fits if fit.mode == view.tables[0].mode]
    drawn.append(_line("no speculation", Look("grey", "diamond"), first, lambda load: 0))
    drawn = [line for line in drawn if len(line.marks) > 1]
    if not drawn:
        return None
    loads = tuple(sorted({mark.x for line in drawn for mark in line.marks}))
    chart = LineChart(
        title="Output tokens per second by requests in flight",
        description=_words(drawn),
        series=tuple(drawn),
        x_title="requests in flight",
        y_title="output tokens per second, all requests together",
        x_ticks=loads,
        x_log=loads[-1] / loads[0] >= 8,
        watermark=view.watermark,
    )
    return both(chart, "by-load", WIDE)


def _lines(record: TableRecord, fits: Sequence[FitRecord]) -> list[Series]:
    """Make the lines of one mode: its table, if it has several rows, and its fixed K."""
    own = [fit for fit in fits if fit.mode == record.mode]
    if not own:
        return []
    look, name = looks_of_mode(own[0]), MODE_NAMES[record.mode]
    fixed = _line(f"{name} K={record.fixed_k}", look, own, lambda load: record.fixed_k)
    if len(record.rows) == 1:
        return [fixed]
    table = _line(f"{name} table", look, own, lambda load: k_at(record.rows, load))
    return [table, replace(fixed, look=replace(look, faint=True))]


def _line(name: str, look: Look, fits: Sequence[FitRecord], k_of: Callable[[int], int]) -> Series:
    """Make the line of one choice of K by load; a load without a figure for its K has no mark."""
    marks = []
    for fit in sorted(fits, key=lambda fit: load_value(fit.load)):
        k = k_of(fit.load.concurrency or 1)
        point = next((point for point in fit.points if point.k == k), None)
        # K=0 in a fit is an engine without a head; a table's K=0 still runs the head.
        if point is not None and (k or name == "no speculation"):
            marks.append(
                Mark(load_value(fit.load), point.otps, point.low, point.high, hollow=not point.measured)
            )
    return Series(name, look, tuple(marks))


def _words(series: list[Series]) -> str:
    said = [
        f"{one.name}: {formatting.number(one.marks[0].y)} at c={one.marks[0].x:g}, "
        f"{formatting.number(one.marks[-1].y)} at c={one.marks[-1].x:g}"
        for one in series
    ]
    return ". ".join(said) + "."
