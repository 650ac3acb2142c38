"""A section of the page, and the tables in it. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace

from peagle_sm.core.display.markup import Content, Safe, join, tag
from peagle_sm.measure.records import PointRecord
from peagle_sm.measure.report.looks import swatch
from peagle_sm.measure.report.view import View


@dataclass(frozen=True)
class Section:
    """``lead`` is what the section shows, in a sentence that is computed from its figures."""

    id: str
    title: str
    lead: str
    body: Safe


def doubts(view: View, lines_of: Callable[[Iterable[PointRecord]], list[str]]) -> Safe | None:
    """What must be read beside a section's figures: the lines that ``lines_of`` finds for the points."""
    told = lines_of(replace(point, arm=view.label(point.arm)) for point in view.points)
    return tag("ul", *(tag("li", line) for line in told), class_="note") if told else None


def section(one: Section) -> Safe:
    """The section as markup."""
    return tag(
        "section",
        tag("h2", one.title, id=f"{one.id}-h"),
        tag("p", one.lead, class_="lead") if one.lead else None,
        one.body,
        id=one.id,
        aria_labelledby=f"{one.id}-h",
    )


def arm_cell(view: View, name: str) -> Safe:
    """An arm's name with its marker."""
    return join(swatch(view.look(name)), tag("span", view.label(name)))


def table(
    heads: Sequence[Content],
    rows: Iterable[Sequence[Content]],
    *,
    caption: str,
    words: Iterable[int] = (0,),
    titled: bool = False,
) -> Safe:
    """A table; columns are figures (to the right) unless their place is in ``words``.

    ``titled`` says that a heading stands above it already: the caption is then for screen readers alone.
    """
    left = set(words)

    def cell(kind: str, at: int, content: Content, **more: str) -> Safe:
        return tag(kind, content, class_="w" if at in left else None, **more)

    head = tag("tr", *(cell("th", at, content, scope="col") for at, content in enumerate(heads)))
    body = [
        tag("tr", *(cell("th" if at == 0 else "td", at, content) for at, content in enumerate(row)))
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


def pair(chart: Safe, beside: Safe) -> Safe:
    """A chart and its table, side by side where there is room."""
    return tag("div", chart, beside, class_="pair")


def grid(*charts: Safe) -> Safe:
    """Several small charts: two in a row, or three where that leaves no gap."""
    kind = "multiples three" if len(charts) % 3 == 0 else "multiples"
    return tag("div", *charts, class_=kind)


def folded(summary: str, *content: Safe) -> Safe:
    """What only some readers want: closed on a screen, open on paper."""
    return tag("details", tag("summary", summary), *content)
