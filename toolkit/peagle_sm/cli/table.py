"""Plain text tables: aligned columns and nothing else, so that grep and awk work on them too."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from itertools import zip_longest

from peagle_sm.cli import terminal


def render_table(
    headers: Sequence[str],
    rows: Sequence[Sequence[str]],
    right: Sequence[str] = (),
    width: int | None = None,
) -> str:
    """Align `rows` under `headers`; columns named in `right` are aligned to the right.

    A table that is wider than `width` (default: the terminal) gets cells of several lines; one with too many
    columns for that becomes a block of `name  value` lines for each row.
    """
    limit = width if width is not None else terminal.table_width(sys.stderr)
    lines = [[header.upper() for header in headers], *(list(row) for row in rows)]
    align = [header in right for header in headers]
    widths = [max(len(row[i]) for row in lines) for i in range(len(headers))]
    if limit is not None and sum(widths) + 2 * (len(widths) - 1) > limit:
        # Names are copied, so the first column breaks only where nothing else helps.
        whole_names = [True, *align[1:]]
        narrower = terminal.column_widths(lines, whole_names, limit) or terminal.column_widths(
            lines, align, limit
        )
        if narrower is None:
            return "\n\n".join(render_fields(list(zip(headers, row, strict=True))) for row in rows)
        widths = narrower

    def line(cells: Sequence[str]) -> str:
        return "  ".join(
            cell.rjust(size) if to_right else cell.ljust(size)
            for cell, size, to_right in zip(cells, widths, align, strict=True)
        ).rstrip()

    def row_lines(row: Sequence[str]) -> list[str]:
        if all(len(cell) <= size for cell, size in zip(row, widths, strict=True)):
            return [line(row)]
        wrapped = [terminal.cell_lines(cell, size) for cell, size in zip(row, widths, strict=True)]
        return [line(cells) for cells in zip_longest(*wrapped, fillvalue="")]

    return "\n".join(one for row in lines for one in row_lines(row))


def render_fields(fields: Sequence[tuple[str, str]], indent: str = "") -> str:
    """Align `name  value` pairs; further lines of a value are indented under its first."""
    width = max((len(name) for name, _ in fields), default=0)
    gap = "\n" + indent + " " * (width + 2)
    return "\n".join(
        f"{indent}{name.ljust(width)}  {value.replace(chr(10), gap)}".rstrip() for name, value in fields
    )
