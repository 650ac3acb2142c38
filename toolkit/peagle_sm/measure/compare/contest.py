"""Measuring one deployment after another, keeping all of it, and saying what it shows."""

from __future__ import annotations

import os
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from peagle_sm.core.errors import SpecError
from peagle_sm.measure.compare.alternating import (
    Contender,
    Way,
    by_block,
    by_prompt,
    requests_per_window,
    warming,
)
from peagle_sm.measure.compare.analysis import Measured, compare
from peagle_sm.measure.compare.points import point_of
from peagle_sm.measure.compare.sides import Side, pairs_of
from peagle_sm.measure.load import LoadRun, LoadStopped, Target, WorkItem
from peagle_sm.measure.load.front import run_quietly
from peagle_sm.measure.records import ArmRecord, ComparisonRecord, Load, PointRecord
from peagle_sm.measure.result_file import ResultWriter

WARM_UP = 2  #: prompts that every arm answers before a load of one request at a time
FEWEST = 2  #: prompts or blocks: an interval needs as many


@dataclass(frozen=True)
class Setup:
    """What every deployment is asked."""

    items: tuple[WorkItem, ...]
    loads: tuple[Load, ...]
    blocks: int = 6
    repeat: bool = False
    temperature: float | None = 0.0

    def prompts_of(self, load: Load) -> int:
        """How many prompts each arm is measured on under a load."""
        if load.concurrency == 1:
            return len(self.items)
        places = load.concurrency or 1
        each = requests_per_window(len(self.items), places, self.blocks, repeat=self.repeat, load=load)
        return each * 2 * self.blocks

    def check(self) -> None:
        """Refuse what could not give an interval, before anything is asked or deployed.

        Raises:
            SpecError: too few prompts or blocks for one of the loads.
        """
        if len(self.items) < FEWEST or self.blocks < FEWEST:
            raise SpecError(
                f"{len(self.items)} prompts and {self.blocks} blocks; an interval needs at least {FEWEST}.",
                next_step="Ask for more with --prompts and --blocks.",
            )
        for load in self.loads:
            self.prompts_of(load)


@dataclass
class Contest:
    """Asks arms in turns, writes every request down, and compares what is there in the end.

    ``way_of`` makes the way of a run from what takes its turns: clock, connections and progress are its own.
    ``on_load`` hears of each load, and of how many prompts it measures of all arms; ``on_end`` of its end.
    """

    setup: Setup
    writer: ResultWriter
    salt: str
    way_of: Callable[[Callable[[LoadRun], None]], Way]
    run: Callable[[Callable[[], Coroutine[Any, Any, None]]], None] = run_quietly
    load_average: Callable[[], float] = lambda: os.getloadavg()[0]
    on_load: Callable[[Load, int], None] = lambda load, prompts: None
    on_end: Callable[[], None] = lambda: None
    measured: list[Measured] = field(default_factory=list)
    points: list[PointRecord] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def measure(
        self, deployment: int, arms: Sequence[ArmRecord], target_of: Callable[[ArmRecord], Target]
    ) -> None:
        """Put every load on all arms of one deployment, in turns.

        Raises:
            LoadStopped: an arm fails all that it is asked.
            KeyboardInterrupt: Ctrl-C. In either case what was whole is kept.
        """
        for arm in arms:
            self.writer.append(arm)
        targets = {arm.name: target_of(arm) for arm in arms}
        for load in self.setup.loads:
            # Its own salt for each load too: the same prompts come again.
            contenders = [
                Contender(target, f"{self.salt}/{name}/{load.label}/") for name, target in targets.items()
            ]
            self.on_load(load, self.setup.prompts_of(load) * len(arms))
            measured = Measured(load, deployment)
            self.measured.append(measured)
            try:
                self.run(partial(self._put, load, contenders, measured))
            except LoadStopped as stopped:
                for record in stopped.records:
                    self.writer.append(record)
                raise
            finally:
                self._sum_up(arms, measured)
            self.on_end()

    async def _put(self, load: Load, contenders: Sequence[Contender], measured: Measured) -> None:
        def took(run: LoadRun) -> None:
            for record in run.records:
                self.writer.append(record)
            measured.take(run)

        way, setup = self.way_of(took), self.setup
        if measured.one_at_a_time:
            warm_up = [warming(item) for item in setup.items[-WARM_UP:]]
            await by_prompt(contenders, load, setup.items, warm_up, way)
        else:
            await by_block(contenders, load, setup.items, blocks=setup.blocks, repeat=setup.repeat, way=way)

    def _sum_up(self, arms: Sequence[ArmRecord], measured: Measured) -> None:
        for arm in arms:
            point = point_of(
                arm, measured, temperature=self.setup.temperature, machine_load=self.load_average()
            )
            if point is not None:
                self.points.append(point)
                self.writer.append(point)

    def conclude(self, sides: Sequence[Side]) -> list[ComparisonRecord]:
        """Compare every pair under every load, over the deployments that measured it; write it down."""
        found = []
        for load in self.setup.loads:
            every = [each.whole() for each in self.measured if each.load == load]
            for pair in pairs_of(sides):
                both = [
                    each
                    for each in every
                    if all(
                        each.runs.get(side.arms[each.deployment].name) for side in (pair.faster, pair.slower)
                    )
                ]
                try:
                    if both:
                        found.append(compare(pair, both, temperature=self.setup.temperature))
                except ValueError as error:
                    self.notes.append(f"{pair.faster.name} over {pair.slower.name}, {load.label}: {error}")
        for comparison in found:
            self.writer.append(comparison)
        return found
