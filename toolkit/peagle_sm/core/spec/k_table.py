"""Table of K by batch size: vLLM's `num_speculative_tokens_per_batch_size`.

A row is [first, last, K]: batches of ``first`` to ``last`` running requests get K draft tokens each, 0 for
none. vLLM's own rules are in ``vllm/v1/spec_decode/dynamic/utils.py`` (read at 0.32.0). It also accepts rows
in any order and with gaps, and fills a gap with the K before it; here each row begins where the row before
it ends, so that a table shows everything that it does.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any

from pydantic import BeforeValidator

Row = tuple[int, int, int]
Rows = tuple[Row, ...]


def parse_rows(value: Any) -> Any:
    """Return the rows of a table as tuples.

    Raises:
        ValueError: the value is not such a table; the message says what is allowed.
    """
    if not isinstance(value, list | tuple):
        raise ValueError("a list of rows [first, last, K], for example [[1, 4, 7], [5, 32, 3]]")
    rows: list[Row] = []
    for number, row in enumerate(value, start=1):
        if not isinstance(row, list | tuple) or len(row) != 3 or any(type(each) is not int for each in row):
            raise ValueError(f"rows of three whole numbers [first, last, K] (row {number})")
        first, last, tokens = row
        begins = rows[-1][1] + 1 if rows else 1
        if first != begins:
            raise ValueError(
                f"rows in ascending order without overlaps or gaps, from 1 on: row {number} must begin with "
                f"{begins}"
            )
        if last < first:
            raise ValueError(f"rows whose second number is not below the first (row {number})")
        if tokens < 0:
            raise ValueError(f"K of 0 or more (row {number})")
        rows.append((first, last, tokens))
    if not any(tokens for _, _, tokens in rows):
        raise ValueError("at least one row with K above 0; set mode: none to turn speculation off")
    return tuple(rows)


KTable = Annotated[Rows, BeforeValidator(parse_rows)]


def k_at(rows: Sequence[Row], batch_size: int) -> int:
    """Return K for a number of running requests; the last row's K goes on after its end."""
    return next((tokens for _, last, tokens in rows if batch_size <= last), rows[-1][2])


def table_text(rows: Sequence[Row]) -> str:
    """Format a table: `7 (1 to 4), 3 (5 to 32), 0 (33 and more)`."""
    *others, (start, _, rest) = rows
    parts = [f"{k} ({first})" if first == last else f"{k} ({first} to {last})" for first, last, k in others]
    return ", ".join([*parts, f"{rest} ({start} and more)"])
