"""Building blocks of the report page: sections, tables, and charts of one figure by load. Pure.

A figure is a line for each arm, or bars where there is a single load.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from statistics import median

from peagle_bench.report import formatting
from peagle_bench.report.charts import WIDE, Bar, BarChart, LineChart, Mark, Series, Size, both
from peagle_bench.report.formatting import swatch
from peagle_bench.report.view import View, load_value
from peagle_bench.results.records import ArmRecord, Load, PointRecord
from peagle_sm.core.display import Content, Safe, Table, join, tag


@dataclass(frozen=True)
class Section:
    """Section of the page; ``lead`` is a sentence computed from its figures."""

    id: str
    title: str
    lead: str
    body: Safe


def doubts(view: View, lines_of: Callable[[Iterable[PointRecord]], list[str]]) -> Safe | None:
    """List the notes on a section's figures that ``lines_of`` returns for the points."""
    told = lines_of(replace(point, arm=view.label(point.arm)) for point in view.points)
    return tag("ul", *(tag("li", line) for line in told), class_="note") if told else None


def section(one: Section) -> Safe:
    """Make the section's markup."""
    return tag(
        "section",
        tag("h2", one.title, id=f"{one.id}-h"),
        tag("p", one.lead, class_="lead") if one.lead else None,
        one.body,
        id=one.id,
        aria_labelledby=f"{one.id}-h",
    )


def arm_cell(view: View, name: str) -> Safe:
    """Format an arm's name with its marker."""
    return join(swatch(view.look(name)), tag("span", view.label(name)))


def table(
    heads: Sequence[Content],
    rows: Iterable[Sequence[Content]],
    *,
    caption: str,
    words: Iterable[int] = (0,),
    titled: bool = False,
) -> Safe:
    """Make a table; columns are right-aligned figures unless their index is in ``words``.

    A row of one cell is the title of the rows below it.

    ``titled``: a heading is already above the table, so the caption is only for screen readers.
    """
    left = set(words)

    def cell(kind: str, at: int, content: Content, **more: str) -> Safe:
        return tag(kind, content, class_="w" if at in left else None, **more)

    head = tag("tr", *(cell("th", at, content, scope="col") for at, content in enumerate(heads)))
    body = [
        tag("tr", *(cell("th" if at == 0 else "td", at, content) for at, content in enumerate(row)))
        if len(row) > 1
        else tag(
            "tr", tag("th", row[0], colspan=str(len(heads)), scope="rowgroup", class_="w"), class_="over"
        )
        for row in rows
    ]
    return tag(
        "div",
        tag(
            "table",
            tag("caption", caption, class_="heard" if titled else None),
            tag("thead", head),
            tag("tbody", *body),
        ),
        class_="scroll",
        tabindex="0",
        role="region",
        aria_label=caption,
    )


def shown(found: Table | None, caption: str) -> Safe | None:
    """Make the markup of a report's table; None without one."""
    if found is None:
        return None
    left = [at for at, head in enumerate(found.heads) if head not in found.right]
    return table(found.heads, found.rows, caption=caption, words=left)


def pair(chart: Safe, beside: Safe) -> Safe:
    """Put a chart and its table side by side if there is room."""
    return tag("div", chart, beside, class_="pair")


def grid(*charts: Safe) -> Safe:
    """Put several small charts in rows of two, or of three if that leaves no gap."""
    kind = "multiples three" if len(charts) % 3 == 0 else "multiples"
    return tag("div", *charts, class_=kind)


def folded(summary: str, *content: Safe) -> Safe:
    """Make a collapsible block: closed on screen, open in print."""
    return tag("details", tag("summary", summary), *content)


Value = Callable[[PointRecord], float | None]
KINDS = ("closed", "open")
_X_TITLE = {"closed": "concurrency", "open": "requests per second, sent"}


@dataclass(frozen=True)
class Figure:
    """Figure to draw: ``name`` includes the unit; ``log`` allows a logarithmic y axis."""

    id: str
    name: str
    value: Value
    controls: bool = False
    log: bool = False


def values(view: View, figure: Figure, arm: str, load: Load) -> tuple[float, float, float] | None:
    """Compute median, minimum and maximum over the runs of an arm under a load; None without any."""
    found = [v for point in view.measured(arm, load) if (v := figure.value(point)) is not None]
    return (median(found), min(found), max(found)) if found else None


def _arms(view: View, figure: Figure, kind: str) -> list[ArmRecord]:
    return [
        arm
        for arm in view.arms
        if (figure.controls or not arm.control)
        and any(values(view, figure, arm.name, load) for load in view.loads(kind))
    ]


def charts(view: View, figure: Figure, wide: Size = WIDE) -> Safe | None:
    """Draw the figure's charts for closed and open loops; None without a value."""
    drawn = [
        both(chart, f"{figure.id}-{kind}", wide) for kind in KINDS if (chart := _chart(view, figure, kind))
    ]
    return tag("div", *drawn, class_="stack") if len(drawn) > 1 else join(*drawn) if drawn else None


def _chart(view: View, figure: Figure, kind: str) -> LineChart | BarChart | None:
    arms = _arms(view, figure, kind)
    loads = [load for load in view.loads(kind) if any(values(view, figure, arm.name, load) for arm in arms)]
    if not arms or (len(arms) == len(loads) == 1):  # a single figure needs no chart
        return None
    if len(loads) == 1:
        return _bars(view, figure, arms, loads[0])
    series = tuple(
        Series(view.label(arm.name), view.look(arm.name), _marks(view, figure, arm.name, loads))
        for arm in arms
    )
    return LineChart(
        title=f"{figure.name}, by {_X_TITLE[kind]}",
        description=_description(view, figure, arms, loads),
        series=series,
        x_title=_X_TITLE[kind],
        y_title=figure.name,
        x_ticks=tuple(load_value(load) for load in loads),
        x_log=load_value(loads[-1]) / max(load_value(loads[0]), 1e-9) >= 8,
        y_log=figure.log and _spans(view, figure, arms, loads),
        watermark=view.watermark,
    )


def _spans(view: View, figure: Figure, arms: list[ArmRecord], loads: list[Load]) -> bool:
    """Decide whether the values differ so much that a linear axis would hide most of them."""
    found = [v[0] for arm in arms for load in loads if (v := values(view, figure, arm.name, load))]
    return min(found) > 0 and max(found) / min(found) > 8


def _marks(view: View, figure: Figure, arm: str, loads: list[Load]) -> tuple[Mark, ...]:
    found = ((load, values(view, figure, arm, load)) for load in loads)
    return tuple(Mark(load_value(load), *value) for load, value in found if value)


def _bars(view: View, figure: Figure, arms: list[ArmRecord], load: Load) -> BarChart:
    found = ((arm.name, values(view, figure, arm.name, load)) for arm in arms)
    return BarChart(
        title=f"{figure.name}, at {load.label}",
        description=_description(view, figure, arms, [load]),
        bars=tuple(Bar(view.label(name), view.look(name), *value) for name, value in found if value),
        x_title=figure.name,
        watermark=view.watermark,
    )


def _description(view: View, figure: Figure, arms: list[ArmRecord], loads: list[Load]) -> str:
    """Describe the chart in words: each arm at its first and last load."""
    parts = []
    for arm in arms:
        ends = [(load, values(view, figure, arm.name, load)) for load in dict.fromkeys((loads[0], loads[-1]))]
        said = ", ".join(f"{formatting.number(value[0])} at {load.label}" for load, value in ends if value)
        parts.append(f"{view.label(arm.name)}: {said}")
    return ". ".join(parts) + ". All values are in the table."


def pivot(
    view: View, figure: Figure, caption: str, show: Callable[[float | None], str] = formatting.number
) -> Safe:
    """Make a table of the figure: a row for each load, a column for each arm."""
    arms = {arm.name: arm for kind in KINDS for arm in _arms(view, figure, kind)}
    loads = view.loads()
    rows: list[list[Content]] = []
    for load in loads:
        found = {name: values(view, figure, name, load) for name in arms}
        if any(found.values()):
            rows.append([load.label, *(show(value[0] if value else None) for value in found.values())])
    heads = ["load", *(arm_cell(view, name) for name in arms)]
    several = any(len(view.measured(name, load)) > 1 for name in arms for load in loads)
    return table(heads, rows, caption=f"{caption} (the median of several runs)" if several else caption)
