from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from peagle_bench.compare.analysis import ACCEPTANCE, RATE, STEP_TIME, Cell, compare_cells
from peagle_bench.compare.confidence_intervals import (
    over_deployments,
    over_units,
    ratio,
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


@given(tables(3), tables(3))
def test_the_order_of_units_does_not_matter(one: dict[int, Cell], other: dict[int, Cell]) -> None:
    turned = dict(reversed(one.items()))
    assert compare_cells([turned], [other]).rate.value == pytest.approx(
        compare_cells([one], [other]).rate.value
    )


def test_only_what_both_arms_have_is_compared() -> None:
    one = {unit: Cell(100, 1, None, None) for unit in "abc"}
    other = {unit: Cell(100, 2, None, None) for unit in "bcd"}
    result = compare_cells([one], [other])
    assert (result.units, result.rate.value) == (2, pytest.approx(2))
    assert (result.acceptance, result.step_time) == (None, None)


def test_the_signs_of_the_factors_add_up() -> None:
    assert tuple(a + b for a, b in zip(ACCEPTANCE, STEP_TIME, strict=True)) == RATE


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
