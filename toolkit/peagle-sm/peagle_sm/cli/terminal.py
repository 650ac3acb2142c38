"""Text for a terminal: width, colour, tables and durations.

Lines and tables are fitted to the terminal's width. Statuses, warnings and errors are coloured unless
NO_COLOR is set (no-color.org) or TERM is dumb. Pipes and files get the text unchanged: tables are plain
aligned columns, which grep and awk can read.
"""

from __future__ import annotations

import os
import re
import shutil
import sys
import textwrap
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from itertools import zip_longest
from typing import IO, Any

import click

from peagle_sm.core.display import Table, aligned

_GAP = 2
# A cell that is narrower cannot be read.
_NARROWEST = 8
_UNSET = -1
_width: ContextVar[int | None] = ContextVar("width of the table's terminal", default=_UNSET)

# Breaking such a line would break the command when it is copied.
_COMMAND = re.compile(
    r"^\s*(?:next:\s+|(?:use|try|check|delete) it:\s+|[-$]\s+)?"
    r"(?:peagle-sm|npx|npm|pip|aws|cd|export|kill|curl) "
)
_GOOD = r"InService|InSync|passed|ok|healthy"
_WAITING = r"Creating|Updating|SystemUpdating|RollingBack|Deleting|undecided|marked|paused"
_BAD = r"Failed|OutOfService|UpdateRollbackFailed"
_PAINTED: tuple[tuple[re.Pattern[str], dict[str, Any]], ...] = (
    (re.compile(r"^(?:\s*)error(?::|  )", re.MULTILINE), {"fg": "red", "bold": True}),
    (re.compile(r"^(?:\s*(?:note: )?)warning(?::|  )", re.MULTILINE), {"fg": "yellow", "bold": True}),
    (re.compile(r"^\s*next:", re.MULTILINE), {"fg": "cyan", "bold": True}),
    (re.compile(rf"(?<![\w-])(?:{_GOOD})(?![\w-])"), {"fg": "green"}),
    (re.compile(rf"(?<![\w-])(?:{_WAITING})(?![\w-])"), {"fg": "yellow"}),
    (re.compile(rf"(?<![\w-])(?:{_BAD})(?![\w-])"), {"fg": "red"}),
)


def width_of(stream: IO[str] | None) -> int | None:
    """Return the terminal's columns, or None if the stream is not a terminal."""
    return shutil.get_terminal_size().columns if stream is not None and stream.isatty() else None


def has_colour(stream: IO[str] | None) -> bool:
    """Return whether to colour the text on a stream."""
    plain = os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb"
    return stream is not None and stream.isatty() and not plain


@contextmanager
def tables_fit(stream: IO[str]) -> Iterator[None]:
    """Fit tables in this block to the stream's width; otherwise stderr's counts."""
    token = _width.set(width_of(stream))
    try:
        yield
    finally:
        _width.reset(token)


def table_width(stderr: IO[str] | None) -> int | None:
    """Return the largest width of a table in columns; None for no limit."""
    given = _width.get()
    return width_of(stderr) if given == _UNSET else given


def shown(text: str, stream: IO[str]) -> str:
    """Return ``text`` for ``stream``: on a terminal fitted and coloured."""
    width = width_of(stream)
    fitted = text if width is None else fit(text, width)
    return paint(fitted) if has_colour(stream) else fitted


def fit(text: str, width: int) -> str:
    """Break long lines between words; keep commands whole, for copying."""
    return "\n".join(_fit_line(line, width) for line in text.split("\n"))


def _fit_line(line: str, width: int) -> str:
    if len(line) <= width or _COMMAND.match(line):
        return line
    # Under the words, not under the label: "  memory   57.3 GB …" continues below "57.3".
    label = re.match(r"\s*(?:\S+(?: \S+)?\s{2,}|(?:error|warning|note|next): )?", line)
    indent = len(label.group(0)) if label is not None else 0
    margin = len(line) - len(line.lstrip())
    if indent > width // 2:
        indent = margin
    elif len(line[indent:].split()) == 1:  # a name of a resource, which stays whole and needs the room
        indent = margin + 2
    return "\n".join(
        textwrap.wrap(
            line,
            width,
            subsequent_indent=" " * indent,
            drop_whitespace=True,
            replace_whitespace=False,
            break_long_words=False,
            break_on_hyphens=False,
        )
    )


def paint(text: str) -> str:
    """Colour statuses, and the labels of warnings, errors and next steps."""
    for pattern, style in _PAINTED:
        text = pattern.sub(lambda match, style=style: click.style(match.group(0), **style), text)  # type: ignore[misc]
    return text


def column_widths(rows: Sequence[Sequence[str]], right: Sequence[bool], width: int) -> list[int] | None:
    """Return a width for each column so that the table fits, or None if it cannot.

    Columns of figures (``right``) keep their width, and no column is narrower than its longest word: users
    copy names and ids. The widest of the other columns are narrowed first.
    """
    widths = [max(len(row[i]) for row in rows) for i in range(len(right))]
    least = [
        max(_NARROWEST, *(len(word) for row in rows for word in row[i].split() or [""]))
        for i in range(len(right))
    ]
    excess = sum(widths) + _GAP * (len(widths) - 1) - width
    while excess > 0:
        open_ = [i for i, fixed in enumerate(right) if not fixed and widths[i] > least[i]]
        if not open_:
            return None
        widest = max(open_, key=lambda i: (widths[i], i))  # the last of equal ones: the first are names
        second = max((widths[i] for i in open_ if i != widest), default=0)
        cut = min(excess, max(1, widths[widest] - max(second, least[widest])))
        widths[widest] -= cut
        excess -= cut
    return widths


def cell_lines(cell: str, width: int) -> list[str]:
    """Break a cell into lines at its spaces; a name with hyphens stays whole."""
    return textwrap.wrap(cell, width, break_long_words=False, break_on_hyphens=False) or [""]


def render_table(
    headers: Sequence[str],
    rows: Sequence[Sequence[str]],
    right: Sequence[str] = (),
    width: int | None = None,
    spare: Sequence[str] = (),
) -> str:
    """Align `rows` under `headers`; align columns in `right` to the right.

    If the table is wider than `width` (default: the terminal), cells get several lines. If that is not
    enough, the columns in `spare` are left out, in this order. If there are still too many columns, each row
    becomes a block of `name  value` lines, with all columns.
    """
    limit = width if width is not None else table_width(sys.stderr)
    lines = [[header.upper() for header in headers], *(list(row) for row in rows)]
    align = [header in right for header in headers]
    widths = [max(len(row[i]) for row in lines) for i in range(len(headers))]
    if limit is not None and sum(widths) + 2 * (len(widths) - 1) > limit:
        narrower = column_widths(lines, align, limit)
        for left_out in range(1, len(spare) + 1) if narrower is None else ():
            columns = [at for at, header in enumerate(headers) if header not in spare[:left_out]]
            fewer = [[row[at] for at in columns] for row in lines]
            if column_widths(fewer, [align[at] for at in columns], limit) is not None:
                return render_table([headers[at] for at in columns], fewer[1:], right, limit)
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
        wrapped = [cell_lines(cell, size) for cell, size in zip(row, widths, strict=True)]
        return [line(cells) for cells in zip_longest(*wrapped, fillvalue="")]

    return "\n".join(text_line for row in lines for text_line in row_lines(row))


def show(table: Table) -> str:
    """Render a table of a view; its title is left out."""
    return render_table(table.heads, table.rows, right=table.right)


render_fields = aligned
_UNITS = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}


def parse_duration(text: str) -> float:
    """Return the seconds of a duration: `90s`, `45m`, `2h`, `1d` or `1h30m`.

    Raises:
        ValueError: the text is not a duration, or is zero.
    """
    compact = text.strip().lower().replace(" ", "")
    parts = re.findall(r"(\d+(?:\.\d+)?)([smhd])", compact)
    if not parts or "".join(number + unit for number, unit in parts) != compact:
        raise ValueError(f"{text!r} is not a duration; write for example 90s, 45m, 2h or 1h30m")
    seconds = sum(float(number) * _UNITS[unit] for number, unit in parts)
    if seconds <= 0:
        raise ValueError(f"{text!r} is zero; give a duration above zero")
    return seconds
