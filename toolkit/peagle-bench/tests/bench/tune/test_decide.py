from __future__ import annotations

import numpy as np

from peagle_bench.tune.decide import (
    choose,
    contenders,
    expected_loss,
    first_probes,
    leaders,
    next_deployment,
    next_k,
    next_round,
)
from peagle_bench.tune.fit import Noise
from peagle_bench.tune.outcome import best_mode, conclude, fit_records
from peagle_bench.tune.predict import Prediction, together
from tests.bench.tune.reading_of import reading

RNG = np.random.default_rng(0)


def prediction(means: dict[int, float], spread: float, measured: tuple[int, ...] | None = None) -> Prediction:
    draws = np.array(list(means.values())) * np.exp(spread * RNG.standard_normal((600, len(means))))
    return Prediction(1, tuple(means), draws, tuple(means) if measured is None else measured)


def test_an_equal_smaller_k_is_chosen() -> None:
    choice = choose(prediction({3: 100.0, 5: 100.05, 7: 99.0}, 0.001))
    assert (choice.k, choice.expected_best) == (3, 5)
    assert "not significantly slower, so the smaller K" in choice.reason


def test_a_smaller_k_that_the_interval_excludes_is_not() -> None:
    choice = choose(prediction({3: 97.0, 5: 100.0}, 0.002))
    assert choice.k == 5
    assert "every smaller one is significantly slower" in choice.reason


def test_a_wide_interval_does_not_excuse_a_bad_k() -> None:
    wide = prediction({1: 80.0, 5: 100.0}, 0.15)
    assert wide.ratio(1, 5)[2] > 1  # the interval does not exclude it
    assert choose(wide).k == 5
    assert "not certain: K=1 not significantly slower" in choose(wide).reason
    assert expected_loss(wide, 1) > expected_loss(wide, 5)


def test_the_next_k_is_the_one_that_may_add_most() -> None:
    means = {1: 90.0, 3: 100.0, 5: 103.0, 11: 95.0}
    assert next_k({1: prediction(means, 0.02, (3, 11))}) == 5
    assert next_k({1: prediction(means, 0.02)}) is None


def test_no_further_k_is_measured_where_none_may_add_enough() -> None:
    means = {1: 70.0, 3: 100.0, 5: 80.0}
    assert next_k({1: prediction(means, 0.001, (3,))}, least_gain=0.002) is None


def test_a_k_that_was_not_measured_is_never_chosen() -> None:
    choice = choose(prediction({3: 100.0, 5: 110.0}, 0.001, (3,)))
    assert (choice.k, choice.expected_best) == (3, 3)
    assert choice.guess is not None
    assert choice.guess[0] == 5
    assert "K=5 was not measured, its predicted rate is 1.1" in choice.reason


def test_contenders_are_those_that_may_still_be_the_best() -> None:
    assert contenders({1: prediction({1: 80.0, 3: 99.8, 5: 100.0}, 0.01)}, share=0.8) == [3, 5]
    assert contenders({1: prediction({1: 80.0, 3: 90.0, 5: 100.0}, 0.001)}, share=0.8) == []


def test_the_baseline_is_never_a_contender() -> None:
    assert 0 not in contenders({1: prediction({0: 100.0, 3: 100.0}, 0.05)}, share=0.8)
    assert leaders(prediction({0: 200.0, 1: 80.0, 3: 90.0, 5: 100.0, 7: 70.0}, 0.001), 2) == [5, 3]


def test_the_first_probes_are_small_and_medium() -> None:
    assert first_probes(11) == (2, 7)
    assert first_probes(7) == (2, 5)
    assert first_probes(32) == (4, 11)
    assert first_probes(3) == (1, 3)
    assert first_probes(2) == (1, 2)


def test_deployments_end_at_the_most() -> None:
    readings = [reading(0, step_ms=4.0)]
    deployed = []
    while (k := next_deployment(readings, 11, most=3)) is not None:
        deployed.append(k)
        readings.append(reading(k, step_ms=4 + k / 3))
    assert deployed[:2] == [2, 7]
    assert len(deployed) == len(set(deployed)) <= 3


def test_a_round_begins_with_every_k_and_a_second_follows_in_any_case() -> None:
    assert next_round([], 5, 1) == [1, 2, 3, 4, 5]
    readings = [reading(k, step_ms=5.0) for k in range(1, 6)]  # the largest wins by far
    sure = Noise(acceptance=0.0001, step=0.0001)
    assert len(next_round(readings, 5, 1, sure)) == 4
    readings += [reading(k, step_ms=5.0, block=1) for k in range(1, 6)]
    assert next_round(readings, 5, 1, sure) == []


def test_one_k_for_all_weighs_each_concurrency_alike() -> None:
    low = prediction({3: 100.0, 7: 120.0}, 0.001)
    high = Prediction(32, (3, 7), prediction({3: 1000.0, 7: 700.0}, 0.001).draws, (3, 7))
    assert choose(together({1: low, 32: high})).k == 3


def test_the_mode_without_speculation_may_win() -> None:
    readings = [reading(0, step_ms=4.0, block=b) for b in range(2)]
    readings += [reading(k, step_ms=40.0 + k, block=b) for b in range(2) for k in (1, 3, 5)]
    result = conclude("p-eagle", readings, 5, deployments=1)
    assert best_mode([result], 1)[:2] == ("none", 0)
    (record,) = fit_records(result, usd=1.5)
    assert (record.chosen_k, record.certain) == (result.common.k, not result.common.open_ks)
    assert [point.k for point in record.points] == [0, 1, 2, 3, 4, 5]
    assert [point.k for point in record.points if point.measured] == [0, 1, 3, 5]
    assert all(point.low is not None and point.low <= point.otps for point in record.points)
    assert record.usd == 1.5
    assert record.best_k == result.choices[1].k > 0


def test_where_no_smaller_k_was_measured_none_is_called_slower() -> None:
    assert choose(prediction({1: 100.0, 2: 90.0}, 0.001)).reason.endswith("and no smaller K was measured")


def test_intervals_that_rest_on_an_assumed_noise_say_so() -> None:
    once = [reading(0, step_ms=4.0), *(reading(k, step_ms=5.0) for k in (1, 3, 5))]
    twice = once + [reading(k, step_ms=5.0, block=1) for k in (1, 3, 5)]
    said = [
        fit_records(conclude("p-eagle", given, 5, deployments=1), usd=None)[0].reason
        for given in (once, twice)
    ]
    assert ["assumed noise (acceptance 1.0%, step 1.7%)" in reason for reason in said] == [True, False]
