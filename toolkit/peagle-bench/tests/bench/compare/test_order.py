from __future__ import annotations

from collections import Counter, defaultdict

import pytest
from hypothesis import given
from hypothesis import strategies as st

from peagle_bench.compare.alternating import abba, turn_order


def test_two_arms_go_a_b_b_a_and_then_b_a_a_b() -> None:
    assert "".join(arm for _, arm in abba("AB", 2)) == "ABBABAAB"
    assert [block for block, _ in abba("AB", 2)] == [0, 0, 0, 0, 1, 1, 1, 1]


@pytest.mark.parametrize("arms", ["AB", "ABC", "ABCD"])
def test_a_steady_drift_falls_on_every_arm_alike(arms: str) -> None:
    times: dict[tuple[int, str], list[int]] = defaultdict(list)
    for time, (block, arm) in enumerate(abba(arms, 5)):
        times[block, arm].append(time)
    for block in range(5):
        means = {sum(times[block, arm]) / 2 for arm in arms}
        assert len(means) == 1
        assert all(len(times[block, arm]) == 2 for arm in arms)


@given(st.integers(2, 5))
def test_over_a_whole_cycle_each_arm_is_first_and_last_equally_often(count: int) -> None:
    arms = [f"a{i}" for i in range(count)]
    orders = [turn_order(arms, turn) for turn in range(2 * count)]
    assert Counter(order[0] for order in orders) == dict.fromkeys(arms, 2)
    assert Counter(order[-1] for order in orders) == dict.fromkeys(arms, 2)
