"""Charts as SVG: line charts and bar charts with their scales, ticks and axes. Pure.

Every axis has a title with its unit. A line's name is at its end, so no legend is needed. Each chart has a
description for screen readers.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol

from peagle_bench.report import formatting
from peagle_bench.report.formatting import Look, marker
from peagle_sm.core.display import Content, Safe, join, tag


@dataclass(frozen=True)
class Scale:
    """Maps ``low``..``high`` onto ``start``..``end`` (pixels), evenly or by logarithm."""

    low: float
    high: float
    start: float
    end: float
    log: bool = False

    def __call__(self, value: float) -> float:
        """Return the pixel position of ``value``."""
        low, high, at = (math.log(x) if self.log else x for x in (self.low, self.high, value))
        share = (at - low) / (high - low) if high > low else 0.5
        return self.start + share * (self.end - self.start)

    def inside(self, value: float) -> bool:
        """Decide whether ``value`` is within the domain, with a tiny tolerance."""
        slack = (self.high - self.low) * 1e-9
        return self.low - slack <= value <= self.high + slack


def nice_ticks(low: float, high: float, count: int = 5) -> list[float]:
    """Return about ``count`` round values around ``low``..``high``: 1, 2, 2.5 or 5 times powers of ten."""
    if high - low <= 1e-9 * abs(high):  # equal, but for rounding
        high = low + (abs(low) or 1.0)
    rough = (high - low) / max(1, count - 1)
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(m * power for m in (1, 2, 2.5, 5, 10) if m * power >= rough * 0.999)
    first, last = math.floor(low / step + 1e-9), math.ceil(high / step - 1e-9)
    return [round(i * step, 12) for i in range(first, last + 1)]


def decade_ticks(low: float, high: float) -> list[float]:
    """Return ticks of a logarithmic axis: 1, 2 and 5 times powers of ten around ``low``..``high``."""
    first, last = math.floor(math.log10(low)), math.ceil(math.log10(high))
    steps = [m * 10.0**power for power in range(first, last + 1) for m in (1, 2, 5)]
    start = max((step for step in steps if step <= low * 1.0001), default=low)
    end = min((step for step in steps if step >= high * 0.9999), default=high)
    return [round(step, 12) for step in steps if start <= step <= end]


def ratio_ticks(low: float, high: float) -> list[float]:
    """Return round ratios between ``low`` and ``high`` for a logarithmic axis; includes 1."""
    steps = (0.5, 0.25, 0.2, 0.1, 0.05, 0.02, 0.01)
    span = high - low
    step = next((s for s in steps if span / s >= 4), 0.005)
    if span > 4:
        step = nice_ticks(low, high)[1] - nice_ticks(low, high)[0]
    ticks = [round(i * step, 4) for i in range(math.ceil(low / step), math.floor(high / step) + 1)]
    return sorted({*(t for t in ticks if t > 0), 1.0} if low <= 1 <= high else ticks)


def spread(wanted: Sequence[float], gap: float, low: float, high: float) -> list[float]:
    """Move positions as little as possible to be ``gap`` apart and within ``low``..``high``.

    The order is kept. If there is not enough room, they overlap evenly.
    """
    if not wanted:
        return []
    gap = min(gap, (high - low) / max(1, len(wanted) - 1))
    order = sorted(range(len(wanted)), key=lambda i: wanted[i])
    placed: list[float] = []
    for at, i in enumerate(order):
        floor = low if at == 0 else placed[-1] + gap
        placed.append(max(floor, min(wanted[i], high)))
    ceiling = high
    for at in range(len(placed) - 1, -1, -1):
        placed[at] = min(placed[at], ceiling)
        ceiling = placed[at] - gap
    result = [0.0] * len(wanted)
    for place, i in zip(placed, order, strict=True):
        result[i] = place
    return result


def bounds(values: Iterable[float | None]) -> tuple[float, float]:
    """Return the smallest and the largest value; (0, 1) without values."""
    found = [value for value in values if value is not None]
    return (min(found), max(found)) if found else (0.0, 1.0)


CHARACTER = 6.7
"""Width of an average character at the charts' 12 px, rounded up: a label must not be cut."""


@dataclass(frozen=True)
class Size:
    """The chart's own pixels; the page scales it to its column."""

    width: float
    height: float


WIDE, HALF, THIRD, NARROW = Size(620, 328), Size(520, 288), Size(360, 288), Size(350, 288)


class Chart(Protocol):
    """Chart that can be drawn at any size."""

    @property
    def title(self) -> str:
        """What the chart shows, for its caption."""

    @property
    def watermark(self) -> str | None:
        """Warning that the figures are not a real model's."""

    def __call__(self, size: Size, identity: str) -> Safe:
        """Draw the chart; ``identity`` is a unique id."""


def text_width(text: str) -> float:
    """Estimate the width of ``text`` in pixels at the charts' font size."""
    return len(text) * CHARACTER


def fitted(text: str, width: float) -> str:
    """Shorten ``text`` in its middle to fit; the table beside the chart has the full text."""
    most = max(3, int(width / CHARACTER))
    if len(text) <= most:
        return text
    head = most // 2
    return f"{text[:head]}…{text[len(text) - (most - 1 - head) :]}"


def svg(size: Size, title: str, description: str, *content: Content, identity: str) -> Safe:
    """Make the chart's SVG element, with title and description for screen readers."""
    return tag(
        "svg",
        tag("title", title, id=f"{identity}-t"),
        tag("desc", description, id=f"{identity}-d"),
        *content,
        viewBox=f"0 0 {size.width:g} {size.height:g}",
        role="img",
        aria_labelledby=f"{identity}-t {identity}-d",
        class_="chart",
    )


def y_axis(scale: Scale, ticks: Sequence[float], labels: Sequence[str], left: float, right: float) -> Safe:
    """Draw grid lines with their values on the left."""
    rows = []
    for value, label in zip(ticks, labels, strict=True):
        y = scale(value)
        rows.append(tag("line", x1=left, x2=right, y1=y, y2=y, class_="zero" if value == 0 else "grid"))
        rows.append(tag("text", label, x=left - 8, y=y + 4, class_="tick", text_anchor="end"))
    return tag("g", *rows, aria_hidden="true")


def x_axis(scale: Scale, ticks: Sequence[float], labels: Sequence[str], bottom: float, title: str) -> Safe:
    """Draw the x axis with ticks and title."""
    marks = []
    for value, label in zip(ticks, labels, strict=True):
        x = scale(value)
        marks.append(tag("line", x1=x, x2=x, y1=bottom, y2=bottom + 4, class_="tickline"))
        marks.append(tag("text", label, x=x, y=bottom + 18, class_="tick", text_anchor="middle"))
    middle = (scale.start + scale.end) / 2
    marks.append(tag("text", title, x=middle, y=bottom + 36, class_="axis", text_anchor="middle"))
    return tag("g", *marks, aria_hidden="true")


def y_axis_title(title: str) -> Safe:
    """Write the title of the y axis above it: horizontal text is easier to read than vertical text."""
    return tag("text", title, x=0, y=12, class_="axis", aria_hidden="true")


def both(chart: Chart, identity: str, wide: Size = WIDE) -> Safe:
    """Draw the chart with its caption for wide and narrow pages; the style sheet shows one of them.

    The caption includes the watermark, so a copied chart keeps it.
    """
    mark = tag("span", chart.watermark, class_="watermark") if chart.watermark else None
    return tag(
        "figure",
        tag("figcaption", tag("span", chart.title), mark),
        tag("div", chart(wide, f"{identity}-w"), class_="wide"),
        tag("div", chart(NARROW, f"{identity}-n"), class_="narrow"),
    )


_GAP = 16.0
Coordinates = tuple[float, float]


@dataclass(frozen=True)
class Line:
    """Name, look and points of a line, in pixels from left to right."""

    name: str
    look: Look
    places: tuple[Coordinates, ...]


def draw_line_names(lines: Sequence[Line], right: float, top: float, bottom: float) -> Safe:
    """Draw line names in a column at the right, each linked to its line's end."""
    named = [line for line in lines if line.places and line.name]
    heights = spread([line.places[-1][1] for line in named], _GAP, top, bottom)
    return join(*(_at_right(line, right, height) for line, height in zip(named, heights, strict=True)))


def _at_right(line: Line, right: float, height: float) -> Safe:
    x, y = line.places[-1]
    lead = None
    if abs(height - y) > 5 or x < right - 1:
        lead = tag("path", d=f"M{x + 7:.1f} {y:.1f}L{right + 16:.1f} {height:.1f}", class_="lead")
    text = tag("text", line.name, x=right + 20, y=height + 4, class_="name")
    return tag("g", lead, text, class_=line.look.classes)


@dataclass(frozen=True)
class Mark:
    """One value with its interval or range, if any; ``hollow`` marks a predicted value."""

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
    """Line chart; ``guides`` are vertical lines with labels (the best K).

    ``x_title`` and ``y_title`` include the unit.
    """

    title: str
    description: str
    series: tuple[Series, ...]
    x_title: str
    y_title: str
    x_ticks: tuple[float, ...]
    x_log: bool = False
    y_zero: bool = True
    y_log: bool = False
    y_label: Callable[[float], str] = formatting.axis
    y_high: float | None = None
    guides: tuple[tuple[float, str, Look], ...] = ()
    watermark: str | None = None

    def __call__(self, size: Size, identity: str) -> Safe:
        """Draw the chart."""
        return _draw_lines(self, size, identity)


_TOP, _BOTTOM = 32.0, 46.0


def _draw_lines(chart: LineChart, size: Size, identity: str) -> Safe:
    ticks = _y_ticks(chart)
    labels = [chart.y_label(tick) for tick in ticks]
    left = max(text_width(label) for label in labels) + 12
    names = max((text_width(series.name) for series in chart.series), default=0)
    room = min(names + 22, size.width * 0.36)
    right = size.width - room
    x = Scale(min(chart.x_ticks), max(chart.x_ticks), left + 14, right - 10, chart.x_log)
    y = Scale(ticks[0], ticks[-1], size.height - _BOTTOM, _TOP, chart.y_log)
    lines = [
        Line(
            fitted(series.name, room - 20),
            series.look,
            tuple((x(mark.x), y(mark.y)) for mark in series.marks),
        )
        for series in chart.series
    ]
    return svg(
        size,
        chart.title,
        chart.description,
        y_axis(y, ticks, labels, left, right),
        y_axis_title(chart.y_title),
        x_axis(x, *_x_ticks(chart, x), size.height - _BOTTOM, chart.x_title),
        *_guides(chart.guides, x, size),
        *(_series(series, x, y) for series in chart.series),
        draw_line_names(lines, x.end, _TOP + 4, size.height - _BOTTOM),
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
    """Choose ticks: every value whose label does not touch the previous one."""
    kept: list[float] = []
    for value in sorted(set(chart.x_ticks)):
        width = text_width(formatting.axis(value)) + 8
        if not kept or scale(value) - scale(kept[-1]) >= width:
            kept.append(value)
    return kept, [formatting.axis(value) for value in kept]


def _guides(guides: tuple[tuple[float, str, Look], ...], x: Scale, size: Size) -> list[Safe]:
    """Draw vertical lines; labels that would touch go one below the other."""
    drawn: list[Safe] = []
    places: list[tuple[float, float]] = []
    for at, text, look in guides:
        place = x(at)
        near = [row for other, row in places if abs(other - place) < 2 * text_width(text) + 14]
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
            whisker = f"M{a - 4:.1f} {y(mark.low):.1f}h8m-4 0V{y(mark.high):.1f}m-4 0h8"
            parts.append(tag("path", d=whisker, class_="whisker"))
        parts.append(marker(series.look.shape, a, b, hollow=mark.hollow))
    return tag("g", *parts, class_=series.look.classes)


@dataclass(frozen=True)
class Bar:
    """One arm's bar; ``low`` and ``high`` are the range over repeated runs."""

    name: str
    look: Look
    value: float
    low: float | None = None
    high: float | None = None


@dataclass(frozen=True)
class BarChart:
    """Horizontal bar chart with names above the bars and figures at their ends.

    ``x_title`` includes the unit.
    """

    title: str
    description: str
    bars: tuple[Bar, ...]
    x_title: str
    watermark: str | None = None

    def __call__(self, size: Size, identity: str) -> Safe:
        """Draw the chart; its height depends on the number of bars."""
        return _draw_bars(self, size, identity)


_ROW, _THICK = 50.0, 20.0


def _draw_bars(chart: BarChart, size: Size, identity: str) -> Safe:
    high = max((bar.high or bar.value for bar in chart.bars), default=1.0) or 1.0
    room = max(text_width(formatting.number(bar.value)) for bar in chart.bars) + 14
    ticks = nice_ticks(0.0, high)
    edge = text_width(formatting.axis(0.0)) / 2
    x = Scale(0.0, ticks[-1], edge, size.width - room)
    rows = []
    for at, bar in enumerate(chart.bars):
        top = at * _ROW + 22
        end = x(bar.value)
        rows.append(
            tag(
                "g",
                tag("text", bar.name, x=edge, y=top - 6, class_="name"),
                tag("rect", x=edge, y=top, width=max(end - edge, 1.0), height=_THICK, rx=2, class_="bar"),
                _range(bar, x, top),
                tag(
                    "text",
                    formatting.number(bar.value),
                    x=x(max(bar.value, bar.high or 0.0)) + 8,
                    y=top + 15,
                    class_="value",
                ),
                class_=bar.look.classes,
            )
        )
    bottom = _ROW * len(chart.bars)
    fitted = Size(size.width, bottom + _BOTTOM)
    labels = [formatting.axis(tick) for tick in ticks]
    return svg(
        fitted,
        chart.title,
        chart.description,
        _grid_lines(x, ticks, bottom),
        x_axis(x, ticks, labels, bottom, chart.x_title),
        *rows,
        identity=identity,
    )


def _grid_lines(x: Scale, ticks: Sequence[float], bottom: float) -> Safe:
    rules = [tag("line", x1=x(tick), x2=x(tick), y1=0, y2=bottom, class_="grid") for tick in ticks]
    return tag("g", *rules, aria_hidden="true")


def _range(bar: Bar, x: Scale, top: float) -> Safe | None:
    if bar.low is None or bar.high is None or bar.high <= bar.low:
        return None
    y = top + _THICK / 2
    low, high = x(bar.low), x(bar.high)
    return tag("path", d=f"M{low:.1f} {y - 4}v8m0 -4H{high:.1f}m0 -4v8", class_="range")
