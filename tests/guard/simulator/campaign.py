"""Runs many worlds of one kind under the guard and adds up what the judges found."""

from __future__ import annotations

import gc
from collections.abc import Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from functools import partial

from tests.guard.simulator.guard_run import run_guard
from tests.guard.simulator.judging.judge import Tally, judge
from tests.guard.simulator.judging.judge_events import judge_events
from tests.guard.simulator.kinds import MIXED, kind_world

BATCH = 50
"""Worlds of one process at a time."""


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
        tally = judge(world, run.ended())
        for text in run.crashes:
            tally.note("crashes", text)
    else:
        tally = judge_events(world, run)
    tally.broken = [f"seed {seed}: {'; '.join(tally.broken)}"] if tally.broken else []
    return tally


def campaign(kind: str, worlds: int, seed: int, jobs: int) -> Iterator[Tally]:
    """Run worlds ``seed`` to ``seed + worlds - 1`` of a kind; yield the tally so far after each batch."""
    total, end = Tally(), seed + worlds
    parts = [range(first, min(first + BATCH, end)) for first in range(seed, end, BATCH)]
    run = partial(run_batch, kind)
    with ProcessPoolExecutor(max_workers=jobs) as pool:
        for tally in map(run, parts) if jobs == 1 else pool.map(run, parts):
            total.add(tally)
            yield total
