"""Building blocks of the report page: a section is a list of tables, charts and notes. Pure.

Each block has a template of its own, so ``{{ block }}`` renders it in any other.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

from peagle_bench.report.charts import (
    HALF,
    Bar,
    BarChart,
    Chart,
    ChartFigure,
    LineChart,
    Mark,
    Series,
)
from peagle_bench.report.formatting import Look
from peagle_bench.report.rendering import Rendered
from peagle_bench.report.view import View, load_value
from peagle_bench.results.records import Load, PointRecord
from peagle_sm.core.display import Table


@dataclass(frozen=True)
class Section:
    """Section of the page; ``lead`` is a sentence computed from its figures."""

    id: str
    title: str
    lead: str
    blocks: Sequence[Rendered]


@dataclass(frozen=True)
class Notes(Rendered):
    """A list of sentences; ``kind`` is their style."""

    lines: Sequence[str]
    kind: str = "note"
    template: ClassVar[str] = "notes.html"


def doubts(view: View, lines_of: Callable[[Iterable[PointRecord]], list[str]]) -> list[Notes]:
    """Return the notes on a section's figures that ``lines_of`` makes from the points, if there are any."""
    lines = lines_of(replace(point, arm=view.label(point.arm)) for point in view.points)
    return [Notes(lines)] if lines else []


@dataclass(frozen=True)
class Folded(Rendered):
    """Blocks that a click opens; open in print."""

    summary: str
    blocks: Sequence[Rendered]
    template: ClassVar[str] = "folded.html"


@dataclass(frozen=True)
class Beside(Rendered):
    """Two blocks side by side on a wide page."""

    left: Rendered
    right: Rendered
    template: ClassVar[str] = "beside.html"


@dataclass(frozen=True)
class Grid(Rendered):
    """Charts in rows of two, or of three if that leaves no gap."""

    charts: Sequence[ChartFigure]
    template: ClassVar[str] = "grid.html"


@dataclass(frozen=True)
class ArmName(Rendered):
    """An arm's name with its marker."""

    label: str
    look: Look
    template: ClassVar[str] = "arm.html"


@dataclass(frozen=True)
class PairName(Rendered):
    """The names of two compared arms."""

    faster: ArmName
    slower: ArmName
    template: ClassVar[str] = "pair.html"


@dataclass(frozen=True)
class Badge(Rendered):
    """A result in words; ``kind`` (pass, fail or open) determines its colour."""

    kind: str
    text: str
    template: ClassVar[str] = "badge.html"


@dataclass(frozen=True)
class Ratio(Rendered):
    """A speed-up, emphasised if it is ``sure``; else ``reason`` says why it is not."""

    text: str
    sure: bool
    reason: str = ""
    template: ClassVar[str] = "ratio.html"


Cell = str | Rendered


def arm_cell(view: View, name: str) -> ArmName:
    """Return an arm's name with its marker."""
    return ArmName(view.label(name), view.look(name))


def pair_cell(view: View, faster: str, slower: str) -> PairName:
    """Return the names of two arms with their markers."""
    return PairName(arm_cell(view, faster), arm_cell(view, slower))


@dataclass(frozen=True)
class PageTable(Rendered):
    """Table of the page; columns are right-aligned figures unless their index is in ``words``.

    A row of one cell is the title of the rows below it.
    """

    heads: Sequence[Cell]
    rows: Sequence[Sequence[Cell]]
    caption: str
    words: Sequence[int] = (0,)
    template: ClassVar[str] = "table.html"


def page_tables(*tables: Table | None) -> list[PageTable]:
    """Return a report's tables as tables of the page, without those that are None."""
    return [
        PageTable(
            table.heads,
            table.rows,
            table.title,
            [at for at, head in enumerate(table.heads) if head not in table.right],
        )
        for table in tables
        if table is not None
    ]


_X_TITLE = {"closed": "concurrency", "open": "requests per second, sent"}


@dataclass(frozen=True)
class Figure:
    """Figure to draw: ``name`` includes the unit; ``log`` allows a logarithmic y axis."""

    name: str
    value: Callable[[PointRecord], float | None]
    log: bool = False


def values(view: View, figure: Figure, loads: Iterable[Load]) -> dict[str, dict[Load, float]]:
    """Return the figure of each arm that has it, by load; without the control arms."""
    by_arm: dict[str, dict[Load, float]] = {}
    for arm in view.arms:
        for load in loads:
            for point in view.measured(arm.name, load):
                if not arm.control and (value := figure.value(point)) is not None:
                    by_arm.setdefault(arm.name, {})[load] = value
    return by_arm


def charts(view: View, *figures: Figure) -> list[ChartFigure]:
    """Return the charts of each figure for closed and for open loops; none without a value."""
    every = [_chart(view, figure, kind) for figure in figures for kind in _X_TITLE]
    return [ChartFigure(chart, HALF) for chart in every if chart is not None]


def _chart(view: View, figure: Figure, kind: str) -> Chart | None:
    """Draw lines for the arms, or bars where there is a single load."""
    by_arm = values(view, figure, view.loads(kind))
    loads = [load for load in view.loads(kind) if any(load in each for each in by_arm.values())]
    if not by_arm or (len(by_arm) == len(loads) == 1):  # a single figure needs no chart
        return None
    if len(loads) == 1:
        bars = (Bar(view.label(arm), view.look(arm), each[loads[0]]) for arm, each in by_arm.items())
        return BarChart(f"{figure.name}, at {loads[0].label}", tuple(bars), figure.name, view.watermark)
    drawn = [value for each in by_arm.values() for value in each.values()]
    return LineChart(
        title=f"{figure.name}, by {_X_TITLE[kind]}",
        series=tuple(
            Series(
                view.label(arm),
                view.look(arm),
                tuple(Mark(load_value(load), value) for load, value in each.items()),
            )
            for arm, each in by_arm.items()
        ),
        x_title=_X_TITLE[kind],
        y_title=figure.name,
        x_ticks=tuple(load_value(load) for load in loads),
        x_log=load_value(loads[-1]) / max(load_value(loads[0]), 1e-9) >= 8,
        # A linear axis would hide most of values that differ so much.
        y_log=figure.log and min(drawn) > 0 and max(drawn) / min(drawn) > 8,
        watermark=view.watermark,
    )
