"""Formats of figures, names, colours and markers for all charts and tables. Pure.

A missing figure is a dash, never 0. The hues are Okabe and Ito's, which readers with any colour vision can
distinguish; the style sheet darkens or lightens them to be readable as text. Markers repeat the distinction
for print without colour.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from peagle_bench.results.records import ArmRecord, Interval

DASH = "–"  # noqa: RUF001 (an en dash is what it is)


def number(value: float | None, digits: int = 3) -> str:
    """Format ``1,167`` ``97.3`` ``3.94``: about ``digits`` significant digits, with thousands commas."""
    if value is None:
        return DASH
    size = abs(value)
    if size >= 10 ** (digits - 1) or (value == int(value) and size >= 100):
        return f"{value:,.0f}"
    decimals = digits - 1 if size < 10 else digits - 2
    if 0 < size < 0.1:
        return f"{value:.{digits}g}"
    return f"{value:.{decimals}f}"


def axis(value: float) -> str:
    """Format a tick's label: ``1,500`` ``2.5`` ``0``."""
    return f"{value:,.0f}" if value == int(value) else f"{value:,.4f}".rstrip("0")


def ratio(value: float) -> str:
    """Format ``1.31x``."""
    return f"{value:.2f}x"


def span(interval: Interval) -> str:
    """Format ``[1.20, 1.42]``."""
    return f"[{interval.low:.2f}, {interval.high:.2f}]"


def with_span(interval: Interval | None) -> str:
    """Format ``1.31x [1.20, 1.42]``; a dash for None."""
    return DASH if interval is None else f"{ratio(interval.value)} {span(interval)}"


def share(value: float | None) -> str:
    """Format ``97%``; ``<1%`` for small positive shares."""
    if value is None:
        return DASH
    return "<1%" if 0 < value < 0.005 else f"{100 * value:.0f}%"


def usd(value: float | None) -> str:
    """Format ``0.43`` ``12.40`` ``1,250`` (USD, without the unit); small sums have two significant digits."""
    if value is None:
        return DASH
    if 0 < abs(value) < 0.1:
        return f"{value:.2g}"
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:,.2f}"


def plural(count: int, word: str) -> str:
    """Format ``1 prompt``, ``96 prompts``."""
    return f"{count:,} {word}" + ("" if count == 1 else "s")


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
    """Colour and marker of an arm; ``hue`` is a CSS class, ``faint`` marks controls."""

    hue: str
    shape: Shape
    faint: bool = False

    @property
    def classes(self) -> str:
        """Value of the ``class`` attribute for elements in the current colour."""
        return f"h-{self.hue}" + (" faint" if self.faint else "")


def looks_of(arms: Sequence[ArmRecord]) -> dict[str, Look]:
    """Choose each arm's look: its mode's colour for the first arm of a mode, else a spare one."""
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
