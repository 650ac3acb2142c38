"""Lines over a number: OTPS by concurrency, survival by position, throughput by K. Pure."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from peagle_sm.core.display.markup import Safe, tag
from peagle_sm.measure.report import frame, line_names, words
from peagle_sm.measure.report.frame import Size
from peagle_sm.measure.report.line_names import Line
from peagle_sm.measure.report.looks import Look, marker
from peagle_sm.measure.report.scale import Scale, bounds, decade_ticks, nice_ticks


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
    y_log: bool = False
    y_label: Callable[[float], str] = words.axis
    y_high: float | None = None
    guides: tuple[tuple[float, str, Look], ...] = ()
    watermark: str | None = None

    def __call__(self, size: Size, identity: str) -> Safe:
        """Draw it."""
        return _draw(self, size, identity)


_TOP, _BOTTOM = 14.0, 46.0


def _draw(chart: LineChart, size: Size, identity: str) -> Safe:
    ticks = _y_ticks(chart)
    labels = [chart.y_label(tick) for tick in ticks]
    left = max(frame.text_width(label) for label in labels) + 12
    names = max((frame.text_width(series.name) for series in chart.series), default=0)
    room = min(names + 22, size.width * 0.36)
    right = size.width - room
    x = Scale(min(chart.x_ticks), max(chart.x_ticks), left + 14, right - 10, chart.x_log)
    y = Scale(ticks[0], ticks[-1], size.height - _BOTTOM, _TOP, chart.y_log)
    lines = [
        Line(
            frame.fitted(series.name, room - 20),
            series.look,
            tuple((x(mark.x), y(mark.y)) for mark in series.marks),
        )
        for series in chart.series
    ]
    return frame.svg(
        size,
        chart.title,
        chart.description,
        frame.y_axis(y, ticks, labels, left, right),
        frame.x_axis(x, *_x_ticks(chart, x), size.height - _BOTTOM, chart.x_title),
        *_guides(chart.guides, x, size),
        *(_series(series, x, y) for series in chart.series),
        line_names.draw(lines, x.end, _TOP + 4, size.height - _BOTTOM),
        identity=identity,
    )


def _y_ticks(chart: LineChart) -> list[float]:
    values = [v for s in chart.series for m in s.marks for v in (m.y, m.low, m.high)]
    low, high = bounds(values)
    if chart.y_high is not None:
        high = chart.y_high
    if chart.y_log and low > 0:
        return decade_ticks(low, high)
    return nice_ticks(0.0 if chart.y_zero else low, high or 1.0)


def _x_ticks(chart: LineChart, scale: Scale) -> tuple[list[float], list[str]]:
    """Every value gets a tick as long as the labels keep apart."""
    kept: list[float] = []
    for value in sorted(set(chart.x_ticks)):
        width = frame.text_width(words.axis(value)) + 8
        if not kept or scale(value) - scale(kept[-1]) >= width:
            kept.append(value)
    return kept, [words.axis(value) for value in kept]


def _guides(guides: tuple[tuple[float, str, Look], ...], x: Scale, size: Size) -> list[Safe]:
    """Upright lines; words that would touch stand one below the other."""
    drawn: list[Safe] = []
    places: list[tuple[float, float]] = []
    for at, text, look in guides:
        place = x(at)
        near = [row for other, row in places if abs(other - place) < 2 * frame.text_width(text) + 14]
        row = max(near, default=-1.0) + 1
        places.append((place, row))
        anchor = "end" if place > (x.start + x.end) / 2 else "start"
        side = place + (-6 if anchor == "end" else 6)
        line = tag("line", x1=place, x2=place, y1=_TOP, y2=size.height - _BOTTOM, class_="guide")
        words_ = tag("text", text, x=side, y=_TOP + 4 + 15 * row, text_anchor=anchor, class_="guidename")
        drawn.append(tag("g", line, words_, class_=look.classes))
    return drawn


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
