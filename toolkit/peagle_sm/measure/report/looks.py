"""Which colour and marker an arm has, the same in every chart and table. Pure.

The hues are Okabe and Ito's, which readers with any colour vision tell apart, darkened or lightened in the
style sheet until they can be read as text; the marker says it once more, for print without colour.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from peagle_sm.core.display.markup import Safe, tag
from peagle_sm.measure.records import ArmRecord

Shape = Literal["circle", "square", "diamond", "triangle", "cross"]
_OWN = {"p-eagle": "blue", "eagle3": "orange", "none": "grey"}
_OTHERS = ("purple", "green", "sky", "brown", "pink")
_SHAPES: dict[str, Shape] = {
    "blue": "circle",
    "orange": "square",
    "grey": "diamond",
    "purple": "triangle",
    "green": "cross",
    "sky": "square",
    "brown": "diamond",
    "pink": "circle",
}


@dataclass(frozen=True)
class Look:
    """``hue`` is a class of the style sheet; ``faint`` arms are controls, drawn thinner."""

    hue: str
    shape: Shape
    faint: bool = False

    @property
    def classes(self) -> str:
        """For the ``class`` of an element that is drawn in the current colour."""
        return f"h-{self.hue}" + (" faint" if self.faint else "")


def looks_of(arms: Sequence[ArmRecord]) -> dict[str, Look]:
    """Give each arm its look: the first of a mode its mode's own colour, further ones the others in turn."""
    taken: set[str] = set()
    looks = {}
    spare = [*_OTHERS]
    for arm in arms:
        own = _OWN.get(arm.mode)
        if own is None or own in taken:
            own = spare.pop(0) if spare else _OTHERS[-1]
        taken.add(own)
        looks[arm.name] = Look(own, _SHAPES[own], arm.control)
    return looks


def marker(shape: Shape, x: float, y: float, size: float = 4.0, *, hollow: bool = False) -> Safe:
    """The marker's SVG at (x, y), in the current colour; hollow ones show the page."""
    kind = "hollow" if hollow else "solid"
    if shape == "circle":
        return tag("circle", cx=x, cy=y, r=size, class_=kind)
    if shape == "square":
        side = size * 1.8
        return tag("rect", x=x - side / 2, y=y - side / 2, width=side, height=side, class_=kind)
    if shape == "diamond":
        d = size * 1.35
        return _path(f"M{x:.1f} {y - d:.1f}l{d:.1f} {d:.1f}l{-d:.1f} {d:.1f}l{-d:.1f} {-d:.1f}z", kind)
    if shape == "triangle":
        d = size * 1.3
        return _path(f"M{x:.1f} {y - d:.1f}l{d:.1f} {1.8 * d:.1f}h{-2 * d:.1f}z", kind)
    d = size * 0.9
    return _path(
        f"M{x - d:.1f} {y - d:.1f}l{2 * d:.1f} {2 * d:.1f}m0 {-2 * d:.1f}l{-2 * d:.1f} {2 * d:.1f}", "stroke"
    )


def _path(d: str, kind: str) -> Safe:
    return tag("path", d=d, class_=kind)


def swatch(look: Look) -> Safe:
    """The marker on its own, to stand before an arm's name in a table."""
    return tag(
        "svg",
        marker(look.shape, 6, 6, 4),
        class_=f"swatch {look.classes}",
        viewBox="0 0 12 12",
        width="12",
        height="12",
        aria_hidden="true",
    )
