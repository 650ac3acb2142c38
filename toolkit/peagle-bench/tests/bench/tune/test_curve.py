from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from peagle_bench.results.records import Reading
from peagle_bench.tune.curve import (
    Noise,
    fit,
    fit_acceptance,
    fit_steps,
    level,
    noise_of,
    rising,
    together,
)
from tests.bench.tune.reading_of import rates_at, reading, survival_of


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


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(st.floats(1, 100), st.integers(1, 5)), min_size=1, max_size=12))
def test_the_fit_of_step_times_never_falls_and_keeps_the_mean(steps: list[tuple[float, int]]) -> None:
    values, weights = zip(*steps, strict=True)
    fitted = rising(values, weights)
    assert (np.diff(fitted) >= 0).all()
    assert np.average(fitted, weights=weights) == pytest.approx(np.average(values, weights=weights))
    if sorted(values) == list(values):
        assert fitted == pytest.approx(values)


def test_step_times_between_measured_k_are_on_a_line_and_below_them_not_under_the_plain_step() -> None:
    assert fit_steps((2, 5), (6.0, 9.0), (1, 1), 4.0) == pytest.approx([5.0, 6.0, 7.0, 8.0, 9.0])
    steep = fit_steps((5, 6, 18), (12.0, 13.5, 31.0), (1, 1, 1), 10.0)
    assert (steep >= 10.0).all()


def test_the_rate_of_a_k_that_was_not_measured_is_less_certain_where_the_step_time_jumps() -> None:
    readings = [reading(2, step_ms=5.0), reading(6, step_ms=5.1), reading(10, step_ms=9.0)]
    rates = fit(readings)[1]
    assert rates.error(4) < 1.1 * rates.error(2) < 0.5 * rates.error(8)
    assert rates.error(10) == pytest.approx(rates.error(2))


def test_a_cliff_between_two_measured_k_is_not_smoothed_away() -> None:
    rates = fit([reading(0, step_ms=4.0), reading(5, step_ms=5.0), reading(6, step_ms=8.0)])[1]
    assert rates.step_ms[rates.ks.index(5)] == pytest.approx(5.0)
    assert rates.step_ms[rates.ks.index(6)] == pytest.approx(8.0)


def test_repeats_make_it_more_certain_and_the_baseline_has_no_acceptance() -> None:
    once = [reading(0, step_ms=4.0), reading(3, step_ms=6.0)]
    often = [replace(each, block=block) for block in range(4) for each in once]
    assert fit(often)[1].error(3) == pytest.approx(fit(once)[1].error(3) / 2)
    assert fit(once)[1].ks == (0, 1, 2, 3)
    assert fit(once)[1].error(0) == pytest.approx(Noise().step)
    assert fit(once)[1].speculating().ks == (1, 2, 3)


def test_without_a_reading_with_speculation_there_is_no_fit() -> None:
    for readings in ([], [reading(0, step_ms=4.0)]):
        with pytest.raises(ValueError, match="reading with speculation"):
            fit(readings)
    with pytest.raises(ValueError, match="no survival rates"):
        fit([replace(reading(3, step_ms=5.0), survival=())])


def test_one_rate_for_all_loads_weighs_each_alike() -> None:
    both = together({1: rates_at(1, {3: 100.0, 7: 120.0}), 32: rates_at(32, {3: 1000.0, 7: 700.0})})
    assert both.best == 3
    assert both.of(7) == pytest.approx((120 * 700) ** 0.5)
    assert both.error(3) < rates_at(1, {3: 100.0}).error(3)


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


def test_rounds_that_share_no_k_keep_their_levels() -> None:
    readings = [reading(3, step_ms=6.0, block=0), reading(11, step_ms=10.0, block=1)]
    assert level(readings) == readings


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
