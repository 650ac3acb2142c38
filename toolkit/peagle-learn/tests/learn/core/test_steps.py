"""State of a run, its price, and when it has paid for itself."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from peagle_learn.core.steps import (
    STEPS,
    RunState,
    StepCost,
    StepDone,
    inputs_hash,
    parse_state,
    pay_back,
    steps_until,
    total,
)
from peagle_sm.core.errors import SpecError


def test_a_new_result_of_a_step_undoes_the_later_ones() -> None:
    state = RunState("a")
    for step in STEPS:
        state = state.with_step(step, StepDone(step, {"is": step}, "now"))
    assert parse_state(state.to_json(), "a", "f") == state
    assert set(state.with_step("data", StepDone("data", {"is": "data"}, "later")).steps) == set(STEPS)
    assert set(state.with_step("train", StepDone("train", {"is": "new"}, "later")).steps) == {"data", "train"}


@pytest.mark.parametrize(
    "text", ["", "[]", '{"name": "a", "steps": {"dance": {}}}', '{"name": "b", "steps": {}}']
)
def test_a_damaged_state_says_what_to_do(text: str) -> None:
    with pytest.raises(SpecError) as caught:
        parse_state(text, "a", "state.json")
    assert "Delete state.json" in (caught.value.next_step or "")


@given(st.floats(0, 1e6), st.floats(0.01, 1000), st.floats(1.001, 5))
def test_the_pay_back_saves_exactly_the_cost(usd: float, hourly: float, ratio: float) -> None:
    result = pay_back(usd, hourly, ratio)
    assert result.days is not None
    hours_of_work = result.days * 24
    assert hours_of_work * hourly - hours_of_work / ratio * hourly == pytest.approx(usd)


def test_without_a_gain_or_a_price_nothing_is_paid_back() -> None:
    assert pay_back(10, 5, 1.0).days is None
    assert pay_back(10, None, 1.2).days is None
    assert pay_back(None, 5, 1.2).days is None


def test_the_sum_is_unknown_where_a_part_is() -> None:
    costs = [
        StepCost("data", "", 1.0, 2.0),
        StepCost("train", "", 10.0, None),
        StepCost("prove", "", 5.0, 9.0, is_done=True),
    ]
    assert total(costs) == (11.0, None)
    assert total(costs[:1]) == (1.0, 2.0)
    assert total([*costs, StepCost("promote", "", None, 3.0)]) == (None, None)
    assert steps_until("train") == ("data", "train")
    assert inputs_hash({"a": 1, "b": 2}) == inputs_hash({"b": 2, "a": 1})
