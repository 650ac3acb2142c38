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


def test_a_control_that_excludes_one_casts_doubt_on_all() -> None:
    (told,) = notes(comparisons=[comparison(1.02, 1.08, faster="none (A/A)", control=True)])
    assert told.startswith(
        "c=1: A/A control failed: none compared with itself gave 1.050 [1.020, 1.080], which excludes 1"
    )
    assert notes(comparisons=[comparison(0.98, 1.08, faster="none (A/A)", control=True)]) == []


def test_failed_requests_are_counted_and_the_first_is_told() -> None:
    requests = [request("none", "p", error="ModelError"), request("none", "p", turn=1, error="Timeout")]
    (told,) = notes(
        requests=[*requests, request("none", "q"), request("none", "r", phase="warm-up", error="x")]
    )
    assert told.startswith(
        "none: 2 requests failed, so their 1 prompts are left out for all arms; first error: ModelError"
    )


def test_failed_requests_of_a_shared_window_are_missing_in_one_arm() -> None:
    (told,) = notes(requests=[request("none", "p", error="ModelError", load=EIGHT)])
    assert told.startswith(
        "none: 1 requests failed, so their 1 prompts are missing in this arm's rates alone"
    )


def test_a_client_that_was_too_slow_is_told_once_a_load() -> None:
    (told,) = notes(points=[point(SLOW), point(SLOW)])
    assert told == "c=1: withheld: the client was busy 99% of the time (allowed: 90%) (p-eagle)"


def test_of_a_comparison_that_is_withheld_nothing_is_told() -> None:
    (told,) = notes(points=[point(SLOW)], comparisons=[comparison(1.1, 1.2, deployments=1)])
    assert "withheld" in told


def test_a_client_that_was_late_casts_doubt_on_latencies_alone() -> None:
    late, one = notes(points=[point(LATE)], comparisons=[comparison(1.1, 1.2, deployments=1)])
    assert late.startswith(
        "c=1: measured latencies may be too long; rates and ratios are valid: the client's event"
    )
    assert one.startswith("one deployment only")


def test_an_arm_that_tells_nothing_of_its_drafts() -> None:
    (told,) = notes(arms=[ARM], points=[point()])
    assert "p-eagle: its answers do not report drafts" in told
    assert notes(arms=[ARM], points=[point(accepted=Acceptance("per-request", 2.0, 2.0, (), 1, 1))]) == []


@pytest.mark.parametrize(
    ("faster", "said"),
    [("p-eagle", "`peagle-sm verify` distinguishes"), ("none (A/A)", "they are the same endpoint")],
)
def test_answers_that_differ(faster: str, said: str) -> None:
    (told,) = notes(
        comparisons=[comparison(0.9, 1.1, faster=faster, identical_outputs=7, compared_outputs=9)]
    )
    assert f"c=1: {faster} and none answered 2 of 9 prompts" in told
    assert said in told


def test_one_deployment_says_so() -> None:
    (told,) = notes(comparisons=[comparison(1.1, 1.2, deployments=1), comparison(1.3, 1.4, deployments=1)])
    assert told.startswith("one deployment only")
