"""The table of docs/how-to/clients.md, read. Pure.

It was measured once, with 300 streams a cell; `test_signs` repeats the first streams of each cell.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence

from tests.clients.columns import Column


def read(page: str, columns: Sequence[Column]) -> dict[str, dict[str, Counter[str]]]:
    """Return the counts of each row, by the client's label and the column's key."""
    rows = {}
    for line in page.partition("| client | an event a part |")[2].partition("The errors,")[0].splitlines():
        first, *cells = [cell.strip() for cell in line.strip("|").split("|")]
        if len(cells) == len(columns) and "<br>" in first:
            label = first.partition("<br>")[0]
            rows[label] = {column.key: _counts(cell) for column, cell in zip(columns, cells, strict=True)}
    return rows


def _counts(cell: str) -> Counter[str]:
    return Counter({word: int(number) for number, word in re.findall(r"(\d+) (\w+)", cell)})
