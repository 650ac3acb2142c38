"""What a table of K gives away on made-up traces of load; scripts/simulate-loads does it on many more."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from peagle_bench.tune.loads import ROUNDS
from scripts.bench.tuner import traces_page
from scripts.bench.tuner.traces import KINDS, MEASURED, MOMENTS, regret, simulate_traces
from scripts.bench.tuner.worlds import draw_world


def test_a_table_follows_the_load() -> None:
    outcome = simulate_traces(30, 7, traces_page.NOISE, rounds=ROUNDS)
    assert traces_page.misses(outcome) == []
    # One K for all loads loses more: the traces are worth a table.
    assert outcome.table.mean() < 0.7 * outcome.fixed.mean()
    assert outcome.rows.max() > 2


@pytest.mark.parametrize("kind", KINDS)
def test_a_trace_has_the_loads_that_it_may_have(kind: str) -> None:
    for seed in range(10):
        trace = KINDS[kind](np.random.default_rng(seed), MEASURED[-1])
        assert len(trace) == MOMENTS
        assert 1 <= trace.min() < trace.max() <= MEASURED[-1]
        assert (trace == np.rint(trace)).all()


def test_only_the_oracle_loses_nothing() -> None:
    surface = draw_world(np.random.default_rng(3), (1, 2), 11)
    engine = surface.with_head()
    best = {c: max(range(12), key=lambda k: engine.rate(k, c)) for c in (1, 2)}
    trace = np.asarray([1.0, 2.0, 2.0])
    assert regret(surface, trace, best.__getitem__) == 0
    assert regret(surface, trace, lambda load: 0) > 0


def test_the_page_is_written_between_its_marks(tmp_path: Path) -> None:
    path = tmp_path / "page.md"
    path.write_text(f"before\n{traces_page.BEGIN}\nold\n{traces_page.END}\nafter\n")
    traces_page.main(["--traces", "3", "--seed", "3", "--page", str(path)])
    written = path.read_text()
    assert written.startswith("before\n")
    assert written.endswith("after\n")
    assert "old" not in written
    assert "scripts/simulate-loads --traces 3 --seed 3" in written
