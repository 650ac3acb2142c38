"""The table of docs/how-to/clients.md, written and read. Pure."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from tests.clients.clients import Client
from tests.clients.columns import Column
from tests.clients.trial import ERROR, EXACT, HANG, WRONG, Cell

BEGIN = "<!-- written by scripts/clients-table -->"
END = "<!-- end of what scripts/clients-table wrote -->"
Cells = Mapping[str, Mapping[str, Cell | None]]
_ORDER = (EXACT, WRONG, ERROR, HANG)


def section(
    clients: Sequence[Client],
    columns: Sequence[Column],
    cells: Cells,
    *,
    origin: Mapping[str, Any],
    streams: int,
    command: str,
) -> str:
    """The table, and under it the errors by their names."""
    lines = [
        BEGIN,
        f"Written by {_run(origin, streams, command)}",
        "",
        "| client | " + " | ".join(column.title for column in columns) + " |",
        "|---" * (len(columns) + 1) + "|",
        *(_figures(client, columns, cells) for client in clients),
        "",
        "The errors, by the names of their classes:",
        "",
        "| client | errors |",
        "|---|---|",
        *(_causes(client, columns, cells) for client in clients),
        END,
    ]
    return "\n".join(lines)


def renewed(
    page: str,
    clients: Sequence[Client],
    columns: Sequence[Column],
    cells: Cells,
    *,
    origin: Mapping[str, Any],
    streams: int,
    command: str,
) -> str:
    """The page's section with other rows for these clients, and a line that says which run wrote them.

    Raises:
        ValueError: the page has no row of a client.
    """
    lines = section_of(page).splitlines()
    for client in clients:
        for begin, row in (
            (f"| {client.label}<br>", _figures(client, columns, cells)),
            (f"| {client.label} | ", _causes(client, columns, cells)),
        ):
            places = [number for number, line in enumerate(lines) if line.startswith(begin)]
            if not places:
                raise ValueError(f"the page has no row {begin!r}; run scripts/clients-table without --only")
            lines[places[0]] = row
    rows = f"Rows of {' and '.join(client.label for client in clients)}: "
    lines = [line for line in lines if not line.startswith(rows)]
    # Two spaces before it end the line above.
    lines[1] = f"{lines[1].rstrip()}  "
    lines.insert(2, f"{rows}{_run(origin, streams, command)}")
    return "\n".join(lines)


def section_of(page: str) -> str:
    """The page's section, with its markers.

    Raises:
        ValueError: the page has no markers.
    """
    return BEGIN + _parts(page)[1] + END


def name(client: Client) -> str:
    """How a client's row begins: with the version of what it is made of."""
    told = [
        version if package in client.label.replace("_", "-") else f"{package} {version}"
        for package, version in client.versions().items()
    ]
    return f"{client.label}<br>{', '.join(told)}"


def replaced(page: str, section: str) -> str:
    """The page with another section between its markers.

    Raises:
        ValueError: the page has no markers.
    """
    before, _, after = _parts(page)
    return before + section + after


def _parts(page: str) -> tuple[str, str, str]:
    """What is before, between and after the markers."""
    before, begin, rest = page.partition(BEGIN)
    between, end, after = rest.partition(END)
    if not (begin and end):
        raise ValueError(f"the page has no lines {BEGIN!r} and {END!r}")
    return before, between, after


def _run(origin: Mapping[str, Any], streams: int, command: str) -> str:
    machine, python = origin["machine"], origin["versions"]["python"]
    return (
        f"`{command}` on {origin['date'][:10]}: {streams} streams a cell, on "
        f"{machine['cores']} cores of {machine['processor']}, Python {python}, revision "
        f"{origin['git_revision']}."
    )


def _figures(client: Client, columns: Sequence[Column], cells: Cells) -> str:
    return f"| {name(client)} | {_row(columns, cells[client.key])} |"


def _causes(client: Client, columns: Sequence[Column], cells: Cells) -> str:
    return f"| {client.label} | {_errors(columns, cells[client.key])} |"


def read(page: str, columns: Sequence[Column]) -> dict[str, dict[str, Counter[str]]]:
    """The counts of each row, by what the row begins with and the column's key."""
    found = {}
    for line in page.partition(BEGIN)[2].partition("The errors,")[0].splitlines():
        first, *rest = [cell.strip() for cell in line.strip("|").split("|")]
        if len(rest) == len(columns) and "<br>" in first:
            found[first] = {column.key: _counts(cell) for column, cell in zip(columns, rest, strict=True)}
    return found


def _counts(cell: str) -> Counter[str]:
    return Counter({word: int(number) for number, word in re.findall(r"(\d+) (\w+)", cell)})


def _row(columns: Sequence[Column], cells: Mapping[str, Cell | None]) -> str:
    return " | ".join(_cell(cells[column.key]) for column in columns)


def _cell(cell: Cell | None) -> str:
    if cell is None:
        return "-"
    counts = cell.counts()
    told = (f"{counts[kind]} {kind}" for kind in _ORDER if counts[kind])
    return ", ".join(f"**{each}**" if each.endswith((WRONG, HANG)) else each for each in told)


def _errors(columns: Sequence[Column], cells: Mapping[str, Cell | None]) -> str:
    told = []
    for column in columns:
        cell = cells[column.key]
        if cell is not None and cell.errors:
            kinds = ", ".join(f"`{kind}` {count}" for kind, count in cell.errors.most_common())
            told.append(f"{column.title}: {kinds}")
    return "; ".join(told) or "none"
