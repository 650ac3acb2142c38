"""A run's requests as sums by mode and prompt, and the change of a figure between tables of sums. Pure."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from peagle_bench.compare.analysis import Cell, add, of_prompts, of_requests_in_blocks
from peagle_bench.compare.confidence_intervals import Spread, log_value, over_units, widths
from peagle_bench.dialogues import FEWEST_CONVERSATIONS
from peagle_bench.load.points import has_failed, is_short, is_withheld
from peagle_bench.regression.checks import percents
from peagle_bench.regression.record import BASELINE, Side, sides_of
from peagle_bench.results.records import Interval, Load, RequestRecord
from peagle_bench.results.result_file import Results

CONFIDENCE = 0.998  #: so far out that one check errs in 1 of 1,000 runs at each end

Cells = Mapping[Hashable, Cell]  #: by prompt or block


# Columns of each table: tokens, seconds, accepted draft tokens, drafts.
RATE = ((1, -1, 0, 0), (-1, 1, 0, 0))
SPEED_UP = (*RATE, *((-a, -b, 0, 0) for a, b, *_ in RATE))
ACCEPTED = ((0, 0, 1, -1), (0, 0, -1, 1))


@dataclass(frozen=True)
class Change:
    """A ratio with its interval at `CONFIDENCE`; ``over`` is the spread over its ``units``."""

    interval: Interval
    units: int
    over: Spread


def change_of(tables: Sequence[Cells], signs: Sequence[Sequence[int]], *, extra: float) -> Change | None:
    """Compute the product of sums over the prompts that all tables share; None if it is undefined.

    ``extra`` is the variance that deployments add to its logarithm.
    """
    shared = set.intersection(*(set(table) for table in tables))
    rows: dict[Hashable, list[float]] = {}
    for key in sorted(shared, key=str):
        cells = [table[key] for table in tables]
        row = [value for cell in cells for value in columns(cell)]
        unit = cells[0].conversation or key
        rows[unit] = [a + b for a, b in zip(rows[unit], row, strict=True)] if unit in rows else row
    flat = [sign for table in signs for sign in table]
    try:
        value, over = log_value(rows.values(), flat), over_units(list(rows.values()), flat)
    except ValueError:  # fewer than two units, or a sum of 0
        return None
    below, above = widths([over, Spread(extra, math.inf)], CONFIDENCE)
    interval = Interval(
        math.exp(value), math.exp(value - min(below, 99.0)), math.exp(value + min(above, 99.0))
    )
    return Change(interval, len(rows), over)


def columns(cell: Cell) -> tuple[float, float, float, float]:
    """Return tokens, seconds, accepted draft tokens and drafts of a cell."""
    accepted = (cell.advanced or 0.0) - (cell.drafts or 0.0)
    return cell.tokens, cell.seconds, accepted, cell.drafts or 0.0


class MeasuredRun:
    """The requests of a run by arm, and the sums of each mode."""

    def __init__(self, results: Results) -> None:
        self.results = results
        self.sides: dict[str, Side] = sides_of(results)
        self._by_arm: dict[tuple[str, Load], list[RequestRecord]] = defaultdict(list)
        self._cells: dict[tuple[str, Load], dict[Hashable, Cell]] = {}
        for request in results.requests:
            if request.phase == "measured":
                self._by_arm[request.arm, request.load].append(request)

    def requests(self, arm: str, load: Load) -> list[RequestRecord]:
        """Return the measured requests of one arm."""
        return self._by_arm.get((arm, load), [])

    def cells(self, mode: str, load: Load) -> list[dict[Hashable, Cell]]:
        """Return the sums of a mode by prompt or block, one element per deployment.

        The A/A control is the same endpoint as its arm, so it counts as more of its requests.
        """
        side = self.sides[mode]
        return [
            merged(self._of_arm(name, load, speculates=mode != BASELINE) for name in side.same_endpoint(arm))
            for arm in side.arms
        ]

    def _of_arm(self, arm: str, load: Load, *, speculates: bool) -> dict[Hashable, Cell]:
        if (arm, load) not in self._cells:
            cells_of = of_prompts if load.concurrency == 1 else of_requests_in_blocks
            self._cells[arm, load] = cells_of(self.requests(arm, load), speculates=speculates)
        return self._cells[arm, load]

    def doubt(self, mode: str, load: Load, *, times: bool = True) -> str | None:
        """Return why the figures of a mode cannot be judged: rules of the report, and the A/A control.

        ``times`` False: what does not depend on times, as acceptance.
        """
        names = {arm.name for which in (mode, BASELINE) for arm in self.sides[which].arms}
        points = [each for each in self.results.points if each.load == load and each.arm in names]
        if len({point.arm for point in points}) < len(names):
            return "a mode has no figures"
        for point in points:
            if times and is_withheld(point.client):
                return point.client.reason or "the client was the bottleneck"
            if times and is_short(point):
                return "the window is too short: it needs 8 requests and a second"
            if has_failed(point):
                return f"{sum(point.errors.values())} of {point.requests} requests of {point.arm} failed"
        units = {record.unit for name in names for record in self.requests(name, load)}
        if len(units) < FEWEST_CONVERSATIONS:
            return f"{len(units)} conversations; a verdict needs {FEWEST_CONVERSATIONS}"
        return self._failed_control(load) if times else None

    def _failed_control(self, load: Load) -> str | None:
        side = self.sides[BASELINE]
        for arm in side.arms:
            cells = [self._of_arm(name, load, speculates=False) for name in side.same_endpoint(arm)]
            change = change_of(cells[::-1], RATE, extra=0.0) if len(cells) == 2 else None
            if change is not None and change.interval.shown:
                return f"the A/A control of {arm.name} failed: {percents(change.interval)}"
        return None


def merged(tables: Iterable[Cells]) -> dict[Hashable, Cell]:
    """Sum the cells of several tables by prompt or block."""
    cells: dict[Hashable, list[Cell]] = defaultdict(list)
    for table in tables:
        for key, cell in table.items():
            cells[key].append(cell)
    return {key: replace(add(each), conversation=each[0].conversation) for key, each in cells.items()}
