from __future__ import annotations

import pytest

from peagle_bench.results.records import Header, Reading
from peagle_bench.tune.job import evidence
from peagle_bench.tune.outcome import (
    BaselineRatio,
    ModeResult,
    common_against_none,
    conclude,
    fit_records,
)
from tests.bench.tune.reading_of import reading


def read(*, concurrency: int, plain_ms: float, step_ms: float, more_ms: float) -> list[Reading]:
    """Two rounds over the baseline and K of 1, 3 and 5, whose steps take ``more_ms`` longer for each K."""
    rows = []
    for block in range(2):
        rows.append(reading(0, step_ms=plain_ms, concurrency=concurrency, block=block))
        for k in (1, 3, 5):
            rows.append(reading(k, step_ms=step_ms + more_ms * k, concurrency=concurrency, block=block))
    return rows


@pytest.fixture(scope="module")
def result() -> ModeResult:
    """Speculation pays at c=1 and does not at c=8."""
    readings = read(concurrency=1, plain_ms=4.0, step_ms=4.0, more_ms=0.02)
    readings += read(concurrency=8, plain_ms=4.0, step_ms=20.0, more_ms=4.0)
    return conclude("p-eagle", readings, deployments=1)


@pytest.mark.parametrize(
    ("low", "high", "expected"),
    [
        (1.01, 1.2, "is faster than"),
        (0.8, 0.99, "is slower than"),
        (0.9, 1.1, "is not significantly different from"),
    ],
)
def test_faster_and_slower_are_said_only_where_the_interval_excludes_one(
    low: float, high: float, expected: str
) -> None:
    words = BaselineRatio(3, 250.0, 1.0, low, high).words
    assert words == f"K=3 {expected} no speculation: 1.000 [{low:.3f}, {high:.3f}] of its 250 tokens/s"


def test_the_results_file_says_it_of_the_load_s_k_and_of_the_one_for_all(result: ModeResult) -> None:
    low, high = fit_records(result, usd=None)
    assert f"K={low.best_k} is faster than no speculation" in low.reason
    assert f"K={high.best_k} is slower than no speculation" in high.reason
    assert low.best_k != high.best_k, "the fixture is to have two"
    for record in (low, high):
        assert f"K={result.common.k} is" in record.reason
        answer = f"K={result.common.k} is the K for all loads" in record.reason
        assert answer == (record.best_k != result.common.k)


def test_the_spec_s_comment_gives_the_baseline_s_rate(result: ModeResult) -> None:
    lines = evidence(
        result,
        fit_records(result, usd=None),
        workload="mine",
        date="today",
        header=Header("r", "tune", {}, {}, False),
        file="r.jsonl",
    )
    for c, ratio in common_against_none(result).items():
        (line,) = [each for each in lines if "no speculation" in each and f"c={c}:" in each]
        assert line.endswith(ratio.words)
        assert f"of its {ratio.plain:.0f} tokens/s" in line
