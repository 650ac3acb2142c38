"""Order of the windows of a tuning.

A tuning measures its K in one running engine, or in one deployment after another.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager

from peagle_bench.results.records import Reading
from peagle_bench.tune.choice import MOST_DEPLOYED, ROUNDS, next_deployment, next_round
from peagle_bench.tune.curve import fit, level
from peagle_bench.tune.windows import WindowReader

Tell = Callable[[str], None]
Bring = Callable[[int], AbstractContextManager[WindowReader]]
"""Deploys one K; the end of the context deletes the endpoint."""


def in_one_engine(
    side: WindowReader,
    baseline: WindowReader,
    concurrencies: Sequence[int],
    max_k: int,
    tell: Tell,
) -> list[Reading]:
    """Measure a few K at each concurrency, then those that may be the best, and the baseline in every round.

    At the end every K that is the best at some concurrency is measured at all of them, so that one K can
    serve all. Returns the readings of the engine and then those of the baseline, whose K is 0.
    """
    engine: list[Reading] = []
    plain: list[Reading] = []
    blocks = dict.fromkeys(concurrencies, 0)

    def measure(ks: Sequence[int], concurrency: int) -> None:
        block = blocks[concurrency]
        engine.extend(side.read(k, concurrency, block) for k in (ks if block % 2 == 0 else reversed(ks)))
        plain.append(baseline.read(0, concurrency, block))
        blocks[concurrency] += 1

    for concurrency in concurrencies:
        for number in range(ROUNDS):
            ks = next_round(engine, max_k, concurrency)
            if not ks:
                break
            tell(f"c={concurrency}, round {number + 1} of at most {ROUNDS}: K {_listed(ks)}")
            measure(ks, concurrency)
    best = {rates.best for rates in fit(level(engine)).values()}
    for concurrency in concurrencies:
        known = {reading.k for reading in engine if reading.concurrency == concurrency}
        if missing := sorted(best - known):
            tell(f"c={concurrency}: K {_listed(missing)}, the best at another load")
            measure(missing, concurrency)
    return [*engine, *plain]


def by_deployments(
    bring: Bring,
    baseline: WindowReader,
    concurrencies: Sequence[int],
    max_k: int,
    tell: Tell,
    *,
    beside: bool,
    most: int = MOST_DEPLOYED,
) -> tuple[list[Reading], int]:
    """Deploy and measure as few K as possible; return the readings and the number of deployments.

    ``beside``: measure the baseline again with each K, because both share one machine.
    """
    readings = [baseline.read(0, concurrency, 0) for concurrency in concurrencies]
    block = 0
    while (k := next_deployment(readings, max_k, most)) is not None:
        tell(f"deployment {block + 1} of at most {most}: K={k}")
        with bring(k) as side:
            for concurrency in concurrencies:
                readings.append(side.read(k, concurrency, block))
                if beside and block:
                    readings.append(baseline.read(0, concurrency, block))
        block += 1
    return readings, block


def _listed(ks: Sequence[int]) -> str:
    return ", ".join(map(str, ks))
