"""The intervals hold the truth as often as they say, on simulated worlds with a seed."""

from __future__ import annotations

import math
import random

import pytest

from peagle_sm.measure.compare.pairs import compare_cells
from peagle_sm.measure.records import Interval
from tests.measure.compare.simulating import World

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


@pytest.mark.slow
@pytest.mark.parametrize("world", [*ONE_DEPLOYMENT, *SEVERAL], ids=str)
def test_the_interval_covers_the_truth_as_often_as_it_says(world: World) -> None:
    covered = sum(found.low <= world.truth <= found.high for found in intervals(world))
    assert covered >= FEWEST


def test_an_arm_beside_itself_is_not_shown_to_differ() -> None:
    world = World(gain=1.0, over_prompts=0.0, prompts=30)
    false_alarms = sum(found.shown for found in intervals(world, 200))
    assert false_alarms <= 20  # 5% of 200 is 10, with a standard deviation of 3.1


def test_a_gain_of_twice_the_half_width_is_shown_nearly_always() -> None:
    """64 prompts with the spread between heads tell +-6.5% or so: a gain of 13% is seen."""
    world = World(gain=1.13 * math.exp(0.25**2 / 2), over_lengths=0.3)
    shown = sum(found.shown and found.low > 1 for found in intervals(world, 100))
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
    halves = [(math.log(found.high / found.low) / 2) ** 2 for found in intervals(world, 200)]
    assert math.sqrt(math.fsum(halves) / len(halves)) == pytest.approx(half, rel=0.15)


def test_what_one_deployment_says_is_wrong_for_others() -> None:
    """Why one deployment must say "this deployment only": its interval knows nothing of the next one."""
    one = World(over_prompts=0.02, noise=0.01, over_deployments=0.03)
    covered = sum(found.low <= one.truth <= found.high for found in intervals(one, 100))
    assert covered < 50
