"""Runs many worlds of one kind under the guard and adds up what the judges found."""

from __future__ import annotations

import gc
from collections import Counter
from collections.abc import Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from functools import partial

from tests.guard.simulator.guard_run import run_guard
from tests.guard.simulator.judging.judge import BROKEN, judge
from tests.guard.simulator.judging.judge_events import judge_events
from tests.guard.simulator.kinds import MIXED, kind_world

BATCH = 50
"""Worlds of one process at a time."""


@dataclass(slots=True)
class Tally:
    """What was found in worlds of one kind."""

    worlds: int = 0
    lives: int = 0
    idle_offs: int = 0
    counts: Counter[str] = field(default_factory=Counter)
    """How often each promise was broken, and what no datapoint could show."""
    broken: list[str] = field(default_factory=list)
    """The seed and the notes of each world with a broken promise."""

    def add(self, other: Tally) -> None:
        """Add what was found in other worlds."""
        self.worlds += other.worlds
        self.lives += other.lives
        self.idle_offs += other.idle_offs
        self.counts.update(other.counts)
        self.broken += other.broken


def run_batch(kind: str, seeds: Iterable[int]) -> Tally:
    """Run the worlds of some seeds."""
    tally = Tally()
    # A world's objects refer to each other and die together: one collection a batch is enough.
    gc.disable()
    try:
        for seed in seeds:
            tally.add(_one(kind, seed))
    finally:
        gc.enable()
    gc.collect()
    return tally


def _one(kind: str, seed: int) -> Tally:
    world = kind_world(kind, seed)
    run = run_guard(world)
    if kind == MIXED:
        # Whole days with several faults: the judge of single events would need to know which explains what.
        verdict = judge(world, run.ended())
        counts = Counter({name: getattr(verdict, name) for name in BROKEN} | {"crashes": len(run.crashes)})
        lives, idle_offs, notes = verdict.lives, verdict.idle_offs, [*verdict.notes, *run.crashes]
        harmed = counts.total() > 0
    else:
        judged = judge_events(world, run)
        counts, lives, idle_offs, notes = judged.counts, judged.lives, judged.idle_offs, judged.notes
        harmed = bool(notes)
    return Tally(1, lives, idle_offs, counts, [f"seed {seed}: {'; '.join(notes)}"] if harmed else [])


def campaign(kind: str, worlds: int, seed: int, jobs: int) -> Iterator[Tally]:
    """Run worlds ``seed`` to ``seed + worlds - 1`` of a kind; yield the tally so far after each batch."""
    total, end = Tally(), seed + worlds
    parts = [range(first, min(first + BATCH, end)) for first in range(seed, end, BATCH)]
    run = partial(run_batch, kind)
    with ProcessPoolExecutor(max_workers=jobs) as pool:
        for tally in map(run, parts) if jobs == 1 else pool.map(run, parts):
            total.add(tally)
            yield total
