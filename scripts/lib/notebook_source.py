"""Notebooks written as Python files: `# %%` begins a code cell, `# %% [markdown]` one of text. Pure."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal

_MARK = re.compile(r"^# %%(?P<markdown> \[markdown\])?$")


@dataclass(frozen=True)
class Cell:
    """One cell of a notebook."""

    kind: Literal["markdown", "code"]
    text: str


def cells(source: str) -> list[Cell]:
    """Return the cells of a source, in its order.

    Raises:
        ValueError: something stands before the first mark, or a line of a text cell is no comment.
    """
    parsed: list[Cell] = []
    kind: Literal["markdown", "code"] | None = None
    lines: list[str] = []
    for line in [*source.splitlines(), "# %%"]:
        mark = _MARK.match(line)
        if mark is None:
            lines.append(line)
            continue
        if kind is not None:
            parsed.append(Cell(kind, _text(kind, lines)))
        elif any(each.strip() for each in lines):
            raise ValueError(f"found {lines[0]!r} before the first cell; allowed: a first line '# %%'")
        kind, lines = ("markdown" if mark["markdown"] else "code"), []
    return parsed


def _text(kind: str, lines: list[str]) -> str:
    if kind == "markdown":
        filled = [line for line in lines if line.strip()]
        wrong = next((line for line in filled if not line.startswith("#")), None)
        if wrong is not None:
            raise ValueError(f"found {wrong!r} in a cell of text; allowed: lines that begin with '#'")
        lines = [line.removeprefix("#").removeprefix(" ") for line in lines]
    return "\n".join(lines).strip("\n")
