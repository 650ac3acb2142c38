"""Each line's name at its end, where it can be read: a legend costs the eye a walk for every line. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from peagle_sm.core.markup import Safe, join, tag
from peagle_sm.measure.report.frame import text_width
from peagle_sm.measure.report.looks import Look
from peagle_sm.measure.report.scale import spread

_GAP = 16.0
Place = tuple[float, float]


@dataclass(frozen=True)
class Line:
    """A name, and where its line runs, in pixels from left to right."""

    name: str
    look: Look
    places: tuple[Place, ...]


def draw(lines: Sequence[Line], right: float, top: float, bottom: float) -> Safe:
    """Names to the right of the plot, moved apart where lines end together, a hair line leading back.

    A line that ends early has its name beside its own end instead, on the side with more room.
    """
    named = [line for line in lines if line.places and line.name]
    late = [line for line in named if line.places[-1][0] >= right - 1]
    heights = spread([line.places[-1][1] for line in late], _GAP, top, bottom)
    parts = [_at_right(line, right, height) for line, height in zip(late, heights, strict=True)]
    parts += [_beside(line, lines, bottom) for line in named if line not in late]
    return join(*parts)


def _at_right(line: Line, right: float, height: float) -> Safe:
    x, y = line.places[-1]
    lead = None
    if abs(height - y) > 5:
        lead = tag("path", d=f"M{x + 7:.1f} {y:.1f}L{right + 16:.1f} {height:.1f}", class_="lead")
    text = tag("text", line.name, x=right + 20, y=height + 4, class_="name")
    return tag("g", lead, text, class_=line.look.classes)


def _beside(line: Line, lines: Sequence[Line], bottom: float) -> Safe:
    x, y = line.places[-1]
    width = text_width(line.name)
    candidates = [(x + 10, y + 4), (x + 6, y + 20), (x + 6, y - 12)]
    allowed = [place for place in candidates if place[1] < bottom - 2] or candidates
    best = max(allowed, key=lambda place: _room(place, width, line, lines))
    return tag("text", line.name, x=best[0], y=best[1], class_=f"name {line.look.classes}")


def _room(place: Place, width: float, line: Line, lines: Sequence[Line]) -> float:
    """The least distance between the name's middle and another line along the name."""
    steps = [place[0] + width * part / 6 for part in range(7)]
    others = [other for other in lines if other is not line]
    found = [
        abs(height - (place[1] - 4))
        for other in others
        for step in steps
        if (height := _height_at(other, step)) is not None
    ]
    return min(found, default=float("inf"))


def _height_at(line: Line, x: float) -> float | None:
    for (x0, y0), (x1, y1) in zip(line.places, line.places[1:], strict=False):
        if x0 <= x <= x1:
            return y0 + (y1 - y0) * (x - x0) / ((x1 - x0) or 1)
    return None
