"""Wrong decisions of the validation on simulated endpoints: up to three looks at each of five loads.

Each block of an endpoint has noise of its own, and both endpoints share the drift of the machine.
"""

from __future__ import annotations

import math
import random
from collections import Counter
from collections.abc import Sequence

import pytest

from peagle_bench.compare.analysis import Cell, compare_cells
from peagle_bench.tune.validate import (
    BLOCKS,
    ERROR,
    LOOKS,
    MOST_SLOWER,
    RatioOf,
    looked_at,
    verdict_of,
)

LOADS = 5  #: c=1, 2, 4, 8, and the steps
RUNS = 300
NOISE = (0.01, 0.02)
#: Error allowed in one direction, and what chance adds to it in so many runs.
MOST = ERROR / 2 + 2 * math.sqrt(ERROR / 2 * (1 - ERROR / 2) / RUNS)


class Endpoints:
    """The endpoints of a table and of the fixed K under one load; the table's rate is ``ratio`` times."""

    def __init__(self, draws: random.Random, ratio: float, noise: float) -> None:
        self.draws, self.ratio, self.noise = draws, ratio, noise
        self.table: dict[int, Cell] = {}
        self.fixed: dict[int, Cell] = {}

    def look(self, number: int) -> RatioOf:
        for block in range(number * BLOCKS, (number + 1) * BLOCKS):
            drift = self.draws.gauss(0, 0.05)
            for cells, seconds in ((self.table, 1 / self.ratio), (self.fixed, 1.0)):
                tokens = 1000 * math.exp(drift + self.draws.gauss(0, self.noise))
                cells[block] = Cell(tokens, seconds, None, None)
        return lambda confidence: compare_cells([self.table], [self.fixed], confidence=confidence).rate


def validations(ratios: Sequence[float], noise: float, *, corrected: bool = True) -> Counter[str]:
    """Validate tables with these ratios by load; a table's verdict is that of the load that decided it."""
    draws = random.Random(f"{ratios} {noise}")
    found: Counter[str] = Counter()
    for _ in range(RUNS):
        verdict = "as fast"
        for ratio in ratios:
            endpoints = Endpoints(draws, ratio, noise)
            verdict = looked_at(endpoints.look, len(ratios))[1] if corrected else uncorrected(endpoints)
            if verdict != "as fast":
                break
        found[verdict] += 1
    return found


def uncorrected(endpoints: Endpoints) -> str:
    """The same decisions with a 95% interval at each look: what was done before."""
    for number in range(LOOKS):
        ratio_of = endpoints.look(number)
        verdict = verdict_of(lambda confidence, of=ratio_of: of(0.95), 1)  # type: ignore[misc]
        if verdict != "not decided":
            return verdict
    return "not decided"


@pytest.mark.parametrize("noise", NOISE)
def test_a_table_at_the_limit_is_rarely_accepted(noise: float) -> None:
    """One load is too slow by just the limit, and all others are faster."""
    found = validations([1.1, 1.1, 1.1, 1.1, 1 - MOST_SLOWER], noise)
    assert found["as fast"] <= MOST * RUNS, found


@pytest.mark.parametrize("noise", NOISE)
def test_a_table_that_is_as_fast_is_rarely_called_slower(noise: float) -> None:
    found = validations([1.0] * LOADS, noise)
    assert found["slower"] <= MOST * RUNS, found


def test_without_the_correction_one_in_ten_would_be() -> None:
    assert validations([1.0] * LOADS, 0.02, corrected=False)["slower"] > 0.1 * RUNS


def test_what_is_faster_at_each_load_is_accepted() -> None:
    """The correction leaves enough power: noise of 1% with equal rates, and 2% with a gain of 3%."""
    assert validations([1.0] * LOADS, 0.01)["as fast"] > 0.95 * RUNS
    assert validations([1.03] * LOADS, 0.02)["as fast"] > 0.95 * RUNS
