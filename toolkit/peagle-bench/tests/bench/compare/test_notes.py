from __future__ import annotations

from typing import Any

import pytest

from peagle_bench.compare.run import notes_of
from peagle_bench.results.records import (
    Acceptance,
    ArmRecord,
    ClientHealth,
    ComparisonRecord,
    Interval,
    Percentiles,
    PointRecord,
)
from tests.bench.compare.simulating import ALONE, EIGHT, request

ARM = ArmRecord("p-eagle", "p-eagle", 7, "fast")
FINE = ClientHealth(True, None, 0.1, 0.1, 10)
SLOW = ClientHealth(False, "the client was busy 99% of the time (allowed: 90%)", 0.1, 0.99, 10)

LATE = ClientHealth(False, "the client's event loop was 9.0 ms late at p99", 9.0, 0.1, 10, bottleneck=False)


def comparison(low: float, high: float, **more: Any) -> ComparisonRecord:
    fields: dict[str, Any] = {"faster": "p-eagle", "slower": "none", "deployments": 2, **more}
    return ComparisonRecord(
        load=ALONE,
        ratio=Interval((low + high) / 2, low, high),
        over="prompts",
        units=9,
        acceptance_ratio=None,
        step_time_ratio=None,
        **fields,
    )


def point(
    client: ClientHealth = FINE, accepted: Acceptance | None = None, ttft: float | None = None
) -> PointRecord:
    first = None if ttft is None else Percentiles(ttft, ttft, ttft, ttft, 9)
    return PointRecord(
        "p-eagle", ALONE, 1.0, 9, {}, 1, 1, 1.0, 1.0, 1.0, first, None, None, None, accepted, client, 0.0
    )


def notes(**given: Any) -> list[str]:
    parts: dict[str, Any] = {"arms": [], "requests": [], "points": [], "comparisons": [], **given}
    return notes_of(**parts)


FAILED = [request("none", "p", error="ModelError"), request("none", "p", turn=1, error="Timeout")]
NOT_COUNTED = [request("none", "q"), request("none", "r", phase="warm-up", error="x")]
DIFFERENT = {"identical_outputs": 7, "compared_outputs": 9}


@pytest.mark.parametrize(
    ("given", "facts"),
    [
        (
            {"comparisons": [comparison(1.02, 1.08, faster="none (A/A)", control=True)]},
            ["c=1", "A/A control failed", "1.050 [1.020, 1.080]"],
        ),
        (
            {"requests": [*FAILED, *NOT_COUNTED]},
            ["none: 2 requests failed", "left out for all", "ModelError"],
        ),
        (
            {"requests": [request("none", "p", error="ModelError", load=EIGHT)]},
            ["none: 1 requests failed", "missing in this arm's rates alone"],
        ),
        ({"points": [point(SLOW), point(SLOW)]}, ["c=1: withheld", "busy 99% of the time", "(p-eagle)"]),
        ({"points": [point(SLOW)], "comparisons": [comparison(1.1, 1.2, deployments=1)]}, ["withheld"]),
        ({"arms": [ARM], "points": [point()]}, ["p-eagle: its answers do not report drafts"]),
        (
            {"comparisons": [comparison(0.9, 1.1, **DIFFERENT)]},
            ["c=1: p-eagle and none answered 2 of 9 prompts", "`peagle-sm verify`"],
        ),
        (
            {"comparisons": [comparison(0.9, 1.1, faster="none (A/A)", **DIFFERENT)]},
            ["none (A/A) and none answered 2 of 9 prompts", "they are the same endpoint"],
        ),
        ({"comparisons": 2 * [comparison(1.1, 1.2, deployments=1)]}, ["one deployment only"]),
    ],
)
def test_what_the_ratios_do_not_show_is_one_note(given: dict[str, Any], facts: list[str]) -> None:
    (note,) = notes(**given)
    for fact in facts:
        assert fact in note


def test_nothing_to_note() -> None:
    assert notes(comparisons=[comparison(0.98, 1.08, faster="none (A/A)", control=True)]) == []
    assert notes(arms=[ARM], points=[point(accepted=Acceptance("per-request", 2.0, 2.0, (), 1, 1))]) == []


def test_a_late_client_casts_doubt_on_latencies_alone() -> None:
    late, deployment = notes(points=[point(LATE)], comparisons=[comparison(1.1, 1.2, deployments=1)])
    assert late.startswith("c=1: measured latencies may be too long; rates and ratios are valid")
    assert deployment.startswith("one deployment only")
