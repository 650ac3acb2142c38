"""Plain text tables: aligned columns and nothing else, so that grep and awk work on them too."""

from __future__ import annotations

from collections.abc import Sequence


def render_table(headers: Sequence[str], rows: Sequence[Sequence[str]], right: Sequence[str] = ()) -> str:
    """Align `rows` under `headers`; columns named in `right` are aligned to the right."""
    widths = [max(len(row[i]) for row in (headers, *rows)) for i in range(len(headers))]
    align = [header in right for header in headers]

    def line(cells: Sequence[str]) -> str:
        return "  ".join(
            cell.rjust(width) if to_right else cell.ljust(width)
            for cell, width, to_right in zip(cells, widths, align, strict=True)
        ).rstrip()

    return "\n".join(line(row) for row in ([header.upper() for header in headers], *rows))


def render_fields(fields: Sequence[tuple[str, str]], indent: str = "") -> str:
    """Align `name  value` pairs; further lines of a value are indented under its first."""
    width = max((len(name) for name, _ in fields), default=0)
    gap = "\n" + indent + " " * (width + 2)
    return "\n".join(
        f"{indent}{name.ljust(width)}  {value.replace(chr(10), gap)}".rstrip() for name, value in fields
    )
