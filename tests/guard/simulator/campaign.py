"""Runs many worlds under all rules and adds up the verdicts; in one process, or in several."""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor

from tests.guard.simulator.guard_run import run_guard
from tests.guard.simulator.judging.judge import judge
from tests.guard.simulator.judging.report import GUARD
from tests.guard.simulator.judging.rivals import RIVALS
from tests.guard.simulator.judging.tally import Tally
from tests.guard.simulator.rival_run import run_rival
from tests.guard.simulator.worlds.generate import make_world

BATCH = 50
"""Worlds between two lines of progress."""


def batch(seeds: range, rivals: bool = True) -> Tally:
    """Run the worlds of some seeds and return their tally."""
    tally = Tally()
    # A world's objects refer to each other and die together: one collection a batch is enough.
    gc.disable()
    try:
        _run(tally, seeds, rivals)
    finally:
        gc.enable()
    gc.collect()
    return tally


def _run(tally: Tally, seeds: range, rivals: bool) -> None:
    for seed in seeds:
        world = make_world(seed)
        run = run_guard(world)
        verdict = judge(world, run.ended())
        tally.add_guard(GUARD, world, verdict)
        tally.crashes += [f"seed {seed}: {crash}" for crash in run.crashes]
        for size, calls in run.sweeps:
            tally.sweeps.add(size, calls)
        if rivals:
            for rival in RIVALS:
                tally.add_rival(rival.name, judge(world, run_rival(world, rival)))


def campaign(worlds: int, seed: int, jobs: int, progress: Callable[[int, float], None]) -> Tally:
    """Run worlds ``seed`` to ``seed + worlds - 1``; ``progress`` hears (worlds done, seconds so far)."""
    total, done, began = Tally(), 0, time.monotonic()
    parts = [range(first, min(first + BATCH, seed + worlds)) for first in range(seed, seed + worlds, BATCH)]
    for seeds, tally in zip(parts, _tallies(parts, jobs), strict=True):
        total.join(tally)
        done += len(seeds)
        progress(done, time.monotonic() - began)
    return total


def _tallies(parts: list[range], jobs: int) -> Iterator[Tally]:
    if jobs == 1:
        yield from map(batch, parts)
        return
    with ProcessPoolExecutor(max_workers=jobs) as pool:
        yield from pool.map(batch, parts)
