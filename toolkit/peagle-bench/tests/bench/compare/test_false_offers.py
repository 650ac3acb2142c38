"""How often an equal head is called better: in 2.5% of the cases, over worlds in which a verdict is given.

The worlds of `test_conversations` are drawn as sums of each conversation, many at a time, so an excess of
0.3% over the nominal 2.5% is seen. Without the correction for skewness the mean of 20,000 runs is 3.1%.
"""

from __future__ import annotations

import math

import numpy
import pytest

from peagle_bench.compare.analysis import ACCEPTANCE
from peagle_bench.compare.confidence_intervals import ratio
from peagle_bench.results.records import Interval
from tests.bench.compare.test_conversations import WORLDS, World

VERDICTS = [world for world in WORLDS if world.conversations >= 8]
NOMINAL = 0.025


def intervals(world: World, trials: int, seed: int) -> list[Interval]:
    """Return the intervals of the acceptance ratio of an equal head, on new conversations each time."""
    draws = numpy.random.default_rng([seed, world.conversations, world.turns, world.uneven])
    shape = trials, world.conversations
    middle = (world.between**2 + world.within**2) / 2  # the true ratio is 1, as in World.draw
    gain, level = draws.normal(middle, world.between, shape), draws.normal(math.log(3), 0.2, shape)
    turns = numpy.full(shape, world.turns)
    if world.uneven:
        turns = 1 + numpy.floor(draws.exponential(world.turns, shape))
    tokens, serving, candidate = (numpy.zeros(shape) for _ in range(3))
    for turn in range(int(turns.max())):
        request = turns > turn
        written = request * (40 + numpy.exp(draws.normal(4, 0.5, shape)))
        length = numpy.exp(level + draws.normal(0, 0.1, shape))
        tokens += written
        serving += written / length
        candidate += written / (length * numpy.exp(gain + draws.normal(0, world.within, shape)))
    rows = numpy.stack([tokens, tokens, tokens, candidate, tokens, tokens, tokens, serving], axis=-1).tolist()
    return [ratio([dict(enumerate(units))], ACCEPTANCE) for units in rows]


def false_offers(trials: int, seed: int) -> dict[World, float]:
    by_name = {world: intervals(world, trials, seed) for world in VERDICTS}
    return {world: sum(each.low > 1 for each in every) / trials for world, every in by_name.items()}


@pytest.mark.parametrize(
    ("trials", "over_the_mean", "over_a_world"),
    [
        # Two standard deviations of the mean; of one world nearly three.
        (2000, 0.0025, 0.010),
        # Two and a half standard deviations of the mean.
        pytest.param(20_000, 0.001, 0.006, marks=[pytest.mark.campaign, pytest.mark.slow]),
    ],
)
def test_an_equal_head_is_called_better_in_no_more_than_the_nominal_share(
    trials: int, over_the_mean: float, over_a_world: float
) -> None:
    shares = false_offers(trials, seed=1 if trials == 2000 else 2)
    assert math.fsum(shares.values()) / len(shares) <= NOMINAL + over_the_mean, shares
    assert max(shares.values()) <= NOMINAL + over_a_world, shares


def test_skewness_widens_the_end_that_is_wrong_too_often_and_narrows_none() -> None:
    """Drafts of a candidate are skewed to the right, so the log ratio of lengths is skewed to the left."""
    plain = [9.8, 10.2] * 6
    skewed = [9.5] * 11 + [15.5]
    tables = [
        [{unit: (1, 1, 20.0, own, 1, 1, 20.0, 10.0) for unit, own in enumerate(drafts)}]
        for drafts in (plain, skewed)
    ]
    even, uneven = (ratio(table, ACCEPTANCE) for table in tables)
    below, above = (
        (math.log(each.value / each.low), math.log(each.high / each.value)) for each in (even, uneven)
    )
    assert below[0] == pytest.approx(below[1], rel=0.02)
    assert above[0] > 1.5 * above[1]
