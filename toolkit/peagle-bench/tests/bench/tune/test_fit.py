from __future__ import annotations

import numpy as np
import pytest

from peagle_bench.tune.fit import Curve, Noise, condition, fit, random_walk, truncated
from tests.bench.tune.reading_of import reading, survival_of

GRID = tuple(range(1, 12))


def test_between_two_readings_the_curve_is_near_their_line_and_less_sure() -> None:
    found = fit([reading(3, step_ms=6.0), reading(11, step_ms=10.0)], 11).step_ms[1]
    middle, spread = found.at(7)
    assert middle == pytest.approx(8.0, rel=0.03)
    assert found.at(3)[0] == pytest.approx(6.0, rel=0.02)
    assert spread > 1.5 * found.at(3)[1]


def test_repeats_make_it_surer() -> None:
    once = [reading(3, step_ms=6.0), reading(11, step_ms=10.0)]
    again = [reading(k, step_ms=6.0 + (k - 3) / 2, block=block) for block in range(5) for k in (3, 11)]
    assert fit(again, 11).step_ms[1].at(3)[1] < fit(once, 11).step_ms[1].at(3)[1]


def test_the_bias_of_a_large_k_is_learnt_from_a_small_one() -> None:
    # The largest K reads its early positions 6% low; K=3 deployed shows that.
    true = {k: 1 + sum(survival_of(k)) for k in GRID}
    low = [true[k] * (1 - 0.06 * (1 - k / 11)) for k in GRID]
    rates = tuple(np.diff([1.0, *low]))
    largest = reading(11, step_ms=10.0, length=true[11])
    largest = type(largest)(**{**vars(largest), "survival": rates})
    small = reading(3, step_ms=6.0, length=true[3])
    found = fit([largest, small], 11, Noise(acceptance=0.002, step=0.02)).log_acceptance
    for k in (1, 3, 5, 7, 9):
        assert np.exp(found.at(k)[0]) == pytest.approx(true[k], rel=0.015)
        naive = float(truncated(rates, GRID)[k - 1])
        assert abs(np.exp(found.at(k)[0]) - true[k]) <= abs(naive - true[k]) + 0.01


def test_beyond_the_known_rates_they_go_on_falling() -> None:
    lengths = truncated(survival_of(3), GRID)
    assert lengths[2] == pytest.approx(1 + sum(survival_of(3)))
    assert all(np.diff(lengths) > 0)
    assert all(np.diff(np.diff(lengths)) < 0)


def test_a_random_walk_spreads_from_its_start() -> None:
    walk = random_walk((1, 2, 3, 4, 5), 3, 0.1)
    assert np.diag(walk) == pytest.approx([0.02, 0.01, 0.0, 0.01, 0.02])
    assert walk[0, 4] == 0.0  # what happens on one side says nothing of the other


def test_without_readings_the_prior_stands() -> None:
    prior = Curve((1, 2), np.array([1.0, 2.0]), np.eye(2))
    assert condition(prior, [], [], []).mean.tolist() == [1.0, 2.0]


def test_what_cannot_be_fitted_is_refused() -> None:
    with pytest.raises(ValueError, match="1 <= k <= max_k"):
        fit([reading(0, step_ms=4.0)], 11)
    with pytest.raises(ValueError, match="1 <= k <= max_k"):
        fit([reading(12, step_ms=4.0)], 11)
