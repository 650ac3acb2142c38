"""Cards: one view of a plan, a status or a result, as HTML and as text. Pure.

A terminal shows a card's text, a notebook its HTML. An output cannot detect the notebook's
theme, so text has the page's colour, lines are a transparent grey, and the few colours are readable on white
and on black. Styles are in the elements, because an untrusted notebook removes ``<style>``. Without styles a
card is plain tables.

The HTML is written by the standard library's `xml.etree`, which escapes all text: a card is shown without the
extra that has Jinja2.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import zip_longest
from typing import Any, Literal
from xml.etree.ElementTree import Element, SubElement, tostring

Tone = Literal["good", "bad", "caution", "plain"]
_COLOURS: dict[Tone, str] = {"good": "#2e9e5b", "bad": "#d64545", "caution": "#c07f00", "plain": "#808080"}
_SEVERITIES: dict[str, Tone] = {"error": "bad", "warning": "caution"}
_LINE = "rgba(128,128,128,.35)"
_CARD = (
    f"border:1px solid {_LINE};border-radius:6px;padding:.7em 1em;margin:.3em 0;max-width:64em;"
    "line-height:1.45"
)
_TABLE = "border-collapse:collapse;margin:.35em 0;font-size:.95em"
_FAINT = "opacity:.75"
_CELL = "padding:.15em .9em .15em 0;vertical-align:top"
_SHORT = 24
"""Maximum characters of a cell without line breaks: a long cell must not split `P-EAGLE`."""


@dataclass(frozen=True)
class Table:
    """A table; ``right`` lists number columns, a ``folded`` one opens by a click.

    Without ``heads`` its lines are kept as they are.
    """

    title: str
    heads: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    right: tuple[str, ...] = ()
    folded: bool = False


@dataclass(frozen=True)
class Note:
    """A sentence below the fields; ``label`` says in text what the ``tone``'s colour says."""

    text: str
    tone: Tone = "plain"
    label: str = "note"


@dataclass(frozen=True)
class Card:
    """A summary; ``tone`` is its border's colour, ``headline`` its main sentence."""

    title: str = ""
    headline: str = ""
    tone: Tone = "plain"
    fields: tuple[tuple[str, str], ...] = ()
    tables: tuple[Table, ...] = ()
    notes: tuple[Note, ...] = ()


class Shown:
    """Base of results that a notebook shows as a `card`, a terminal as its text."""

    def card(self) -> Card:
        """Return the card to show."""
        raise TypeError(f"{type(self).__name__} has no card")

    def __str__(self) -> str:
        return text(self.card())

    def _repr_html_(self) -> str:
        return html(self.card())

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> dict[str, str]:
        """Return HTML and text for IPython; both arguments are hints."""
        card = self.card()
        return {"text/html": html(card), "text/plain": text(card)}


def html(card: Card) -> str:
    """Return the card as one self-contained HTML element."""
    root = Element("div", style=f"{_CARD};border-left:5px solid {_COLOURS[card.tone]}")
    if card.title:
        _add(_add(root, "div"), "strong", card.title)
    if card.headline:
        _add(root, "div", card.headline, style="font-size:1.08em;margin:.15em 0 .3em")
    if card.fields:
        _add_fields(root, card.fields)
    for table in card.tables:
        _add_table(root, table)
    for note in card.notes:
        words = note.text if note.label == "note" else f"{note.label}: {note.text}"
        _add_marked(_add(root, "div", style="font-size:.92em;margin-top:.25em"), words, note.tone)
    return tostring(root, encoding="unicode", method="html")


def line_html(line: str, style: str) -> str:
    """Return a line as an HTML element of its own."""
    element = Element("div", style=style)
    element.text = line
    return tostring(element, encoding="unicode", method="html")


def _add(parent: Element, name: str, words: str = "", **attributes: str) -> Element:
    element = SubElement(parent, name, attributes)
    element.text = words
    return element


def _add_marked(element: Element, words: str, tone: Tone | None) -> None:
    """Write words in an element, after a dot in the colour of a tone; None for no dot."""
    if tone is None:
        element.text = words
        return
    mark = _add(element, "span", "● ", **{"style": f"color:{_COLOURS[tone]}", "aria-hidden": "true"})
    mark.tail = words


def _add_fields(root: Element, fields: Sequence[tuple[str, str]]) -> None:
    body = _add(_add(root, "table", style=_TABLE), "tbody")
    for name, value in fields:
        row = _add(body, "tr", style="background:transparent")
        style = f"{_cell(name)};text-align:left;font-weight:normal;{_FAINT}"
        _add_marked(_add(row, "th", scope="row", style=style), name, _SEVERITIES.get(name.strip()))
        _add(row, "td", value, style=f"{_cell(value)};text-align:left")


def _add_table(root: Element, table: Table) -> None:
    if table.folded:
        root = _add(root, "details")
        _add(root, "summary", table.title, style="cursor:pointer")
    elif table.title:
        _add(root, "div", table.title, style=f"margin-top:.5em;{_FAINT}")
    sides = ["right" if head in table.right else "left" for head in table.heads]
    grid = _add(root, "table", style=_TABLE)
    if table.heads:
        row = _add(_add(grid, "thead"), "tr", style="background:transparent")
        for name, side in zip(table.heads, sides, strict=True):
            style = f"{_cell(name)};text-align:{side};border-bottom:1px solid {_LINE}"
            _add(row, "th", name, scope="col", style=style)
    body = _add(grid, "tbody")
    for cells in table.rows:
        row = _add(body, "tr", style="background:transparent")
        for cell, side in zip_longest(cells, sides, fillvalue="left"):
            element = _add(row, "td", style=f"{_cell(cell)};text-align:{side}")
            _add_marked(element, cell, _SEVERITIES.get(cell.strip()))


def _cell(content: str) -> str:
    kept = len(content) <= _SHORT and "\n" not in content
    return f"{_CELL};white-space:{'nowrap' if kept else 'pre-line'}"


def text(card: Card) -> str:
    """Return the card as text for a terminal, or a notebook without HTML."""
    head = "\n".join(line for line in (card.title, card.headline) if line)
    parts = [head] if head else []
    if card.fields:
        parts.append(aligned(card.fields, "  " if head else ""))
    parts += [_plain_text(part) for part in card.tables]
    if card.notes:
        parts.append("\n".join(f"{part.label}: {part.text}" for part in card.notes))
    return "\n\n".join(parts)


def aligned(rows: Sequence[Sequence[str]], indent: str = "") -> str:
    """Align the cells of rows; further lines of a last cell are indented below its first."""
    widths = [max(map(len, column)) for column in list(zip(*rows, strict=True))[:-1]]
    gap = "\n" + indent + " " * sum(width + 2 for width in widths)
    return "\n".join(
        (
            indent
            + "".join(f"{cell.ljust(width)}  " for cell, width in zip(row, widths, strict=False))
            + row[-1].replace("\n", gap)
        ).rstrip()
        for row in rows
    )


def _plain_text(table: Table) -> str:
    if not table.heads:
        return f"{table.title}\n{aligned(table.rows, '  ')}"
    cells = [[" ".join(cell.split()) for cell in row] for row in (table.heads, *table.rows)]
    widths = [max(len(row[at]) for row in cells) for at in range(len(table.heads))]
    right = [head in table.right for head in table.heads]

    def line(row: Sequence[str]) -> str:
        sized = zip(row, widths, right, strict=True)
        return "  ".join(cell.rjust(width) if to else cell.ljust(width) for cell, width, to in sized).rstrip()

    return "\n".join(([table.title] if table.title else []) + [f"  {line(row)}" for row in cells])
