from __future__ import annotations

import pytest

from peagle_bench.tune.choice import (
    choose,
    next_deployment,
    next_round,
)
from peagle_bench.tune.outcome import best_mode, conclude, fit_records
from tests.bench.tune.reading_of import rates_at, reading


def test_a_smaller_k_that_loses_next_to_nothing_is_chosen() -> None:
    choice = choose(rates_at(1, {3: 99.6, 5: 100.0, 7: 99.0}))
    assert (choice.k, choice.expected_best) == (3, 5)
    assert choice.expected_loss == pytest.approx(0.004)
    assert "at most 0.5% less, so the smaller K is chosen" in choice.reason
    assert choose(rates_at(1, {3: 99.4, 5: 100.0})).k == 5


def test_a_wide_interval_does_not_excuse_a_bad_k_and_the_reason_names_it() -> None:
    choice = choose(rates_at(1, {1: 80.0, 5: 100.0}, error=0.15))
    assert (choice.k, choice.open_ks, choice.is_certain) == (5, (1,), False)
    assert "not certain: K=1 not significantly slower" in choice.reason


def test_a_k_that_was_not_measured_is_never_chosen_but_named() -> None:
    choice = choose(rates_at(1, {3: 100.0, 5: 110.0}, measured=(3,)))
    assert (choice.k, choice.expected_best, choice.is_certain) == (3, 3, False)
    assert choice.guess == pytest.approx((5, 1.1))
    assert "K=5 was not measured, its predicted rate is 1.100" in choice.reason


def test_deployments_end_at_the_limit_or_where_nothing_is_gained() -> None:
    deployed = []
    readings = [reading(0, step_ms=4.0)]
    while (k := next_deployment(readings, 11, most=4)) is not None:
        deployed.append(k)
        readings.append(reading(k, step_ms=4 + (k / 4) ** 2))
    assert deployed[:3] == [11, 7, 2]
    assert len(set(deployed)) == len(deployed) == 4
    assert 2 < deployed[3] < 7
    flat = [reading(0, step_ms=4.0), *(reading(k, step_ms=5.0) for k in (11, 7, 2))]
    assert next_deployment(flat, 11) is None  # the largest is the best, and it is measured


def test_a_second_round_follows_in_any_case() -> None:
    assert next_round([], 5, 1) == [1, 2, 3, 4, 5]
    readings = [reading(k, step_ms=5.0, first=0.95) for k in range(1, 6)]  # the largest wins by far
    assert next_round(readings, 5, 1) == [4, 5]
    assert next_round(readings + [reading(k, step_ms=5.0, first=0.95, block=1) for k in (4, 5)], 5, 1) == []


def test_the_mode_without_speculation_may_win() -> None:
    readings = [reading(0, step_ms=4.0, block=b) for b in range(2)]
    readings += [reading(k, step_ms=40.0 + k, block=b) for b in range(2) for k in (1, 3, 5)]
    result = conclude("p-eagle", readings, deployments=1)
    assert best_mode([result], 1)[:2] == ("none", 0)
    (record,) = fit_records(result, usd=1.5)
    assert (record.chosen_k, record.certain) == (result.common.k, not result.common.open_ks)
    assert [point.k for point in record.points] == [0, 1, 2, 3, 4, 5]
    assert [point.k for point in record.points if point.measured] == [0, 1, 3, 5]
    assert all(point.low is not None and point.low <= point.otps for point in record.points)
    assert record.usd == 1.5
    assert record.best_k == result.choices[1].k > 0


def test_the_k_of_one_load_is_called_an_estimate() -> None:
    readings = [reading(0, step_ms=4.0, concurrency=c) for c in (1, 32)]
    readings += [reading(k, step_ms=5.0 + 0.01 * k, concurrency=1, first=0.9) for k in (2, 4, 8)]
    readings += [reading(k, step_ms=5.0 + 3.0 * k**2, concurrency=32, first=0.9) for k in (2, 4, 8)]
    result = conclude("p-eagle", readings, deployments=3, levelled=False)
    assert result.choices[1].k == 8 != result.common.k
    reasons = {record.load.concurrency: record.reason for record in fit_records(result, None)}
    assert f"an estimate for this load alone, from its own windows; K={result.common.k}" in reasons[1]


def test_intervals_that_rest_on_an_assumed_noise_say_so() -> None:
    once = [reading(0, step_ms=4.0), *(reading(k, step_ms=5.0) for k in (1, 3, 5))]
    twice = once + [reading(k, step_ms=5.0, block=1) for k in (1, 3, 5)]
    reasons = [
        fit_records(conclude("p-eagle", readings, deployments=1), usd=None)[0].reason
        for readings in (once, twice)
    ]
    assert ["assumed noise (acceptance 1.0%, step 1.7%)" in each for each in reasons] == [True, False]
