"""What the tuner gives away on made-up endpoints; scripts/simulate-tuner does it on many more."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from scripts.bench.tuner import page
from scripts.bench.tuner.simulate import always, by_deployment, by_runtime, exhaustive, simulate
from scripts.bench.tuner.surface import draw_surface

ENDPOINTS = 80


@pytest.mark.campaign
def test_four_deployments_are_enough() -> None:
    outcome = simulate(by_deployment(), ENDPOINTS, seed=7)
    assert outcome.mean <= page.MOST_MEAN
    assert outcome.quantile(0.95) <= page.MOST_P95
    assert outcome.most_deployments <= 4
    assert (outcome.unmeasured, outcome.unsound) == (0, 0)


@pytest.mark.campaign
def test_one_engine_in_which_k_changes() -> None:
    outcome = simulate(by_runtime(), 30, seed=7)
    assert outcome.mean <= page.MOST_MEAN
    assert outcome.most_deployments == 1


def test_the_endpoints_are_not_too_easy() -> None:
    # A fixed K gives away much, and so the best K differs from one to the next.
    assert simulate(always(7), ENDPOINTS, seed=7).mean > 0.05
    assert simulate(exhaustive, ENDPOINTS, seed=7).mean > 0.001
    best = [
        max(range(12), key=lambda k: surface.rate(k, 8))
        for surface in (draw_surface(np.random.default_rng(seed), (8,)) for seed in range(100))
    ]
    assert len(set(best)) > 7


def test_the_same_seed_gives_the_same_outcome() -> None:
    first, second = (simulate(by_deployment(3), 5, seed=1) for _ in range(2))
    assert first.regrets.tolist() == second.regrets.tolist()


def test_the_page_is_written_between_its_marks(tmp_path: Path) -> None:
    path = tmp_path / "tuner.md"
    path.write_text(f"before\n{page.BEGIN}\nold\n{page.END}\nafter\n")
    page.main(["--endpoints", "1", "--seed", "3", "--page", str(path)])
    written = path.read_text()
    assert written.startswith("before\n")
    assert written.endswith("after\n")
    assert "old" not in written
    assert "scripts/simulate-tuner --endpoints 1 --seed 3" in written
    assert written.count("| tune, ") == 2 * (len(page.LOADS) + 4) + len(page.NOISES) - 1


def test_what_exceeds_the_limits_is_named() -> None:
    world, noise = next(iter(page.WORLDS)), next(iter(page.NOISES))
    bad = page.Row(world, noise, (1,), "tune, always", simulate(always(11), 20, seed=0))
    assert "mean" in page.misses([bad])[0]
