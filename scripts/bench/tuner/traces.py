"""K by load on made-up endpoints under made-up traces of load: how much of the best K's rate is lost. Pure.

Each moment of a trace counts the same: the regret of a trace is the mean, over its moments, of the share of
the rate that the K in use gives away against the best K at that load. The oracle knows every rate.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from peagle_bench.tune.fit import Array, Noise
from peagle_bench.tune.loads import LoadTable, at_each_load, conclude_loads
from peagle_bench.tune.readings import Reading
from scripts.bench.tuner.simulate import Draw
from scripts.bench.tuner.surface import Surface, measure
from scripts.bench.tuner.worlds import draw_world

MOMENTS = 600
MEASURED = (1, 2, 4, 8, 16, 32)  #: loads that the tuner measures; the traces have every load up to the last

Trace = Array
"""Requests in flight at each moment."""


def steps(rng: np.random.Generator, most: int) -> Trace:
    """Constant stretches of random length, each at another load."""
    found: list[int] = []
    while len(found) < MOMENTS:
        found += [_load(rng, most)] * int(rng.integers(10, 120))
    return np.asarray(found[:MOMENTS])


def ramps(rng: np.random.Generator, most: int) -> Trace:
    """Slow rises and falls between random loads, even in the logarithm."""
    found: list[float] = []
    at = _load(rng, most)
    while len(found) < MOMENTS:
        goal = _load(rng, most)
        found += list(np.geomspace(at, goal, int(rng.integers(30, 200))))
        at = goal
    whole: Trace = np.rint(np.asarray(found[:MOMENTS]))
    return whole


def bursts(rng: np.random.Generator, most: int) -> Trace:
    """A low load with short bursts of a high one."""
    low = int(rng.integers(1, max(2, most // 8) + 1))
    found = np.full(MOMENTS, low, dtype=float)
    at = 0
    while (at := at + int(rng.exponential(40)) + 1) < MOMENTS:
        found[at : at + int(rng.integers(3, 25))] = int(rng.integers(most // 2, most + 1))
    return found


def _load(rng: np.random.Generator, most: int) -> int:
    return round(float(np.exp(rng.uniform(0, np.log(most)))))


KINDS: dict[str, Callable[[np.random.Generator, int], Trace]] = {
    "steps": steps,
    "ramps": ramps,
    "bursts": bursts,
}


@dataclass
class Simulated:
    """Reader of windows of a made-up engine."""

    surface: Surface
    noise: Noise
    rng: np.random.Generator
    windows: int = 0

    def read(self, k: int, concurrency: int, block: int) -> Reading:
        """Measure one window."""
        self.windows += 1
        return measure(self.surface, k, (concurrency,), self.noise, self.rng, block)[0]


@dataclass(frozen=True)
class Tried:
    """What the tuner did on one endpoint: its table, its one K for all loads, and its windows."""

    table: LoadTable
    fixed: int
    windows: int


def tune(
    surface: Surface, loads: tuple[int, ...], noise: Noise, rng: np.random.Generator, rounds: int
) -> Tried:
    """Measure an endpoint as `peagle-sm tune --loads` does."""
    side = Simulated(surface.with_head(), noise, rng)
    baseline = Simulated(surface, noise, rng)
    engine, plain = at_each_load(side, baseline, loads, surface.max_k, lambda _: None, rounds=rounds)
    result = conclude_loads("p-eagle", engine, plain, surface.max_k, noise)
    return Tried(result.table, result.fixed.common.k, side.windows + baseline.windows)


def regret(surface: Surface, trace: Trace, k_at: Callable[[int], int]) -> float:
    """Compute the mean share of the rate that is lost on a trace against the best K at each load."""
    engine = surface.with_head()
    lost = {}
    for load in {int(load) for load in trace}:
        rates = [engine.rate(k, load) for k in range(engine.max_k + 1)]
        lost[load] = 1 - rates[k_at(load)] / max(rates)
    return float(np.mean([lost[int(load)] for load in trace]))


@dataclass(frozen=True)
class TraceOutcome:
    """Regrets on the traces: of the tables, of the tuner's one K, and of the best single K there is."""

    table: Array
    fixed: Array
    best_single: Array
    rows: Array  #: rows of each table
    windows: float  #: mean number of windows of a tuning


def simulate_traces(
    count: int, seed: int, noise: Noise, *, rounds: int, max_k: int = 11, draw: Draw | None = None
) -> TraceOutcome:
    """Tune ``count`` endpoints, each with one trace; the kinds of traces take turns."""
    every = tuple(range(1, MEASURED[-1] + 1))
    found: list[tuple[float, float, float, int, int]] = []
    for index in range(count):
        rng = np.random.default_rng([seed, index, 2])
        surface = (draw or (lambda r, c: draw_world(r, c, max_k)))(
            np.random.default_rng([seed, index]), every
        )
        kind = list(KINDS.values())[index % len(KINDS)]
        trace = kind(rng, MEASURED[-1])
        tried = tune(surface, MEASURED, noise, np.random.default_rng([seed, index, 1]), rounds)
        single = min(
            regret(surface, trace, lambda _, k=k: k)  # type: ignore[misc]
            for k in range(1, surface.max_k + 1)
        )
        found.append(
            (
                regret(surface, trace, tried.table.k_at),
                regret(surface, trace, lambda _, k=tried.fixed: k),  # type: ignore[misc]
                single,
                len(tried.table.rows),
                tried.windows,
            )
        )
    columns = np.asarray(found, dtype=float).T
    return TraceOutcome(columns[0], columns[1], columns[2], columns[3], float(columns[4].mean()))
