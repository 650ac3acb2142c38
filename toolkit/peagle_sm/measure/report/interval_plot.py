"""Ratios with their intervals as the cells of a table, all on one logarithmic axis with 1 marked. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from peagle_sm.core.display.markup import Safe, tag
from peagle_sm.measure.records import Interval
from peagle_sm.measure.report import words
from peagle_sm.measure.report.looks import Look, marker
from peagle_sm.measure.report.scale import Scale, ratio_ticks

_WIDTH, _HEIGHT, _PAD = 300.0, 26.0, 14.0
_LABEL = 28.0  # how far apart two labels must be


@dataclass(frozen=True)
class IntervalAxis:
    """The axis that a column of cells shares."""

    scale: Scale
    ticks: tuple[float, ...]

    @classmethod
    def over(cls, intervals: Iterable[Interval]) -> IntervalAxis:
        """An axis that holds every interval, and 1."""
        found = list(intervals)
        low = min([0.98, *(each.low for each in found)])
        high = max([1.02, *(each.high for each in found)])
        margin = (high / low) ** 0.04
        low, high = low / margin, high * margin
        ticks = tuple(ratio_ticks(low, high))
        return cls(Scale(low, high, _PAD, _WIDTH - _PAD, log=True), ticks)

    def head(self) -> Safe:
        """The axis itself, for the column's head; labels that would touch are left out, 1 never is."""
        shown: list[float] = []
        for tick in sorted(self.ticks, key=lambda tick: (tick != 1.0, tick)):
            if all(abs(self.scale(tick) - self.scale(other)) >= _LABEL for other in shown):
                shown.append(tick)
        return _cell(*(self._label(tick, end=tick in (min(shown), max(shown))) for tick in shown))

    def _label(self, tick: float, *, end: bool) -> Safe:
        # On a phone only 1 and the ends are kept: the others would touch.
        kind = "tick one" if tick == 1 else "tick end" if end else "tick"
        return tag("text", words.axis(tick), x=self.scale(tick), y=20, class_=kind, text_anchor="middle")

    def cell(self, interval: Interval, look: Look) -> Safe:
        """One interval: its line, its ends, its value; hollow where 1 lies inside."""
        low, high, x = (self.scale(v) for v in (interval.low, interval.high, interval.value))
        y = _HEIGHT / 2
        return _cell(
            *(self._rule(tick) for tick in self.ticks),
            tag(
                "g",
                tag("path", d=f"M{low:.1f} {y - 4}v8m0 -4H{high:.1f}m0 -4v8", class_="interval"),
                marker(look.shape, x, y, 4.2, hollow=not interval.shown),
                class_=look.classes,
            ),
        )

    def _rule(self, tick: float) -> Safe:
        x = self.scale(tick)
        return tag("line", x1=x, x2=x, y1=0, y2=_HEIGHT, class_="one" if tick == 1 else "grid")


def _cell(*content: Safe) -> Safe:
    return tag(
        "svg",
        *content,
        viewBox=f"0 0 {_WIDTH:g} {_HEIGHT:g}",
        class_="cell",
        aria_hidden="true",
    )
