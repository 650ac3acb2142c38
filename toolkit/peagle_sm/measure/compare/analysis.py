"""From what was measured under one load to the comparisons of all pairs of arms. Pure.

A side is one arm over all its deployments. A cell holds what an arm did with a unit (a prompt, or a time
block): sums of tokens, seconds and drafts. The cells of two sides become a ratio with its factors.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from peagle_sm.measure.compare.confidence_intervals import FEWEST_UNITS, Table, ratio
from peagle_sm.measure.load import LoadRun, Window
from peagle_sm.measure.load.points import chunks_inside
from peagle_sm.measure.results.records import ArmRecord, ComparisonRecord, Interval, Load, Mode, RequestRecord

_SLOWEST_FIRST: dict[Mode, int] = {"none": 0, "eagle3": 1, "p-eagle": 2}
CONTROL = " (A/A)"  #: ends the name of an arm that is another one once more


@dataclass(frozen=True)
class Side:
    """One side of the comparison: the same thing, deployed once or several times."""

    arms: tuple[ArmRecord, ...]

    @property
    def name(self) -> str:
        """That of its first deployment's arm."""
        return self.arms[0].name

    @property
    def speculates(self) -> bool | None:
        """None where the mode is not known."""
        mode = self.arms[0].mode
        return None if mode == "unknown" else mode != "none"

    @property
    def is_control(self) -> bool:
        """Whether it is another side once more."""
        return self.arms[0].control


@dataclass(frozen=True)
class Pair:
    """``faster`` is what is hoped to be faster; the data decide."""

    faster: Side
    slower: Side


def control_of(side: Side) -> Side:
    """The same endpoints once more, asked as if they were others: their ratio is 1, whatever comes out."""
    return Side(tuple(replace(arm, name=arm.name + CONTROL, control=True) for arm in side.arms))


def in_order(sides: Sequence[Side]) -> list[Side]:
    """Slowest mode first where every side has a mode of its own; else as they were given."""
    modes = [side.arms[0].mode for side in sides]
    if len(set(modes)) < len(modes) or "unknown" in modes:
        return list(sides)
    return sorted(sides, key=lambda side: _SLOWEST_FIRST[side.arms[0].mode])


def pairs_of(sides: Sequence[Side]) -> list[Pair]:
    """Every side over every one before it; a control over the one that it repeats."""
    arms = [side for side in sides if not side.is_control]
    found = [Pair(later, arms[before]) for place, later in enumerate(arms) for before in range(place)]
    by_name = {side.name: side for side in arms}
    controls = [side for side in sides if side.is_control]
    return found + [Pair(side, by_name[side.name.removesuffix(CONTROL)]) for side in controls]


@dataclass(frozen=True)
class Cell:
    """Sums over the requests of a unit; ``seconds`` of waiting (prompt) or of the clock (block).

    ``drafts`` are verification steps and ``advanced`` the tokens that they gave (accepted ones and the free
    one each): both None where any request does not tell, and both equal to ``tokens`` without speculation.
    """

    tokens: float
    seconds: float
    drafts: float | None
    advanced: float | None


Cells = Mapping[Any, Cell]


def add(cells: Iterable[Cell]) -> Cell:
    """The cell of all of them together."""
    every = list(cells)
    return Cell(
        math.fsum(cell.tokens for cell in every),
        math.fsum(cell.seconds for cell in every),
        _sum_known([cell.drafts for cell in every]),
        _sum_known([cell.advanced for cell in every]),
    )


def _sum_known(values: list[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return math.fsum(known) if len(known) == len(values) else None


def of_prompts(records: Iterable[RequestRecord], *, speculates: bool | None) -> dict[Hashable, Cell]:
    """A cell for each prompt that was answered, all its turns together; for one request at a time.

    Args:
        records: of one arm under one load; only measured ones count. A prompt with a failed request is
            left out, since the rest of it is not what the other arms answer.
        speculates: False for an arm known to decode plainly, None where nobody knows.
    """
    by_prompt: dict[str, list[RequestRecord]] = defaultdict(list)
    for record in records:
        if record.phase == "measured":
            by_prompt[record.prompt_id].append(record)
    return {
        prompt: add(_whole(record, speculates) for record in turns)
        for prompt, turns in by_prompt.items()
        if all(record.error is None and record.output_tokens for record in turns)
    }


def _whole(record: RequestRecord, speculates: bool | None) -> Cell:
    return _cell(record, 1.0, record.done_s - record.sent_s, speculates)


def _cell(record: RequestRecord, share: float, seconds: float, speculates: bool | None) -> Cell:
    tokens = share * (record.output_tokens or 0)
    if speculates is False:
        return Cell(tokens, seconds, tokens, tokens)
    if record.drafts is None or record.accepted is None:
        return Cell(tokens, seconds, None, None)
    return Cell(tokens, seconds, share * record.drafts, share * (record.drafts + record.accepted))


def of_blocks(
    records: Iterable[RequestRecord],
    windows: Iterable[tuple[int, Window]],
    *,
    speculates: bool | None,
) -> dict[Hashable, Cell]:
    """A cell for each time block: the tokens that arrived within its windows, by their seconds.

    A window, of the number of its block, is a stretch of time in which one arm alone was under load.

    Whatever its phase, a request counts with the share of its chunks that came within the window, so that
    long answers at the edges are neither lost nor counted whole.
    """
    by_block: dict[int, list[Cell]] = defaultdict(list)
    listed = [record for record in records if record.error is None and record.output_tokens]
    for block, window in windows:
        own = [record for record in listed if record.block == block]
        parts = [_cell(record, share_within(record, window), 0.0, speculates) for record in own]
        here = add(part for part in parts if part.tokens)
        by_block[block].append(Cell(here.tokens, window.seconds, here.drafts, here.advanced))
    return {block: add(cells) for block, cells in by_block.items()}


def of_requests_in_blocks(
    records: Iterable[RequestRecord], *, speculates: bool | None
) -> dict[Hashable, Cell]:
    """A cell for each time block of whole requests and the seconds that each waited: for one category.

    Under load the clock is shared by all categories, so a category's rate is what its own requests saw.
    """
    by_block: dict[Hashable, list[Cell]] = defaultdict(list)
    for record in records:
        if record.phase == "measured" and record.error is None and record.output_tokens:
            by_block[record.block].append(_whole(record, speculates))
    return {block: add(cells) for block, cells in by_block.items()}


def share_within(record: RequestRecord, window: Window) -> float:
    """The share of a request's content chunks that arrived within the window, 0 to 1."""
    return chunks_inside(record, window) / record.chunks if record.chunks else 0.0


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
    if any(cell.drafts is None or cell.advanced is None for cell in _cells_of_pairs(shared)):
        return Ratios(rate, None, None, len(units))
    tables = [_rows(table) for table in shared]
    try:
        return Ratios(rate, ratio(tables, ACCEPTANCE), ratio(tables, STEP_TIME), len(units))
    except ValueError:  # drafts in fewer than two units: answers of a token or so
        return Ratios(rate, None, None, len(units))


Pairs = Mapping[Any, tuple[Cell, Cell]]


def _cells_of_pairs(tables: Sequence[Pairs]) -> list[Cell]:
    return [cell for table in tables for both in table.values() for cell in both]


def _rows(table: Pairs) -> Table:
    return {unit: [*_columns(faster), *_columns(slower)] for unit, (faster, slower) in table.items()}


def _columns(cell: Cell) -> tuple[float, float, float, float]:
    return cell.tokens, cell.seconds, cell.advanced or 0.0, cell.drafts or 0.0


Over = Literal["prompts", "blocks", "deployments"]


@dataclass
class Measured:
    """What one deployment gave under one load, by arm: every turn, or every window of a block.

    ``deployment`` counts from 0; a side's arm of it is ``side.arms[deployment]``.
    """

    load: Load
    deployment: int = 0
    runs: dict[str, list[LoadRun]] = field(default_factory=dict)

    def take(self, run: LoadRun) -> None:
        """Keep one more turn or window."""
        self.runs.setdefault(run.arm, []).append(run)

    @property
    def one_at_a_time(self) -> bool:
        """Whether prompts were answered in turns: the load is one request in flight."""
        return self.load.kind == "closed" and self.load.concurrency == 1

    def requests(self, arm: str) -> list[RequestRecord]:
        """All of one arm."""
        return [record for run in self.runs.get(arm, []) for record in run.records]

    def windows(self, arm: str) -> list[tuple[int, Window]]:
        """Those of one arm, each after its block; of no meaning where prompts were answered in turns."""
        return [(run.block, run.window) for run in self.runs.get(arm, [])]

    def whole(self) -> Measured:
        """The same without a block that was interrupted: there not every arm had both its windows."""
        if self.one_at_a_time:
            return self
        counts = Counter(run.block for runs in self.runs.values() for run in runs)
        full = {block for block, count in counts.items() if count == 2 * len(self.runs)}
        kept = {arm: [run for run in runs if run.block in full] for arm, runs in self.runs.items()}
        return replace(self, runs=kept)


def compare(pair: Pair, measured: Sequence[Measured], *, temperature: float | None) -> ComparisonRecord:
    """The ratio of one pair under one load; an element of ``measured`` for each deployment of it.

    Raises:
        ValueError: the two sides share too little for an interval.
    """
    load, alone = measured[0].load, measured[0].one_at_a_time
    ratios = compare_cells(*(_cells_of_side(side, measured) for side in (pair.faster, pair.slower)))
    over: Over = "deployments" if len(measured) > 1 else "prompts" if alone else "blocks"
    alike = identical_outputs(pair, measured) if temperature == 0 else None
    return ComparisonRecord(
        faster=pair.faster.name,
        slower=pair.slower.name,
        load=load,
        ratio=ratios.rate,
        over=over,
        units=len(measured) if over == "deployments" else ratios.units,
        deployments=len(measured),
        acceptance_ratio=ratios.acceptance,
        step_time_ratio=ratios.step_time,
        categories=by_category(pair, measured),
        control=pair.faster.is_control,
        identical_outputs=alike[0] if alike else None,
        compared_outputs=alike[1] if alike else None,
    )


def _cells_of_side(side: Side, measured: Sequence[Measured]) -> list[Cells]:
    return [_cells_of(side, each) for each in measured]


def _cells_of(side: Side, measured: Measured) -> Cells:
    arm = side.arms[measured.deployment].name
    if measured.one_at_a_time:
        return of_prompts(measured.requests(arm), speculates=side.speculates)
    return of_blocks(measured.requests(arm), measured.windows(arm), speculates=side.speculates)


def by_category(pair: Pair, measured: Sequence[Measured]) -> dict[str, Interval]:
    """The ratio within each category of prompts that allows an interval; none where there is but one."""
    names = {
        record.category
        for each in measured
        for arm in each.runs
        for record in each.requests(arm)
        if record.category is not None
    }
    if len(names) < 2:
        return {}
    found: dict[str, Interval] = {}
    for name in sorted(names):
        ratios = _within(name, pair, measured)
        if ratios is not None:
            found[name] = ratios.rate
    return found


def _within(category: str, pair: Pair, measured: Sequence[Measured]) -> Ratios | None:
    def cells(side: Side) -> list[Cells]:
        found: list[Cells] = []
        for each in measured:
            records = each.requests(side.arms[each.deployment].name)
            own = [one for one in records if one.category == category]
            cut = of_prompts if each.one_at_a_time else of_requests_in_blocks
            found.append(cut(own, speculates=side.speculates))
        return found

    try:
        return compare_cells(cells(pair.faster), cells(pair.slower))
    except ValueError:  # too few prompts of this category
        return None


def identical_outputs(pair: Pair, measured: Sequence[Measured]) -> tuple[int, int] | None:
    """Prompts that both sides answered alike, every time, and prompts that both answered; None of none."""
    seen = [_outputs(side, measured) for side in (pair.faster, pair.slower)]
    both = seen[0].keys() & seen[1].keys()
    if not both:
        return None
    return sum(seen[0][key] == seen[1][key] and len(seen[0][key]) == 1 for key in both), len(both)


def _outputs(side: Side, measured: Sequence[Measured]) -> dict[Hashable, set[str]]:
    found: dict[Hashable, set[str]] = {}
    for each in measured:
        for record in _answered(each.requests(side.arms[each.deployment].name)):
            found.setdefault((record.prompt_id, record.turn), set()).add(record.output_sha256 or "")
    return found


def _answered(records: Iterable[RequestRecord]) -> list[RequestRecord]:
    return [
        record
        for record in records
        if record.phase == "measured" and record.error is None and record.output_sha256 is not None
    ]
