"""What every chart shares: the frame, the axes, the words for those who cannot see it. Pure."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from peagle_sm.measure.report.markup import Content, Safe, join, tag
from peagle_sm.measure.report.scale import Scale

DrawnAt = Callable[["Size", str], Safe]
"""Draws a chart at a size; the text is an id of its own."""
CHARACTER = 6.7
"""Width of an average character at the charts' 12 px, rounded up: a label must not be cut."""


@dataclass(frozen=True)
class Size:
    """The chart's own pixels; the page scales it to its column."""

    width: float
    height: float


WIDE, NARROW = Size(620, 330), Size(350, 290)


def text_width(text: str) -> float:
    """About how many pixels ``text`` takes at the charts' size of type."""
    return len(text) * CHARACTER


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


def heading(text: str, mark: str | None, right: float) -> Safe:
    """What the upright axis shows, above it; at the far end whose figures these are not (stand-ins)."""
    parts = [tag("text", text, x=0, y=14, class_="axis")]
    if mark:
        parts.append(tag("text", mark, x=right, y=14, class_="watermark", text_anchor="end"))
    return join(*parts)


def both(draw: DrawnAt, identity: str, wide: Size = WIDE) -> Safe:
    """The chart for wide and for narrow pages; the style sheet shows one of them."""
    return join(
        tag("div", draw(wide, f"{identity}-w"), class_="wide"),
        tag("div", draw(NARROW, f"{identity}-n"), class_="narrow"),
    )
