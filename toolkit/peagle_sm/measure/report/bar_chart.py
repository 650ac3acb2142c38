"""Bars side by side: one figure for each arm, where there is only one load. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from peagle_sm.core.display.markup import Safe, tag
from peagle_sm.measure.report import frame, words
from peagle_sm.measure.report.frame import Size
from peagle_sm.measure.report.looks import Look
from peagle_sm.measure.report.scale import Scale


@dataclass(frozen=True)
class Bar:
    """One arm's figure; ``low`` and ``high`` are the range over repeated runs."""

    name: str
    look: Look
    value: float
    low: float | None = None
    high: float | None = None


@dataclass(frozen=True)
class BarChart:
    """Lying bars from 0, the name above each, the figure at its end."""

    title: str
    description: str
    bars: tuple[Bar, ...]
    y_title: str
    watermark: str | None = None

    def __call__(self, size: Size, identity: str) -> Safe:
        """Draw it; the height follows from the number of bars."""
        return _draw(self, size, identity)


_ROW, _THICK = 50.0, 20.0


def _draw(chart: BarChart, size: Size, identity: str) -> Safe:
    high = max((bar.high or bar.value for bar in chart.bars), default=1.0) or 1.0
    room = max(frame.text_width(words.number(bar.value)) for bar in chart.bars) + 14
    x = Scale(0.0, high, 0.0, size.width - room)
    rows = []
    for at, bar in enumerate(chart.bars):
        top = at * _ROW + 22
        end = x(bar.value)
        rows.append(
            tag(
                "g",
                tag("text", bar.name, x=0, y=top - 6, class_="name"),
                tag("rect", x=0, y=top, width=max(end, 1.0), height=_THICK, rx=2, class_="bar"),
                _range(bar, x, top),
                tag("text", words.number(bar.value), x=_after(bar, x) + 8, y=top + 15, class_="value"),
                class_=bar.look.classes,
            )
        )
    fitted = Size(size.width, _ROW * len(chart.bars))
    return frame.svg(
        fitted,
        chart.title,
        chart.description,
        *rows,
        identity=identity,
    )


def _after(bar: Bar, x: Scale) -> float:
    return x(max(bar.value, bar.high or 0.0))


def _range(bar: Bar, x: Scale, top: float) -> Safe | None:
    if bar.low is None or bar.high is None or bar.high <= bar.low:
        return None
    y = top + _THICK / 2
    low, high = x(bar.low), x(bar.high)
    return tag("path", d=f"M{low:.1f} {y - 4}v8m0 -4H{high:.1f}m0 -4v8", class_="range")
