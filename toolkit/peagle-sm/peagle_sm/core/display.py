"""Escaped HTML, and cards: one view of a plan, a status or a result, as HTML and as text. Pure.

A terminal shows a card's text, a notebook its HTML. An output cannot detect the notebook's
theme, so text has the page's colour, lines are a transparent grey, and the few colours are readable on white
and on black. Styles are in the elements, because an untrusted notebook removes ``<style>``. Without styles a
card is plain tables.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from itertools import zip_longest
from typing import Any, Literal

VOID = frozenset({"meta", "br", "hr", "link"})


class Safe(str):
    """Text that is already markup, so that it is not escaped again."""

    __slots__ = ()


Content = str | float | None
"""Content of an element: `Safe` is unchanged, other text is escaped, None is left out."""


def join(*parts: Content, by: str = "") -> Safe:
    """Join parts, escaped as needed."""
    return Safe(by.join(_inside(part) for part in parts if part is not None))


def tag(name: str, /, *content: Content, **attributes: Content) -> Safe:
    """Return an element; ``class_`` becomes class, other underscores hyphens."""
    written = "".join(
        f' {_attribute(key)}="{escape(_plain(value))}"'
        for key, value in attributes.items()
        if value is not None
    )
    if name in VOID:
        return Safe(f"<{name}{written}>")
    return Safe(f"<{name}{written}>{join(*content)}</{name}>")


def _attribute(key: str) -> str:
    return key.removesuffix("_").replace("_", "-") if key != "viewBox" else key


def _inside(part: Content) -> str:
    return part if isinstance(part, Safe) else escape(_plain(part), quote=False)


def _plain(value: Content) -> str:
    if isinstance(value, float):  # coordinates: two decimals are enough for any screen
        return f"{value:.2f}".rstrip("0").rstrip(".")
    return str(value)


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
    return tag(
        "div",
        tag("div", tag("strong", card.title)) if card.title else None,
        tag("div", card.headline, style="font-size:1.08em;margin:.15em 0 .3em") if card.headline else None,
        _fields(card.fields),
        *(_table(one) for one in card.tables),
        *(_note(one) for one in card.notes),
        style=f"{_CARD};border-left:5px solid {_COLOURS[card.tone]}",
    )


def _fields(fields: Sequence[tuple[str, str]]) -> Safe | None:
    if not fields:
        return None
    rows = [
        tag(
            "tr",
            tag(
                "th",
                _mark(name),
                name,
                scope="row",
                style=f"{_cell(name)};text-align:left;font-weight:normal;{_FAINT}",
            ),
            tag("td", value, style=f"{_cell(value)};text-align:left"),
            style="background:transparent",
        )
        for name, value in fields
    ]
    return tag("table", tag("tbody", *rows), style=_TABLE)


def _table(table: Table) -> Safe:
    sides = ["right" if head in table.right else "left" for head in table.heads]
    head = tag(
        "tr",
        *(
            tag(
                "th",
                name,
                scope="col",
                style=f"{_cell(name)};text-align:{side};border-bottom:1px solid {_LINE}",
            )
            for name, side in zip(table.heads, sides, strict=True)
        ),
        style="background:transparent",
    )
    rows = [
        tag(
            "tr",
            *(
                tag("td", _mark(cell), cell, style=f"{_cell(cell)};text-align:{side}")
                for cell, side in zip_longest(row, sides, fillvalue="left")
            ),
            style="background:transparent",
        )
        for row in table.rows
    ]
    grid = tag("table", tag("thead", head) if table.heads else None, tag("tbody", *rows), style=_TABLE)
    if table.folded:
        return tag("details", tag("summary", table.title, style="cursor:pointer"), grid)
    return join(tag("div", table.title, style=f"margin-top:.5em;{_FAINT}") if table.title else None, grid)


def _cell(content: str) -> str:
    kept = len(content) <= _SHORT and "\n" not in content
    return f"{_CELL};white-space:{'nowrap' if kept else 'pre-line'}"


def _mark(word: str, tone: Tone | None = None) -> Safe | None:
    """Return a dot in the colour of a tone, or of a severity; None for any other word."""
    tone = tone or _SEVERITIES.get(word.strip())
    return None if tone is None else tag("span", "● ", style=f"color:{_COLOURS[tone]}", aria_hidden="true")


def _note(note: Note) -> Safe:
    said = note.text if note.label == "note" else f"{note.label}: {note.text}"
    return tag("div", _mark("", note.tone), said, style="font-size:.92em;margin-top:.25em")


def text(card: Card) -> str:
    """Return the card as text for a terminal, or a notebook without HTML."""
    head = "\n".join(line for line in (card.title, card.headline) if line)
    parts = [head] if head else []
    if card.fields:
        parts.append(aligned(card.fields, "  " if head else ""))
    parts += [_plain_text(one) for one in card.tables]
    if card.notes:
        parts.append("\n".join(f"{one.label}: {one.text}" for one in card.notes))
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
