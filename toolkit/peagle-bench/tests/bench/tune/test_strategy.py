from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from hypothesis import given, settings
from hypothesis import strategies as st

from peagle_bench.results.records import Reading
from peagle_bench.tune.estimate import Settings
from peagle_bench.tune.outcome import conclude
from peagle_bench.tune.strategy import by_deployments, in_one_engine
from peagle_bench.tune.windows import WindowReader
from peagle_sm.core.spec.modes import Mode
from tests.bench.tune.reading_of import reading


@dataclass
class Known:
    """A side with a best K of 5; every read is written down."""

    asked: list[tuple[int, int, int]] = field(default_factory=list)

    def read(self, k: int, concurrency: int, block: int) -> Reading:
        self.asked.append((k, concurrency, block))
        step = 4.0 if k == 0 else 5.0 + 0.1 * k + (2.0 * (k - 5) if k > 5 else 0.0)
        return reading(k, step_ms=step, concurrency=concurrency, block=block, first=0.9)


def silent(message: str) -> None:
    pass


def test_one_engine_measures_a_few_k_and_then_the_best_ones_in_the_other_direction() -> None:
    side, baseline = Known(), Known()
    readings = in_one_engine(side, baseline, [1], 32, silent)
    first = [k for k, _, block in side.asked if block == 0]
    second = [k for k, _, block in side.asked if block == 1]
    assert first == [1, 2, 4, 8, 16, 32]
    assert 5 in second
    assert second == sorted(second, reverse=True)
    assert len(second) < 6
    assert {block for _, _, block in baseline.asked} == {block for _, _, block in side.asked}
    assert conclude("p-eagle", readings, deployments=1).choices[1].k == 5


def test_a_k_that_is_the_best_at_one_load_is_measured_at_all() -> None:
    class ByLoad(Known):
        def read(self, k: int, concurrency: int, block: int) -> Reading:
            self.asked.append((k, concurrency, block))
            return reading(k, step_ms=5.0 + (k * 3.0 if concurrency == 8 else 0.0), concurrency=concurrency)

    readings = in_one_engine(ByLoad(), Known(), [1, 8], 20, silent)
    measured = {c: {reading.k for reading in readings if reading.concurrency == c} for c in (1, 8)}
    assert {1, 20} <= measured[1] & measured[8]


def test_deployments_come_one_after_the_other_and_end() -> None:
    up: list[int] = []
    gone: list[int] = []
    side = Known()

    @contextmanager
    def bring(k: int) -> Iterator[WindowReader]:
        assert up == gone, "one at a time"
        up.append(k)
        yield side
        gone.append(k)

    baseline = Known()
    readings, deployed = by_deployments(bring, baseline, [1, 4], 8, silent, most=3, beside=False)
    assert 2 <= deployed <= 3
    assert up == gone
    assert len(baseline.asked) == 2  # once at each concurrency
    result = conclude("p-eagle", readings, deployments=deployed, levelled=False)
    assert up[:2] == [8, 2]
    assert result.choices[1].k in up


def test_a_shared_machine_measures_the_baseline_beside_each_deployment() -> None:
    @contextmanager
    def bring(k: int) -> Iterator[WindowReader]:
        yield Known()

    baseline = Known()
    by_deployments(bring, baseline, [1], 8, silent, most=3, beside=True)
    assert [block for _, _, block in baseline.asked] == [0, 1, 2]


@dataclass
class Noisy:
    """A side whose readings are drawn anew each time: every K may stay in question."""

    rng: random.Random
    read_so_far: int = 0

    def read(self, k: int, concurrency: int, block: int) -> Reading:
        self.read_so_far += 1
        step = self.rng.uniform(4.0, 8.0)
        return reading(
            k, step_ms=step, concurrency=concurrency, block=block, first=self.rng.uniform(0.2, 0.9)
        )


@settings(max_examples=60, deadline=None)
@given(
    seed=st.integers(0, 10_000),
    modes=st.integers(1, 2),
    concurrencies=st.lists(st.integers(1, 16), min_size=1, max_size=2, unique=True),
    max_k=st.integers(2, 12),
    runtime=st.booleans(),
    local=st.booleans(),
)
def test_no_tuning_measures_more_windows_than_it_says(
    seed: int,
    modes: int,
    concurrencies: list[int],
    max_k: int,
    runtime: bool,
    local: bool,
) -> None:
    side = Noisy(random.Random(seed))

    @contextmanager
    def bring(k: int) -> Iterator[WindowReader]:
        yield side

    for _ in range(modes):
        if runtime:
            in_one_engine(side, side, concurrencies, max_k, silent)
        else:
            by_deployments(bring, side, concurrencies, max_k, silent, beside=local)
    names: tuple[Mode, ...] = ("p-eagle", "eagle3")
    settings = Settings(names[:modes], tuple(concurrencies), max_k, runtime, 4)
    usual, most = settings.windows(local=local)
    assert side.read_so_far <= most * len(concurrencies)
    assert usual <= most
