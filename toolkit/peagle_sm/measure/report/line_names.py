"""Each line's name at its end, where it can be read: a legend costs the eye a walk for every line. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from peagle_sm.core.display.markup import Safe, join, tag
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
    """Names in a column to the right of the plot, moved apart, a hair line leading to each line's end."""
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
