from __future__ import annotations

import math
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from peagle_bench.compare.analysis import Cell, compare_cells
from peagle_bench.compare.confidence_intervals import (
    over_deployments,
    over_units,
    ratio,
    share_of,
    share_over_units,
)

amount = st.floats(0.5, 500)
cells = st.builds(
    lambda tokens, seconds, drafts, more: Cell(tokens, seconds, drafts, drafts + more),
    amount,
    amount,
    amount,
    amount,
)


def tables(least: int = 2) -> st.SearchStrategy[dict[int, Cell]]:
    return st.lists(cells, min_size=least, max_size=8).map(lambda found: dict(enumerate(found)))


@given(tables())
def test_an_arm_beside_itself_is_exactly_one(arm: dict[int, Cell]) -> None:
    result = compare_cells([arm], [arm])
    assert (result.rate.value, result.rate.low, result.rate.high) == (1.0, 1.0, 1.0)
    assert not result.rate.shown


@given(tables(), st.floats(1.01, 9))
def test_an_arm_uniformly_faster_is_that_much_faster(arm: dict[int, Cell], gain: float) -> None:
    fast = {unit: Cell(c.tokens, c.seconds / gain, c.drafts, c.advanced) for unit, c in arm.items()}
    result = compare_cells([fast], [arm])
    assert (result.rate.value, result.rate.low, result.rate.high) == pytest.approx((gain, gain, gain))
    assert result.acceptance is not None
    assert result.acceptance.value == pytest.approx(1)


@given(tables(), tables())
def test_acceptance_times_step_time_is_the_ratio(one: dict[int, Cell], other: dict[int, Cell]) -> None:
    result = compare_cells([one], [other])
    assert result.acceptance is not None
    assert result.step_time is not None
    assert result.acceptance.value * result.step_time.value == pytest.approx(result.rate.value)


@given(tables(), tables())
def test_turned_round_the_ratio_is_its_inverse(one: dict[int, Cell], other: dict[int, Cell]) -> None:
    there, back = compare_cells([one], [other]).rate, compare_cells([other], [one]).rate
    assert there.value * back.value == pytest.approx(1)
    assert there.low * back.high == pytest.approx(1)


def test_one_unit_gives_no_interval() -> None:
    with pytest.raises(ValueError, match="measured in both arms: 1"):
        compare_cells([{"a": Cell(1, 1, None, None)}], [{"a": Cell(1, 1, None, None)}])
    with pytest.raises(ValueError, match="at least 2 units"):
        over_units([(1.0, 1.0)], (1, -1))
    with pytest.raises(ValueError, match="at least 2, found 1"):
        over_deployments([{"a": (1.0, 1.0)}], (1, -1))


def test_an_arm_that_wrote_nothing_has_no_ratio() -> None:
    with pytest.raises(ValueError, match="the sum of a column is 0"):
        ratio([{"a": (0.0, 1.0), "b": (0.0, 1.0)}], (1, -1))


def test_drafts_in_one_answer_only_give_no_factors() -> None:
    drafting = {"a": Cell(10, 1, 3, 9), "b": Cell(1, 1, 0, 0)}
    plain = {"a": Cell(10, 2, 10, 10), "b": Cell(1, 1, 1, 1)}
    result = compare_cells([drafting], [plain])
    assert result.rate.value == pytest.approx(1.5)
    assert result.acceptance is None


@pytest.mark.parametrize("share", [0.5, 0.9, 0.99])
@pytest.mark.parametrize("of", [8, 20, 100])
def test_a_share_covers_at_least_as_often_as_it_says(share: float, of: int) -> None:
    """Exactly: the probability of each count, summed over those whose interval holds the truth."""
    covered = 0.0
    for hits in range(of + 1):
        result = share_of(hits, of, 0.95)
        if result.low <= share <= result.high:
            covered += math.comb(of, hits) * share**hits * (1 - share) ** (of - hits)
    assert covered >= 0.95


def test_a_share_is_that_of_the_tables() -> None:
    """Clopper and Pearson's interval for 4 of 10, and the rule of three for 0 of 30 (NIST, 7.2.4)."""
    share = share_of(4, 10)
    assert (share.value, round(share.low, 4), round(share.high, 4)) == (0.4, 0.1216, 0.7376)
    assert share_of(0, 30).high == pytest.approx(1 - 0.025 ** (1 / 30))
    assert share_of(30, 30).low == pytest.approx(0.025 ** (1 / 30))


def test_draws_of_one_unit_are_not_independent() -> None:
    """20 units, whose draws all agree within the unit: as wide as 20 draws, not as 2,000."""
    clustered = share_over_units([(100.0 * (n % 4 > 0), 100.0) for n in range(20)])
    alone = share_of(15, 20)
    assert clustered.value == 0.75
    assert clustered.low == pytest.approx(alone.low, abs=0.03)
    assert clustered.high == pytest.approx(alone.high, abs=0.03)
    assert share_over_units([(5.0, 5.0)] * 10).low == pytest.approx(share_of(10, 10).low)
    with pytest.raises(ValueError, match="a share needs 2 units with draws, found 1"):
        share_over_units([(1.0, 2.0)])


def test_a_share_of_clustered_draws_covers_as_often_as_it_says() -> None:
    draw, covered = random.Random(7), 0
    for _ in range(400):
        rows = []
        for _ in range(12):
            own, of = draw.betavariate(8, 2), draw.randrange(5, 60)
            rows.append((float(sum(draw.random() < own for _ in range(of))), float(of)))
        result = share_over_units(rows, 0.95)
        covered += result.low <= 0.8 <= result.high
    assert covered >= 367  # 95% of 400 is 380 with a standard deviation of 4.4
