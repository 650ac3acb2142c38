"""What every chart shares: the frame, the axes, the words for those who cannot see it. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from peagle_sm.core.display.markup import Content, Safe, tag
from peagle_sm.measure.report.scale import Scale

CHARACTER = 6.7
"""Width of an average character at the charts' 12 px, rounded up: a label must not be cut."""


@dataclass(frozen=True)
class Size:
    """The chart's own pixels; the page scales it to its column."""

    width: float
    height: float


WIDE, HALF, THIRD, NARROW = Size(620, 310), Size(520, 270), Size(360, 270), Size(350, 270)


class Chart(Protocol):
    """What can be drawn at any size; ``y_title`` says what its figures are."""

    @property
    def y_title(self) -> str:
        """What is drawn, with its unit."""

    @property
    def watermark(self) -> str | None:
        """Whose figures these are not."""

    def __call__(self, size: Size, identity: str) -> Safe:
        """Draw it; ``identity`` is an id that no other drawing has."""


def text_width(text: str) -> float:
    """About how many pixels ``text`` takes at the charts' size of type."""
    return len(text) * CHARACTER


def fitted(text: str, width: float) -> str:
    """Shorten ``text`` in its middle so that it fits; the table beside the chart has it whole."""
    most = max(3, int(width / CHARACTER))
    if len(text) <= most:
        return text
    head = most // 2
    return f"{text[:head]}…{text[len(text) - (most - 1 - head) :]}"


def svg(size: Size, title: str, description: str, *content: Content, identity: str) -> Safe:
    """The chart's element, with its title and description for a screen reader."""
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
    """Fine lines across, their values at the left."""
    rows = []
    for value, label in zip(ticks, labels, strict=True):
        y = scale(value)
        rows.append(tag("line", x1=left, x2=right, y1=y, y2=y, class_="zero" if value == 0 else "grid"))
        rows.append(tag("text", label, x=left - 8, y=y + 4, class_="tick", text_anchor="end"))
    return tag("g", *rows, aria_hidden="true")


def x_axis(scale: Scale, ticks: Sequence[float], labels: Sequence[str], bottom: float, title: str) -> Safe:
    """Values below, and what they are."""
    marks = []
    for value, label in zip(ticks, labels, strict=True):
        x = scale(value)
        marks.append(tag("line", x1=x, x2=x, y1=bottom, y2=bottom + 4, class_="tickline"))
        marks.append(tag("text", label, x=x, y=bottom + 18, class_="tick", text_anchor="middle"))
    middle = (scale.start + scale.end) / 2
    marks.append(tag("text", title, x=middle, y=bottom + 36, class_="axis", text_anchor="middle"))
    return tag("g", *marks, aria_hidden="true")


def both(chart: Chart, identity: str, wide: Size = WIDE) -> Safe:
    """The chart under its caption, for wide and for narrow pages; the style sheet shows one of them.

    The caption carries the watermark: whoever copies the chart copies whose figures these are not.
    """
    mark = tag("span", chart.watermark, class_="watermark") if chart.watermark else None
    return tag(
        "figure",
        tag("figcaption", tag("span", chart.y_title), mark),
        tag("div", chart(wide, f"{identity}-w"), class_="wide"),
        tag("div", chart(NARROW, f"{identity}-n"), class_="narrow"),
    )
