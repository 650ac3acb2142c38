"""From what was measured under one load to the comparisons of all pairs. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

from peagle_sm.measure.compare.cells import (
    Cells,
    of_blocks,
    of_prompts,
    of_requests_in_blocks,
)
from peagle_sm.measure.compare.pairs import Ratios, compare_cells
from peagle_sm.measure.compare.sides import Pair, Side
from peagle_sm.measure.load import LoadRun, Window
from peagle_sm.measure.records import ComparisonRecord, Interval, Load, RequestRecord

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
    ratios = compare_cells(*(_cells(side, measured) for side in (pair.faster, pair.slower)))
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


def _cells(side: Side, measured: Sequence[Measured]) -> list[Cells]:
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
