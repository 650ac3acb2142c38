"""Two arms' cells become a ratio with its factors, and a ComparisonRecord. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from peagle_sm.measure.compare.cells import Cell, Cells
from peagle_sm.measure.compare.intervals import FEWEST_UNITS, Table, ratio
from peagle_sm.measure.records import Interval

# Columns: tokens, seconds, advanced, drafts of the faster arm, then of the slower. Tokens by seconds is the
# rate, advanced by drafts the acceptance length AL, and the step time is AL by rate; so the ratio of rates is
# the ratio of ALs times the (inverted) ratio of step times, to the last digit.
RATE = (1, -1, 0, 0, -1, 1, 0, 0)
ACCEPTANCE = (0, 0, 1, -1, 0, 0, -1, 1)
STEP_TIME = tuple(rate - acceptance for rate, acceptance in zip(RATE, ACCEPTANCE, strict=True))


@dataclass(frozen=True)
class Ratios:
    """Rate of the faster arm over the slower's, and its two factors; ``units`` that both arms share."""

    rate: Interval
    acceptance: Interval | None
    step_time: Interval | None
    units: int


def compare_cells(faster: Sequence[Cells], slower: Sequence[Cells]) -> Ratios:
    """Compare two arms on the units that both have; one element a deployment on either side.

    Raises:
        ValueError: they share fewer than two units, or one of them wrote nothing.
    """
    shared = [
        {unit: (cells[unit], others[unit]) for unit in cells if unit in others}
        for cells, others in zip(faster, slower, strict=True)
    ]
    units = {unit for table in shared for unit in table}
    if len(units) < FEWEST_UNITS:
        raise ValueError(f"the two arms share {len(units)} of the {FEWEST_UNITS} units that it takes")
    rate = ratio([_rows(table) for table in shared], RATE)
    if any(cell.drafts is None or cell.advanced is None for cell in _cells(shared)):
        return Ratios(rate, None, None, len(units))
    tables = [_rows(table) for table in shared]
    try:
        return Ratios(rate, ratio(tables, ACCEPTANCE), ratio(tables, STEP_TIME), len(units))
    except ValueError:  # drafts in fewer than two units: answers of a token or so
        return Ratios(rate, None, None, len(units))


Pairs = Mapping[Any, tuple[Cell, Cell]]


def _cells(tables: Sequence[Pairs]) -> list[Cell]:
    return [cell for table in tables for both in table.values() for cell in both]


def _rows(table: Pairs) -> Table:
    return {unit: [*_columns(faster), *_columns(slower)] for unit, (faster, slower) in table.items()}


def _columns(cell: Cell) -> tuple[float, float, float, float]:
    return cell.tokens, cell.seconds, cell.advanced or 0.0, cell.drafts or 0.0
