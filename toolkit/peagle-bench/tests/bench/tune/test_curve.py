from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
import pytest

from peagle_bench.results.records import Reading
from peagle_bench.tune.curve import (
    Noise,
    fit,
    fit_acceptance,
    level,
    noise_of,
)
from tests.bench.tune.reading_of import reading, survival_of


def test_a_smaller_k_truncates_the_drafts_of_the_largest() -> None:
    lengths = fit_acceptance([reading(8, step_ms=5.0)])
    assert lengths == pytest.approx([1 + sum(survival_of(k)) for k in range(1, 9)])


def test_readings_at_smaller_k_correct_the_truncation() -> None:
    """The largest K shows its early positions 6% too low; K=3 on its own shows the true length."""
    true = [1 + sum(survival_of(k)) for k in range(1, 12)]
    shown = [length * (1 - 0.06 * (1 - k / 11)) for k, length in enumerate(true, start=1)]
    largest = replace(reading(11, step_ms=5.0, length=true[10]), survival=tuple(np.diff([1.0, *shown])))
    lengths = fit_acceptance([largest, reading(3, step_ms=5.0, length=true[2])])
    assert lengths == pytest.approx(true, rel=0.015)


def test_the_rate_of_a_k_that_was_not_measured_is_less_certain_where_the_step_time_jumps() -> None:
    readings = [reading(2, step_ms=5.0), reading(6, step_ms=5.1), reading(10, step_ms=9.0)]
    rates = fit(readings)[1]
    assert rates.error(4) < 1.1 * rates.error(2) < 0.5 * rates.error(8)
    assert rates.error(10) == pytest.approx(rates.error(2))


def test_without_a_reading_with_speculation_there_is_no_fit() -> None:
    for readings in ([], [reading(0, step_ms=4.0)]):
        with pytest.raises(ValueError, match="reading with speculation"):
            fit(readings)
    with pytest.raises(ValueError, match="no survival rates"):
        fit([replace(reading(3, step_ms=5.0), survival=())])


def levels(readings: Sequence[Reading]) -> Mapping[tuple[int, int], float]:
    return {(each.k, each.block): each.step_ms for each in level(readings)}


def test_a_slower_round_is_removed() -> None:
    readings = [reading(k, step_ms=5.0 + k, block=0) for k in range(1, 8)]
    readings += [reading(k, step_ms=1.3 * (5.0 + k), block=1) for k in (3, 5, 7)]
    clean = levels(readings)
    for k in (3, 5, 7):
        assert clean[k, 1] == pytest.approx(clean[k, 0], rel=0.02)


def test_easier_prompts_of_a_round_are_removed() -> None:
    readings = [reading(k, step_ms=5.0, block=0) for k in (3, 5, 7)]
    readings += [
        replace(reading, block=1, acceptance_length=1.2 * reading.acceptance_length) for reading in readings
    ]
    for first, second in zip(level(readings)[:3], level(readings)[3:], strict=True):
        assert second.acceptance_length == pytest.approx(first.acceptance_length, rel=0.01)


def test_the_noise_is_that_of_the_repeats() -> None:
    rng = np.random.default_rng(1)
    readings = [
        reading(k, step_ms=float(5 * np.exp(rng.normal(0, 0.08))), block=b)
        for b in range(20)
        for k in (1, 3, 5)
    ]
    assert noise_of(readings).step == pytest.approx(0.08, rel=0.2)
    assert noise_of(readings).acceptance < Noise().acceptance
    assert noise_of(readings[:3]) == Noise()  # without repeats, what is assumed
