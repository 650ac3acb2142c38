from __future__ import annotations

from collections import defaultdict

import pytest

from peagle_sm.measure.compare.order import abba


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


def test_every_arm_goes_first_in_turn() -> None:
    first = [next(arm for number, arm in abba("ABC", 3) if number == block) for block in range(3)]
    assert first == ["A", "B", "C"]
