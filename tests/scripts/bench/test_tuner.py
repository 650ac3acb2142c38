"""What the tuner loses on simulated endpoints; scripts/simulate-tuner does it on many more."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from scripts.bench import tuner
from scripts.bench.tuner import Outcome, Strategy, always_7, deployments, one_engine, simulate


@pytest.mark.parametrize("seed", [5, 6])
@pytest.mark.parametrize(
    ("strategy", "loads", "max_k"),
    [
        (deployments, (1,), 32),
        (deployments, (1, 8, 32), 32),
        (deployments, (1, 8), 11),
        (one_engine, (1,), 32),
        (one_engine, (1, 32), 11),
    ],
)
def test_the_regret_is_within_its_limits(
    strategy: Strategy, loads: tuple[int, ...], max_k: int, seed: int
) -> None:
    assert simulate(strategy, 40, seed, loads, max_k).misses() == []


@pytest.mark.parametrize("strategy", [deployments, one_engine])
def test_the_published_table_of_a_gpu(strategy: Strategy) -> None:
    assert simulate(strategy, 40, 5, (1, 4, 8), 8, draw=tuner.pull_32628).misses() == []


def test_the_endpoints_are_not_too_easy() -> None:
    assert simulate(always_7, 40, 5, (8,), 32).regrets.mean() > 0.05
    surfaces = [tuner.draw(np.random.default_rng(seed), (1,), 32) for seed in range(80)]
    assert len({max(range(1, 33), key=lambda k, s=s: s.rate(k, 1)) for s in surfaces}) > 10  # type: ignore[misc]
    # The largest K's survival rates give the acceptance of small K too low.
    gaps = [s.acceptance[2] / (1 + s.survival[:2].sum()) - 1 for s in surfaces]
    assert np.quantile(gaps, 0.9) > 0.03


def test_what_exceeds_a_limit_is_named() -> None:
    assert Outcome(np.full(10, 0.02)).misses() == ["mean regret 2.00% (at most 1%)"]
    assert "95th percentile" in Outcome(np.asarray([0.0] * 18 + [0.05] * 2)).misses()[0]


def test_the_table_is_written_between_the_marks_of_its_page(tmp_path: Path) -> None:
    begin, end = tuner.MARKS
    page = tmp_path / tuner.PAGE
    page.write_text(f"before\n{begin}\nold\n{end}\nafter\n")
    tuner.main(["--endpoints", "2", "--seed", "3", "--pages", str(tmp_path)])
    written = page.read_text()
    assert written.startswith("before\n")
    assert written.endswith("after\n")
    assert "old" not in written
    assert "scripts/simulate-tuner --endpoints 2 --seed 3" in written
