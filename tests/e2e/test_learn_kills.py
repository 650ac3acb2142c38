"""`learn run`, real engine and real trainer, killed twice: it continues, and leaves nothing billable.

`scripts/learn-safety kills` is the large one: sequences of ten kills over the whole run, promotion included.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from scripts.bench.progress import Reporter
from scripts.bench.training.kills import DURATION_S, PROMPTS, STEPS, moments, sequence

pytestmark = [pytest.mark.engine, pytest.mark.slow, pytest.mark.campaign]


def test_moments_are_over_the_whole_run_and_in_order() -> None:
    drawn = [each for seed in range(100) for each in moments(seed, 10)]
    assert {each.step for each in drawn} == set(DURATION_S)
    whole = sum(DURATION_S.values())
    for step, seconds in DURATION_S.items():
        share = sum(each.step == step for each in drawn) / len(drawn)
        assert share == pytest.approx(seconds / whole, abs=0.06)
    order = ("start", *STEPS)
    for seed in range(20):
        places = [(order.index(each.step), each.after_s) for each in moments(seed, 10)]
        assert places == sorted(places)


def test_a_run_that_is_killed_twice_continues_and_leaves_nothing(tmp_path: Path) -> None:
    found = sequence(1, 2, tmp_path, Reporter(), until="train")
    assert found.faults == []
    assert len(found.kills) == 2
    assert found.invocations is not None
    assert found.invocations >= PROMPTS
