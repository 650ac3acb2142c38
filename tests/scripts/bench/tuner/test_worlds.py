"""The tuner on endpoints that share nothing with its own model; scripts/simulate-tuner tries many more."""

from __future__ import annotations

import numpy as np
import pytest

from peagle_bench.tune.fit import Noise, fit
from peagle_bench.tune.outcome import conclude, fit_records
from peagle_bench.tune.predict import Prediction, predict
from peagle_bench.tune.readings import Reading
from scripts.bench.tuner import page
from scripts.bench.tuner.simulate import Draw, by_deployment, by_runtime, simulate
from scripts.bench.tuner.surface import Surface, measure
from scripts.bench.tuner.worlds import SHAPES, draw_world, published
from tests.bench.tune.reading_of import reading

TWO_PERCENT = Noise(0.01, 0.0173)


def only(surface: Surface) -> Draw:
    return lambda rng, loads: surface


@pytest.mark.parametrize("loads", [(1,), (1, 8, 32)])
@pytest.mark.parametrize("worlds", [15, pytest.param(60, marks=pytest.mark.campaign)])
def test_k_to_32_with_steps_and_two_percent_noise(loads: tuple[int, ...], worlds: int) -> None:
    outcome = simulate(by_deployment(), worlds, 3, loads, TWO_PERCENT, draw_world)
    assert outcome.mean <= page.MOST_MEAN
    assert outcome.quantile(0.95) <= page.MOST_P95
    assert (outcome.unmeasured, outcome.unsound) == (0, 0)


def test_k_to_32_inside_one_engine() -> None:
    outcome = simulate(by_runtime(), 12, 3, (8,), TWO_PERCENT, draw_world)
    assert outcome.mean <= page.MOST_MEAN
    assert (outcome.unmeasured, outcome.unsound) == (0, 0)


@pytest.mark.parametrize("name", list(published()))
def test_published_tables(name: str) -> None:
    outcome = simulate(by_deployment(), 30, 3, (1, 4, 8), TWO_PERCENT, only(published()[name]))
    assert outcome.mean <= page.MOST_MEAN
    assert outcome.quantile(0.95) <= page.MOST_P95
    assert (outcome.unmeasured, outcome.unsound) == (0, 0)


def test_the_written_k_of_the_published_table_is_its_best() -> None:
    """vLLM pull request 32628: at c=8 its EAGLE-3 head is fastest with K=3."""
    surface = published()["vLLM pull request 32628"]
    exact = Noise(0.0, 0.0)
    rng = np.random.default_rng(0)
    readings = [r for k in (0, 2, 3, 4, 6) for r in measure(surface, k, (8,), exact, rng, 0)]
    assert conclude("eagle3", readings, 8, deployments=4, levelled=False).common.k == 3


def test_every_shape_occurs_and_the_best_k_differs() -> None:
    worlds = [draw_world(np.random.default_rng(seed), (1,)) for seed in range(80)]
    best = {max(range(1, 33), key=lambda k, w=world: w.rate(k, 1)) for world in worlds}  # type: ignore[misc]
    assert len(best) > 10
    assert len(SHAPES) == 5


def cheap_baseline() -> list[Reading]:
    """Probes of 5, 18 and 6 that lie on a steep line: its extension to K=1 is below the plain step."""
    return [
        reading(0, step_ms=10.0),
        reading(5, step_ms=12.0),
        reading(6, step_ms=13.5),
        reading(18, step_ms=31.0),
    ]


def test_a_step_with_drafts_costs_at_least_the_step_without() -> None:
    readings = cheap_baseline()
    found = predict(fit(readings, 18), readings)[1]
    assert found.step_ms is not None
    plain = found.step_ms[0]
    assert all(found.step_ms[1:] >= 0.99 * plain)
    # At most 2 tokens a step with one draft: twice the plain rate, and the noise of the plain step.
    assert np.quantile(found.of(1), 0.975) <= 2 * found.of(0).mean() * 1.05


def test_no_k_is_chosen_that_was_not_measured() -> None:
    result = conclude("p-eagle", cheap_baseline(), 18, deployments=3, levelled=False)
    assert {result.common.k, *(choice.k for choice in result.choices.values())} <= {5, 6, 18}


def test_a_promising_k_that_was_not_measured_is_named_as_a_guess() -> None:
    readings = [
        reading(0, step_ms=10.0),
        reading(1, step_ms=10.5, first=0.9),
        reading(16, step_ms=80.0, first=0.9),
    ]
    result = conclude("p-eagle", readings, 16, deployments=2, levelled=False)
    assert result.common.k in (1, 16)
    assert result.common.guess is not None
    assert "was not measured, its predicted rate is" in result.common.reason


def test_the_k_of_one_load_is_called_a_guess_and_the_written_one_checked() -> None:
    readings = [reading(0, step_ms=4.0, concurrency=c) for c in (1, 32)]
    readings += [reading(k, step_ms=5.0 + 0.01 * k, concurrency=1, first=0.9) for k in (2, 4, 8)]
    readings += [reading(k, step_ms=5.0 + 3.0 * k**2, concurrency=32, first=0.9) for k in (2, 4, 8)]
    result = conclude("p-eagle", readings, 8, deployments=3, levelled=False)
    assert result.choices[1].k == 8 != result.common.k
    said = {record.load.concurrency: record.reason for record in fit_records(result, None)}
    assert (
        "an estimate for this load alone, from its own windows; "
        f"K={result.common.k} is the K for all loads, from the windows of every load"
    ) in said[1]


def test_two_far_probes_of_32_leave_no_rate_that_is_not_a_number() -> None:
    readings = [reading(0, step_ms=5.0), reading(9, step_ms=5.2), reading(32, step_ms=60.0)]
    found = predict(fit(readings, 32), readings)[1]
    assert np.isfinite(found.draws).all()
    assert (found.draws > 0).all()


def test_a_cliff_between_two_measured_k_is_not_smoothed_away() -> None:
    """K=6 lies after a cliff of 60%: a smooth curve would put both readings halfway."""
    readings = [reading(0, step_ms=4.0), reading(5, step_ms=5.0), reading(6, step_ms=8.0)]
    curve = fit(readings, 11).step_ms[1]
    assert curve.at(5)[0] == pytest.approx(5.0, rel=0.03)
    assert curve.at(6)[0] == pytest.approx(8.0, rel=0.03)


def test_the_best_is_the_best_of_the_measured() -> None:
    draws = np.tile(np.array([90.0, 100.0, 120.0]), (10, 1))
    assert Prediction(1, (1, 2, 3), draws, (1, 2)).best == 2
