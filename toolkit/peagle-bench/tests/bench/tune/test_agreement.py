from __future__ import annotations

import numpy as np
import pytest

from peagle_bench.tune.outcome import check_record, compare
from peagle_bench.tune.readings import Reading
from tests.bench.tune.reading_of import reading


def sweep(steps: dict[int, float], noise: float, rounds: int = 6) -> list[Reading]:
    """Every K in every round; each round a little slower than the last, as machines are."""
    rng = np.random.default_rng(3)
    return [
        reading(
            k, step_ms=float(step * (1 + 0.1 * block) * np.exp(rng.normal(0, noise))), block=block, length=3.0
        )
        for block in range(rounds)
        for k, step in steps.items()
    ]


def test_the_same_k_agrees_with_itself() -> None:
    found = compare(sweep({3: 5.0, 5: 6.0}, 0.01), mode="p-eagle", tuned=3, concurrency=1)
    assert (found.mode, found.tuned, found.swept, found.ratio.value) == ("p-eagle", 3, 3, 1.0)
    assert found.agrees


def test_an_equal_k_agrees() -> None:
    assert compare(sweep({3: 5.0, 5: 5.0}, 0.01), mode="p-eagle", tuned=5, concurrency=1).agrees


def test_a_worse_k_does_not() -> None:
    found = compare(sweep({3: 5.0, 5: 5.5}, 0.005), mode="p-eagle", tuned=5, concurrency=1)
    assert found.decided
    assert not found.agrees
    assert check_record(found, "p-eagle K=5").passed is False


def test_a_wide_interval_is_a_failure_and_no_agreement() -> None:
    found = compare(sweep({3: 5.0, 5: 5.0}, 0.3), mode="p-eagle", tuned=5, concurrency=1)
    other = 3 if found.swept == 5 else 5
    found = compare(sweep({3: 5.0, 5: 5.0}, 0.3), mode="p-eagle", tuned=other, concurrency=1)
    assert found.ratio.high > 1
    assert not found.decided
    assert not found.agrees
    assert "undecided" in check_record(found, "p-eagle K=5").summary


def test_one_round_has_no_interval() -> None:
    with pytest.raises(ValueError, match="two rounds"):
        compare(sweep({3: 5.0, 5: 5.0}, 0.01, rounds=1), mode="p-eagle", tuned=3, concurrency=1)
