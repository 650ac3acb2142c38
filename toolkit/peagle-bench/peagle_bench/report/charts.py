"""Charts: line charts, bar charts and intervals in a table's cell, with scales, ticks and places. Pure.

This module computes where everything is; the templates ``*.svg`` draw it. Every axis has a title with its
unit. A line's name is at its end, so no legend is needed. Each chart has a description for screen readers.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import ClassVar

from peagle_bench.report import formatting
from peagle_bench.report.formatting import Look
from peagle_bench.report.rendering import Rendered
from peagle_bench.results.records import Interval


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


CHARACTER = 6.7
"""Width of an average character at the charts' 12 px, rounded up: a label must not be cut."""


@dataclass(frozen=True)
class Size:
    """The chart's own pixels; the page scales it to its column."""

    width: float
    height: float


WIDE, HALF, THIRD, NARROW = Size(620, 328), Size(520, 288), Size(360, 288), Size(350, 288)


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


_GAP = 16.0
Place = tuple[float, float]
MOST_READ = 12
"""Values of a line that its description has; of a longer line, only the first and the last."""
_TOP, _BOTTOM = 32.0, 46.0


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
    """One line with its name at its end; ``dashed`` is a fit, ``computed`` a line without markers."""

    name: str
    look: Look
    marks: tuple[Mark, ...]
    dashed: bool = False
    computed: bool = False


@dataclass(frozen=True)
class LineChart:
    """Line chart; ``guides`` are vertical lines with labels (the best K).

    ``x_title`` and ``y_title`` include the unit. ``shares``: the values are shares, and the y axis ends at 1.
    """

    title: str
    series: tuple[Series, ...]
    x_title: str
    y_title: str
    x_ticks: tuple[float, ...]
    x_log: bool = False
    y_zero: bool = True
    y_log: bool = False
    shares: bool = False
    guides: tuple[tuple[float, str, Look], ...] = ()
    watermark: str | None = None

    @property
    def description(self) -> str:
        """The values in words, for screen readers: all of a short line, both ends of a long one."""
        form = formatting.share if self.shares else formatting.number
        lines = []
        for line in self.series:
            marks = line.marks if len(line.marks) <= MOST_READ else (line.marks[0], line.marks[-1])
            values = (f"{form(mark.y)} at {formatting.axis(mark.x)}" for mark in marks)
            lines.append(f"{line.name}: {', '.join(values)}")
        return ". ".join(lines)

    def y_label(self, value: float) -> str:
        """Format a value of the y axis."""
        return formatting.share(value) if self.shares else formatting.axis(value)

    def at(self, size: Size) -> Lines:
        """Return the chart at a size, to be drawn."""
        bottom = size.height - _BOTTOM
        y_ticks = self._y_ticks()
        left = max(text_width(self.y_label(tick)) for tick in y_ticks) + 12
        longest = max((text_width(line.name) for line in self.series), default=0)
        room = min(longest + 22, size.width * 0.36)
        right = size.width - room
        x = Scale(min(self.x_ticks), max(self.x_ticks), left + 14, right - 10, self.x_log)
        y = Scale(y_ticks[0], y_ticks[-1], bottom, _TOP, self.y_log)
        return Lines(
            chart=self,
            size=size,
            left=left,
            right=right,
            bottom=bottom,
            x=x,
            y=y,
            x_ticks=_apart(self.x_ticks, x),
            y_ticks=y_ticks,
            guides=_guides(self.guides, x),
            names=_names(self.series, x, y, room - 20),
        )

    def _y_ticks(self) -> list[float]:
        drawn = [v for s in self.series for m in s.marks for v in (m.y, m.low, m.high) if v is not None]
        low, high = min(drawn, default=0.0), max(drawn, default=1.0)
        if self.y_log and low > 0:
            return decade_ticks(low, high)
        return nice_ticks(0.0 if self.y_zero else low, 1.0 if self.shares else high or 1.0)


@dataclass(frozen=True)
class LineName:
    """A line's name at the height ``y``; ``lead`` is the line's end if they are apart."""

    text: str
    look: Look
    y: float
    lead: Place | None


@dataclass(frozen=True)
class Guide:
    """A vertical line at ``x`` with its label, ``row`` lines below the top."""

    x: float
    text: str
    look: Look
    row: int
    left: bool  #: the label is left of the line


@dataclass(frozen=True)
class Lines(Rendered):
    """A line chart at a size: its scales, its grid's edges, and its ticks, guides and names, in pixels."""

    chart: LineChart
    size: Size
    left: float
    right: float
    bottom: float
    x: Scale
    y: Scale
    x_ticks: list[float]
    y_ticks: list[float]
    guides: list[Guide]
    names: list[LineName]
    top: ClassVar[float] = _TOP
    template: ClassVar[str] = "lines.svg"


def _apart(ticks: Iterable[float], scale: Scale) -> list[float]:
    """Choose the ticks whose label does not touch the previous one."""
    kept: list[float] = []
    for value in sorted(set(ticks)):
        width = text_width(formatting.axis(value)) + 8
        if not kept or scale(value) - scale(kept[-1]) >= width:
            kept.append(value)
    return kept


def _guides(guides: Iterable[tuple[float, str, Look]], scale: Scale) -> list[Guide]:
    """Place the vertical lines; labels that would touch go one below the other."""
    placed: list[Guide] = []
    for value, text, look in guides:
        x = scale(value)
        near = [each.row for each in placed if abs(each.x - x) < 2 * text_width(text) + 14]
        left = x + 6 + text_width(text) > scale.end
        placed.append(Guide(x, text, look, max(near, default=-1) + 1, left))
    return placed


def _names(series: Iterable[Series], x: Scale, y: Scale, width: float) -> list[LineName]:
    """Place the names in a column at the right, each linked to its line's end if they are apart."""
    named = [line for line in series if line.marks and line.name]
    ends = [(x(line.marks[-1].x), y(line.marks[-1].y)) for line in named]
    heights = spread([height for _, height in ends], _GAP, _TOP + 4, y.start)
    return [
        LineName(
            fitted(line.name, width),
            line.look,
            height,
            end if abs(height - end[1]) > 5 or end[0] < x.end - 1 else None,
        )
        for line, end, height in zip(named, ends, heights, strict=True)
    ]


@dataclass(frozen=True)
class Bar:
    """One arm's bar."""

    name: str
    look: Look
    value: float


@dataclass(frozen=True)
class BarChart:
    """Horizontal bar chart with names above the bars and figures at their ends.

    ``x_title`` includes the unit.
    """

    title: str
    bars: tuple[Bar, ...]
    x_title: str
    watermark: str | None = None

    @property
    def description(self) -> str:
        """The values in words, for screen readers."""
        return ". ".join(f"{bar.name}: {formatting.number(bar.value)}" for bar in self.bars)

    def at(self, size: Size) -> Bars:
        """Return the chart at a size's width, to be drawn; its height depends on the number of bars."""
        bottom = _ROW * len(self.bars)
        ticks = nice_ticks(0.0, max((bar.value for bar in self.bars), default=1.0) or 1.0)
        room = max(text_width(formatting.number(bar.value)) for bar in self.bars) + 14
        edge = text_width(formatting.axis(0.0)) / 2
        x = Scale(0.0, ticks[-1], edge, size.width - room)
        return Bars(self, Size(size.width, bottom + _BOTTOM), bottom, x, ticks)


_ROW = 50.0


@dataclass(frozen=True)
class Bars(Rendered):
    """A bar chart at a size: its scale, from the bars' left end, and its ticks, in pixels."""

    chart: BarChart
    size: Size
    bottom: float
    x: Scale
    x_ticks: list[float]
    row: ClassVar[float] = _ROW
    template: ClassVar[str] = "bars.svg"


Chart = LineChart | BarChart


@dataclass(frozen=True)
class ChartFigure(Rendered):
    """A chart with its caption, for wide and narrow pages; the style sheet shows one of them.

    The caption includes the watermark, so a copied chart keeps it.
    """

    chart: Chart
    wide: Size = WIDE
    narrow: ClassVar[Size] = NARROW
    template: ClassVar[str] = "figure.html"


_CELL, _PAD = Size(300.0, 26.0), 14.0
_LABEL = 28.0  # smallest distance of two labels


@dataclass(frozen=True)
class IntervalAxis:
    """Axis that the cells of a column share."""

    scale: Scale
    ticks: tuple[float, ...]

    @classmethod
    def over(cls, intervals: Iterable[Interval]) -> IntervalAxis:
        """Make an axis that includes every interval, and 1."""
        every = list(intervals)
        low = min([0.98, *(each.low for each in every)])
        high = max([1.02, *(each.high for each in every)])
        margin = (high / low) ** 0.04
        low, high = low / margin, high * margin
        ticks = tuple(ratio_ticks(low, high))
        return cls(Scale(low, high, _PAD, _CELL.width - _PAD, log=True), ticks)


@dataclass(frozen=True)
class AxisHead(Rendered):
    """The axis in the column's head; ``title`` says what it shows.

    ``sides``: what the intervals left and right of 1 mean.
    """

    axis: IntervalAxis
    title: str
    sides: tuple[str, str] | None = None
    size: ClassVar[Size] = _CELL
    template: ClassVar[str] = "axis.svg"

    @property
    def labels(self) -> list[float]:
        """The ticks with a label: those that would touch another are left out, except 1."""
        scale, kept = self.axis.scale, list[float]()
        for tick in sorted(self.axis.ticks, key=lambda tick: (tick != 1.0, tick)):
            if all(abs(scale(tick) - scale(other)) >= _LABEL for other in kept):
                kept.append(tick)
        return kept


@dataclass(frozen=True)
class IntervalCell(Rendered):
    """One interval with its value; the marker is hollow if it is ``doubtful`` or includes 1.

    ``doubtful``: there is no verdict. ``tone`` (good, bad or open) gives it the colour of its result, and
    shades the two sides of 1. Without an ``interval`` only the axis is drawn.
    """

    axis: IntervalAxis
    interval: Interval | None
    look: Look
    tone: str | None = None
    doubtful: bool = False
    size: ClassVar[Size] = _CELL
    template: ClassVar[str] = "interval.svg"
