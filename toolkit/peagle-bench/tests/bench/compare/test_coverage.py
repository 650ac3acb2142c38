"""The intervals hold the truth as often as they say, on simulated worlds with a seed."""

from __future__ import annotations

import math
import random

import pytest

from peagle_bench.compare.alternating import abba
from peagle_bench.compare.analysis import Cell, add, compare_cells
from peagle_bench.results.records import Interval
from tests.bench.compare.simulating import World

TRIALS = 200
# 95% of 200 is 190 with a standard deviation of 3.1; 181 is nearly three below.
FEWEST = 181

ONE_DEPLOYMENT = [
    World(prompts=64),
    World(prompts=21),
    World(prompts=8, over_lengths=0.3),
    World(prompts=12, over_lengths=1.2),
]
SEVERAL = [
    World(prompts=64, deployments=3, over_deployments=0.02, over_prompts=0.05),
    World(prompts=40, deployments=2, over_deployments=0.03, over_prompts=0.05),
    World(prompts=20, deployments=5, over_deployments=0.03),
    World(prompts=40, deployments=3, over_deployments=0.01, over_prompts=0.25),
]


def intervals(world: World, trials: int = TRIALS) -> list[Interval]:
    draws = random.Random(f"{world}")
    return [compare_cells(*world.draw(draws)).rate for _ in range(trials)]


@pytest.mark.campaign
@pytest.mark.slow
@pytest.mark.parametrize("world", [*ONE_DEPLOYMENT, *SEVERAL], ids=str)
def test_the_interval_covers_the_truth_as_often_as_it_says(world: World) -> None:
    covered = sum(interval.low <= world.truth <= interval.high for interval in intervals(world))
    assert covered >= FEWEST


def test_an_arm_beside_itself_is_not_shown_to_differ() -> None:
    world = World(gain=1.0, over_prompts=0.0, prompts=30)
    false_alarms = sum(interval.shown for interval in intervals(world, 200))
    assert false_alarms <= 20  # 5% of 200 is 10, with a standard deviation of 3.1


def test_a_gain_of_twice_the_half_width_is_shown_nearly_always() -> None:
    """64 prompts with the spread between heads tell +-6.5% or so: a gain of 13% is seen."""
    world = World(gain=1.13 * math.exp(0.25**2 / 2), over_lengths=0.3)
    shown = sum(interval.shown and interval.low > 1 for interval in intervals(world, 100))
    assert shown >= 88


@pytest.mark.parametrize(
    ("deployments", "spread", "half"),
    [(3, 0.01, 0.035), (3, 0.02, 0.070), (3, 0.03, 0.105), (5, 0.01, 0.018), (5, 0.02, 0.035)],
)
def test_half_widths_over_deployments_are_those_known(deployments: int, spread: float, half: float) -> None:
    """t(D - 1) * sqrt(2) * spread / sqrt(D): both arms are deployed anew, so both spreads count."""
    world = World(
        prompts=6, deployments=deployments, over_deployments=spread, over_prompts=0, over_lengths=0, noise=0
    )
    halves = [(math.log(interval.high / interval.low) / 2) ** 2 for interval in intervals(world, 200)]
    assert math.sqrt(math.fsum(halves) / len(halves)) == pytest.approx(half, rel=0.15)


def test_what_one_deployment_says_is_wrong_for_others() -> None:
    """Why one deployment must say "this deployment only": its interval knows nothing of the next one."""
    one = World(over_prompts=0.02, noise=0.01, over_deployments=0.03)
    covered = sum(interval.low <= one.truth <= interval.high for interval in intervals(one, 100))
    assert covered < 50


def windows(draws: random.Random, order: list[tuple[int, str]], gain: float) -> Interval:
    """Windows of one machine whose speed wanders (a random walk of 3% a window); each jitters by 2%."""
    cells: dict[str, dict[int, list[Cell]]] = {"A": {}, "B": {}}
    wander = 0.0
    for block, arm in order:
        wander += draws.gauss(0, 0.03)
        rate = 1000 * (gain if arm == "B" else 1.0) * math.exp(wander + draws.gauss(0, 0.02))
        cells[arm].setdefault(block, []).append(Cell(rate * 10, 10.0, None, None))
    summed = {arm: {block: add(some) for block, some in blocks.items()} for arm, blocks in cells.items()}
    return compare_cells([summed["B"]], [summed["A"]]).rate


def test_blocks_in_abba_order_cover_on_a_machine_that_wanders() -> None:
    draws = random.Random(3)
    rows = [windows(draws, list(abba("AB", 6)), 1.05) for _ in range(TRIALS)]
    assert sum(row.low <= 1.05 <= row.high for row in rows) >= FEWEST
    assert sum(math.log(row.high / row.low) / 2 for row in rows) / TRIALS < 0.04


def test_arms_measured_one_after_the_other_do_not() -> None:
    """The same twelve windows each, but first all of one arm: why arms alternate."""
    draws = random.Random(4)
    order = [(block, arm) for arm in "AB" for block in range(6) for _ in range(2)]
    rows = [windows(draws, order, 1.05) for _ in range(100)]
    assert sum(row.low <= 1.05 <= row.high for row in rows) < 80
    assert sum(math.log(row.high / row.low) / 2 for row in rows) / 100 > 0.05, "and are less certain besides"
