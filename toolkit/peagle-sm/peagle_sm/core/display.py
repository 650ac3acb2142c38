"""Cards: one view of a plan, a status or a result, as text for terminals and notebooks. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Table:
    """A table; ``right`` lists number columns. Without ``heads`` its lines are kept as they are."""

    title: str
    heads: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    right: tuple[str, ...] = ()


@dataclass(frozen=True)
class Note:
    """A sentence below the fields."""

    text: str
    label: str = "note"


@dataclass(frozen=True)
class Card:
    """A summary; ``headline`` is its main sentence."""

    title: str = ""
    headline: str = ""
    fields: tuple[tuple[str, str], ...] = ()
    tables: tuple[Table, ...] = ()
    notes: tuple[Note, ...] = ()


class Shown:
    """Base of results that terminals and notebooks show as the text of a `card`."""

    def card(self) -> Card:
        """Return the card to show."""
        raise TypeError(f"{type(self).__name__} has no card")

    def __str__(self) -> str:
        return text(self.card())

    def _repr_pretty_(self, printer: Any, cycle: bool) -> None:
        """Show the text in a notebook, in place of the fields."""
        printer.text(str(self))


def text(card: Card) -> str:
    """Return the card as text for terminals and notebooks."""
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
