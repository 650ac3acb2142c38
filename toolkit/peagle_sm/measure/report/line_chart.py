"""Lines over a number: OTPS by concurrency, survival by position, throughput by K. Pure."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from peagle_sm.measure.report import frame, words
from peagle_sm.measure.report.frame import Size
from peagle_sm.measure.report.looks import Look, marker
from peagle_sm.measure.report.markup import Safe, join, tag
from peagle_sm.measure.report.scale import Scale, bounds, nice_ticks, spread


@dataclass(frozen=True)
class Mark:
    """One value with its interval or range where there is one; ``hollow`` is predicted, not measured."""

    x: float
    y: float
    low: float | None = None
    high: float | None = None
    hollow: bool = False


@dataclass(frozen=True)
class Series:
    """One line with its name at its end; ``dashed`` is a fit."""

    name: str
    look: Look
    marks: tuple[Mark, ...]
    dashed: bool = False


@dataclass(frozen=True)
class LineChart:
    """``x_ticks`` are where values lie; ``guides`` are upright lines with words (the best K)."""

    title: str
    description: str
    series: tuple[Series, ...]
    x_title: str
    y_title: str
    x_ticks: tuple[float, ...]
    x_log: bool = False
    y_zero: bool = True
    y_label: Callable[[float], str] = words.axis
    y_high: float | None = None
    guides: tuple[tuple[float, str, Look], ...] = ()
    watermark: str | None = None

    def __call__(self, size: Size, identity: str) -> Safe:
        """Draw it."""
        return _draw(self, size, identity)


_TOP, _BOTTOM = 34.0, 46.0


def _draw(chart: LineChart, size: Size, identity: str) -> Safe:
    ticks = _y_ticks(chart)
    labels = [chart.y_label(tick) for tick in ticks]
    left = max(frame.text_width(label) for label in labels) + 12
    names = max((frame.text_width(series.name) for series in chart.series), default=0)
    right = size.width - min(names + 22, size.width * 0.36)
    x = Scale(min(chart.x_ticks), max(chart.x_ticks), left + 14, right - 10, chart.x_log)
    y = Scale(ticks[0], ticks[-1], size.height - _BOTTOM, _TOP)
    return frame.svg(
        size,
        chart.title,
        chart.description,
        frame.heading(chart.y_title, chart.watermark, size.width),
        frame.y_axis(y, ticks, labels, left, right),
        frame.x_axis(x, *_x_ticks(chart, x), size.height - _BOTTOM, chart.x_title),
        *(_guide(at, text, look, x, size) for at, text, look in chart.guides),
        *(_series(series, x, y) for series in chart.series),
        _names(chart.series, x, y, size),
        identity=identity,
    )


def _y_ticks(chart: LineChart) -> list[float]:
    values = [v for s in chart.series for m in s.marks for v in (m.y, m.low, m.high)]
    low, high = bounds(values)
    if chart.y_high is not None:
        high = chart.y_high
    return nice_ticks(0.0 if chart.y_zero else low, high or 1.0)


def _x_ticks(chart: LineChart, scale: Scale) -> tuple[list[float], list[str]]:
    """Every value gets a tick as long as the labels keep apart."""
    kept: list[float] = []
    for value in sorted(set(chart.x_ticks)):
        width = frame.text_width(words.axis(value)) + 8
        if not kept or scale(value) - scale(kept[-1]) >= width:
            kept.append(value)
    return kept, [words.axis(value) for value in kept]


def _guide(at: float, text: str, look: Look, x: Scale, size: Size) -> Safe:
    place = x(at)
    anchor = "end" if place > (x.start + x.end) / 2 else "start"
    return tag(
        "g",
        tag("line", x1=place, x2=place, y1=_TOP, y2=size.height - _BOTTOM, class_="guide"),
        tag("text", text, x=place + (-6 if anchor == "end" else 6), y=_TOP + 4, text_anchor=anchor),
        class_=look.classes,
    )


def _series(series: Series, x: Scale, y: Scale) -> Safe:
    places = [(x(m.x), y(m.y), m) for m in series.marks]
    path = "M" + "L".join(f"{a:.1f} {b:.1f}" for a, b, _ in places)
    parts = (
        [tag("path", d=path, class_="line dashed" if series.dashed else "line")] if len(places) > 1 else []
    )
    for a, b, mark in places:
        if mark.low is not None and mark.high is not None and mark.high > mark.low:
            ends = y(mark.low), y(mark.high)
            parts.append(tag("path", d=_whisker(a, *ends), class_="whisker"))
        parts.append(marker(series.look.shape, a, b, hollow=mark.hollow))
    return tag("g", *parts, class_=series.look.classes)


def _whisker(x: float, low: float, high: float) -> str:
    return f"M{x - 4:.1f} {low:.1f}h8m-4 0V{high:.1f}m-4 0h8"


def _names(series: Sequence[Series], x: Scale, y: Scale, size: Size) -> Safe:
    """Each name at its line's end, moved apart where lines end together, with a hair line back."""
    shown = [s for s in series if s.marks and s.name]
    ends = [s.marks[-1] for s in shown]
    places = spread([y(m.y) for m in ends], 16, _TOP + 4, size.height - _BOTTOM)
    parts = []
    for s, end, place in zip(shown, ends, places, strict=True):
        at, true = x(end.x), y(end.y)
        lead = tag("path", d=f"M{at + 7:.1f} {true:.1f}L{x.end + 16:.1f} {place:.1f}", class_="lead")
        text = tag("text", s.name, x=x.end + 20, y=place + 4, class_="name")
        parts.append(
            tag("g", lead if abs(place - true) > 5 or at < x.end - 1 else None, text, class_=s.look.classes)
        )
    return join(*parts)
