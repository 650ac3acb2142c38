"""Comparison of all pairs of arms from the requests of one load. Pure.

A side is one arm over all its deployments. A cell holds an arm's sums of tokens, seconds and drafts for one
prompt or one time block. Prompts that are turns of one conversation are one unit of the intervals. The
cells of two sides give a ratio and its two factors.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from peagle_bench.compare.confidence_intervals import CONFIDENCE, FEWEST_UNITS, Table, ratio
from peagle_bench.load import LoadRun, Window
from peagle_bench.load.points import chunks_inside
from peagle_bench.results.records import ArmRecord, ComparisonRecord, Interval, Load, Mode, RequestRecord
from peagle_sm.core.spec.modes import MODES

_SLOWEST_FIRST: dict[Mode, int] = {mode: place for place, mode in enumerate(MODES)}  #: of most targets
CONTROL = " (A/A)"  #: suffix of a control arm: the second arm of an A/A pair


@dataclass(frozen=True)
class ArmDeployments:
    """One side of a comparison: an arm in all its deployments."""

    arms: tuple[ArmRecord, ...]

    @property
    def name(self) -> str:
        """Name of the first deployment's arm."""
        return self.arms[0].name

    @property
    def speculates(self) -> bool | None:
        """Whether the arm speculates; None if the mode is unknown."""
        mode = self.arms[0].mode
        return None if mode == "unknown" else mode != "none"

    @property
    def is_control(self) -> bool:
        """Whether this is the control: another side measured a second time."""
        return self.arms[0].control


@dataclass(frozen=True)
class Pair:
    """Two sides to compare; ``faster`` is the one expected to be faster."""

    faster: ArmDeployments
    slower: ArmDeployments


def control_of(side: ArmDeployments) -> ArmDeployments:
    """Return a control side on the same endpoints; the true ratio to the original is 1."""
    return ArmDeployments(tuple(replace(arm, name=arm.name + CONTROL, control=True) for arm in side.arms))


def in_order(sides: Sequence[ArmDeployments]) -> list[ArmDeployments]:
    """Sort the sides by mode, slowest first, if all modes differ; else keep their order."""
    modes = [side.arms[0].mode for side in sides]
    if len(set(modes)) < len(modes) or "unknown" in modes:
        return list(sides)
    return sorted(sides, key=lambda side: _SLOWEST_FIRST[side.arms[0].mode])


def pairs_of(sides: Sequence[ArmDeployments]) -> list[Pair]:
    """Pair each side with every earlier one, and each control with the side that it repeats."""
    arms = [side for side in sides if not side.is_control]
    pairs = [Pair(later, arms[before]) for place, later in enumerate(arms) for before in range(place)]
    by_name = {side.name: side for side in arms}
    controls = [side for side in sides if side.is_control]
    return pairs + [Pair(side, by_name[side.name.removesuffix(CONTROL)]) for side in controls]


@dataclass(frozen=True)
class Cell:
    """Sums over the requests of a unit; ``seconds`` is waiting time (prompt) or wall time (block).

    ``drafts`` are verification steps and ``advanced`` the tokens they produced (the accepted ones plus one
    each). Both are None if any request does not report them, and equal to ``tokens`` without speculation.
    Cells of one ``conversation`` are one unit together; empty: the cell is alone.
    """

    tokens: float
    seconds: float
    drafts: float | None
    advanced: float | None
    conversation: str = ""


Cells = Mapping[Any, Cell]


def add(cells: Iterable[Cell]) -> Cell:
    """Sum several cells."""
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
    """Build a cell for each answered prompt, all turns together; for one request at a time.

    Args:
        records: of one arm under one load; only measured ones count. A prompt with a failed request is
            left out, since its other turns cannot be compared with those of the other arms.
        speculates: False for an arm without speculation, None if unknown.
    """
    by_prompt: dict[str, list[RequestRecord]] = defaultdict(list)
    for record in records:
        if record.phase == "measured":
            by_prompt[record.prompt_id].append(record)
    return {
        prompt: replace(
            add(_whole(record, speculates) for record in turns), conversation=turns[0].conversation
        )
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
    """Build a cell for each time block: the tokens that arrived in its windows, and their seconds.

    ``windows`` are pairs of a block's number and a window in which only one arm was under load.

    A request of any phase counts with the share of its chunks that arrived within the window, so long
    answers at the edges are neither lost nor counted in full.
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
    """Build a cell for each time block from whole requests and their waiting time; for one category.

    All categories share the wall time of a window, so a category's rate is that of its own requests.
    """
    by_block: dict[Hashable, list[Cell]] = defaultdict(list)
    for record in records:
        if record.phase == "measured" and record.error is None and record.output_tokens:
            by_block[record.block].append(_whole(record, speculates))
    return {block: add(cells) for block, cells in by_block.items()}


def share_within(record: RequestRecord, window: Window) -> float:
    """Compute the share of a request's content chunks that arrived within the window, 0 to 1."""
    return chunks_inside(record, window) / record.chunks if record.chunks else 0.0


# Columns: tokens, seconds, advanced, drafts of the faster arm, then of the slower. Rate = tokens / seconds,
# acceptance length AL = advanced / drafts, step time = AL / rate. So the ratio of rates equals the ratio of
# ALs times the inverse ratio of step times exactly.
RATE = (1, -1, 0, 0, -1, 1, 0, 0)
ACCEPTANCE = (0, 0, 1, -1, 0, 0, -1, 1)
STEP_TIME = tuple(rate - acceptance for rate, acceptance in zip(RATE, ACCEPTANCE, strict=True))


@dataclass(frozen=True)
class Ratios:
    """Ratio of the arms' rates and its two factors; ``units`` counts the units both arms share.

    ``conversations`` is the number of the prompts' conversations; None if only cells are known.
    """

    rate: Interval
    acceptance: Interval | None
    step_time: Interval | None
    units: int
    conversations: int | None = None


def compare_cells(
    faster: Sequence[Cells], slower: Sequence[Cells], *, confidence: float = CONFIDENCE
) -> Ratios:
    """Compare two arms on their common units; each sequence has one element per deployment.

    Raises:
        ValueError: they share fewer than two units, or one of them has no tokens.
    """
    shared = [
        {unit: (cells[unit], others[unit]) for unit in cells if unit in others}
        for cells, others in zip(faster, slower, strict=True)
    ]
    tables = [_rows(table) for table in shared]
    units = {unit for table in tables for unit in table}
    if len(units) < FEWEST_UNITS:
        raise ValueError(f"prompts or blocks measured in both arms: {len(units)}; required: {FEWEST_UNITS}")
    rate = ratio(tables, RATE, confidence)
    cells_of_both = (cell for table in shared for both in table.values() for cell in both)
    if any(cell.drafts is None or cell.advanced is None for cell in cells_of_both):
        return Ratios(rate, None, None, len(units))
    try:
        acceptance = ratio(tables, ACCEPTANCE, confidence)
        return Ratios(rate, acceptance, ratio(tables, STEP_TIME, confidence), len(units))
    except ValueError:  # fewer than two units have drafts: very short answers
        return Ratios(rate, None, None, len(units))


Pairs = Mapping[Any, tuple[Cell, Cell]]


def _rows(table: Pairs) -> Table:
    """Sum the columns of each conversation. Its turns resemble each other, so they are one unit."""
    sums: dict[Hashable, list[float]] = {}
    for unit, (faster, slower) in table.items():
        row, key = [*_columns(faster), *_columns(slower)], faster.conversation or unit
        sums[key] = [a + b for a, b in zip(sums[key], row, strict=True)] if key in sums else row
    return sums


def _columns(cell: Cell) -> tuple[float, float, float, float]:
    return cell.tokens, cell.seconds, cell.advanced or 0.0, cell.drafts or 0.0


Over = Literal["prompts", "conversations", "blocks", "deployments"]


@dataclass
class Measured:
    """Runs of one deployment under one load, by arm: every turn, or every window.

    ``deployment`` counts from 0; the side's arm in it is ``side.arms[deployment]``.
    """

    load: Load
    deployment: int = 0
    runs: dict[str, list[LoadRun]] = field(default_factory=dict)

    def take(self, run: LoadRun) -> None:
        """Add a turn or window."""
        self.runs.setdefault(run.arm, []).append(run)

    @property
    def one_at_a_time(self) -> bool:
        """Whether the arms took turns prompt by prompt: the load has one request in flight."""
        return self.load.kind == "closed" and self.load.concurrency == 1

    def requests(self, arm: str) -> list[RequestRecord]:
        """Return all requests of one arm."""
        return [record for run in self.runs.get(arm, []) for record in run.records]

    def windows(self, arm: str) -> list[tuple[int, Window]]:
        """Return (block, window) pairs of one arm; meaningless if `one_at_a_time`."""
        return [(run.block, run.window) for run in self.runs.get(arm, [])]

    def only(self, keep: Callable[[RequestRecord], bool]) -> Measured:
        """Return a copy with some of the requests."""
        kept = {
            arm: [replace(run, records=tuple(filter(keep, run.records))) for run in runs]
            for arm, runs in self.runs.items()
        }
        return replace(self, runs=kept)

    def whole(self) -> Measured:
        """Return a copy without incomplete blocks, in which not every arm had both windows."""
        if self.one_at_a_time:
            return self
        counts = Counter(run.block for runs in self.runs.values() for run in runs)
        full = {block for block, count in counts.items() if count == 2 * len(self.runs)}
        kept = {arm: [run for run in runs if run.block in full] for arm, runs in self.runs.items()}
        return replace(self, runs=kept)


def ratios_of(
    pair: Pair, measured: Sequence[Measured], confidence: float = CONFIDENCE, *, whole_requests: bool = False
) -> Ratios:
    """Compute the ratio of the rates of one pair under one load and its factors; one element per deployment.

    ``whole_requests``: by the waiting time of requests, for a part of the prompts; else, with several in
    flight, by the wall time of windows, which all requests share. Windows that share conversations are not
    independent: then each interval is at least as wide as that over conversations.

    Raises:
        ValueError: the two sides share too little for an interval.
    """

    def cells(side: ArmDeployments, measurement: Measured, by_prompt: bool) -> Cells:
        arm = side.arms[measurement.deployment].name
        records = measurement.requests(arm)
        if by_prompt:
            return of_prompts(records, speculates=side.speculates)
        if whole_requests:
            return of_requests_in_blocks(records, speculates=side.speculates)
        return of_blocks(records, measurement.windows(arm), speculates=side.speculates)

    def ratios(by_prompt: bool) -> Ratios:
        faster, slower = (
            [cells(side, measurement, by_prompt) for measurement in measured]
            for side in (pair.faster, pair.slower)
        )
        return compare_cells(faster, slower, confidence=confidence)

    alone, (conversations, prompts) = measured[0].one_at_a_time, _counts(pair, measured)
    if alone or conversations == prompts:
        return replace(ratios(alone), conversations=conversations)
    return replace(_wider(ratios(False), ratios(True)), conversations=conversations)


def _wider(over_blocks: Ratios, over_conversations: Ratios) -> Ratios:
    """Return the ratios over blocks, each with the wider of the two intervals."""

    def wider(interval: Interval | None, other: Interval | None) -> Interval | None:
        return interval if interval is None or other is None else interval.widened(other)

    return replace(
        over_blocks,
        rate=over_blocks.rate.widened(over_conversations.rate),
        acceptance=wider(over_blocks.acceptance, over_conversations.acceptance),
        step_time=wider(over_blocks.step_time, over_conversations.step_time),
    )


def _counts(pair: Pair, measured: Sequence[Measured]) -> tuple[int, int]:
    """Count the conversations and the prompts that both arms of a pair answered: only these are compared."""
    shared: set[tuple[str, str]] = set()
    for measurement in measured:
        faster, slower = (
            _answered_prompts(measurement.requests(side.arms[measurement.deployment].name))
            for side in (pair.faster, pair.slower)
        )
        shared |= faster & slower
    return len({unit for unit, _ in shared}), len(shared)


def _answered_prompts(records: Iterable[RequestRecord]) -> set[tuple[str, str]]:
    """Return the prompts, each with its unit, whose turns an arm has all answered."""
    answered_all: dict[tuple[str, str], bool] = {}
    for record in records:
        if record.phase == "measured":
            answered = record.error is None and bool(record.output_tokens)
            prompt = record.unit, record.prompt_id
            answered_all[prompt] = answered_all.get(prompt, True) and answered
    return {prompt for prompt, answered in answered_all.items() if answered}


def ratios_of_requests(
    pair: Pair, measured: Sequence[Measured], confidence: float = CONFIDENCE
) -> Ratios | None:
    """Do the same for whole requests; None if there are too few."""
    try:
        return ratios_of(pair, measured, confidence, whole_requests=True)
    except ValueError:
        return None


def compare(pair: Pair, measured: Sequence[Measured], *, temperature: float | None) -> ComparisonRecord:
    """Compute the ratio of one pair under one load; ``measured`` has one element per deployment.

    Raises:
        ValueError: the two sides share too little for an interval.
    """
    load, alone = measured[0].load, measured[0].one_at_a_time
    ratios = ratios_of(pair, measured)
    conversations, prompts = _counts(pair, measured)
    turns: Over = "prompts" if conversations == prompts else "conversations"
    over: Over = "deployments" if len(measured) > 1 else turns if alone else "blocks"
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
        control=pair.faster.is_control,
        identical_outputs=alike[0] if alike else None,
        compared_outputs=alike[1] if alike else None,
        conversations=ratios.conversations,
        arms=tuple(arm.name for side in (pair.faster, pair.slower) for arm in side.arms),
    )


def identical_outputs(pair: Pair, measured: Sequence[Measured]) -> tuple[int, int] | None:
    """Count prompts with identical answers on both sides, and prompts both answered; None without any."""
    alike = alike_outputs(pair, measured)
    return (sum(alike.values()), len(alike)) if alike else None


Key = tuple[str, str, int]  #: a request's conversation, its prompt's id, and the turn within the prompt


def key_of(record: RequestRecord) -> Key:
    """Return the key that equal requests of two arms share."""
    return record.unit, record.prompt_id, record.turn


def alike_outputs(pair: Pair, measured: Sequence[Measured]) -> dict[Key, bool]:
    """Tell for each prompt (id and turn) that both sides answered whether all its answers are identical."""
    faster, slower = (_outputs(side, measured) for side in (pair.faster, pair.slower))
    return {
        key: answers == slower[key] and len(answers) == 1 for key, answers in faster.items() if key in slower
    }


def _outputs(side: ArmDeployments, measured: Sequence[Measured]) -> dict[Key, set[str]]:
    outputs: dict[Key, set[str]] = {}
    for each in measured:
        for record in _answered(each.requests(side.arms[each.deployment].name)):
            outputs.setdefault(key_of(record), set()).add(record.output_sha256 or "")
    return outputs


def _answered(records: Iterable[RequestRecord]) -> list[RequestRecord]:
    return [
        record
        for record in records
        if record.phase == "measured" and record.error is None and record.output_sha256 is not None
    ]
