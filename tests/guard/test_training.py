"""The guard stops training jobs of peagle-sm that run past their limit, and no others."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from peagle_guard.aws import Job
from peagle_guard.sweeper import sweep
from peagle_guard.switch import turn
from peagle_guard.training import GRACE, over_limit
from tests.guard.by_hand import HOUR, MINUTE, START, AwsByHand
from tests.guard.simulator.fake_services.fake_aws import job_arn
from tests.guard.simulator.people import SETTINGS

OURS = {"peagle-sm:managed-by": "peagle-sm", "peagle-sm:learn": "team-a"}


def deadline(moment: Any) -> dict[str, str]:
    return {**OURS, "peagle-sm:deadline": moment.strftime("%Y-%m-%dT%H:%M:%SZ")}


def job(age: timedelta | None, *, spot: bool = False, max_runtime: timedelta | None = 8 * HOUR) -> Job:
    return Job("team-a-0123456789", None if age is None else START - age, max_runtime, spot)


def world(running: Job, tags: dict[str, str]) -> AwsByHand:
    aws = AwsByHand()
    aws.account.jobs[running.name] = (running, tags)
    return aws


@pytest.mark.parametrize(
    ("age", "spot", "tags", "stopped"),
    [
        (7 * HOUR, False, deadline(START + HOUR), False),
        (8 * HOUR + GRACE, False, deadline(START + HOUR), False),
        (8 * HOUR + GRACE + MINUTE, False, deadline(START + HOUR), True),
        (8 * HOUR + GRACE + MINUTE, False, OURS, True),
        (8 * HOUR + GRACE + MINUTE, True, deadline(START + HOUR), False),  # it was interrupted meanwhile
        (MINUTE, True, deadline(START - MINUTE), True),
        (None, False, deadline(START - MINUTE), True),  # still waiting for capacity
        (None, False, deadline(START + MINUTE), False),
        (MINUTE, False, {**OURS, "peagle-sm:deadline": "soon"}, False),
        (30 * HOUR, False, {}, False),
        (30 * HOUR, False, {"peagle-sm:managed-by": "peagle-sm"}, False),
        (30 * HOUR, False, {"peagle-sm:learn": "team-a", "peagle-sm:managed-by": "other"}, False),
    ],
)
def test_which_jobs_a_sweep_stops(
    age: timedelta | None, spot: bool, tags: dict[str, str], stopped: bool
) -> None:
    aws = world(job(age, spot=spot), tags)
    report = sweep(aws, SETTINGS, START)
    assert report.failures == ()
    assert [name for _, _, name in aws.deeds] == (["team-a-0123456789"] if stopped else [])
    assert len(aws.notices) == stopped


def test_a_dry_run_says_what_it_would_stop_and_stops_nothing() -> None:
    aws = world(job(30 * HOUR), OURS)
    report = sweep(aws, SETTINGS, START, dry_run=True)
    (entry,) = report.as_json()["training"]
    assert (entry["action"], aws.deeds) == ("stop", [])
    assert entry["reason"].startswith("its run time passed at 2026-11-")


@pytest.mark.parametrize(
    "operation", ["ListTrainingJobs", "DescribeTrainingJob", "ListTags", "StopTrainingJob"]
)
def test_a_fault_is_told_and_the_next_sweep_stops_the_job(operation: str) -> None:
    aws = world(job(30 * HOUR), OURS)
    aws.faults[operation] = [RuntimeError("not now")]
    report = sweep(aws, SETTINGS, START)
    assert any("not now" in fault for fault in report.failures)
    assert aws.deeds == []
    aws.now += 5 * MINUTE
    assert sweep(aws, SETTINGS, aws.now).failures == ()
    assert aws.did == ["stop-training"]


def test_a_notice_that_fails_does_not_keep_a_job_running() -> None:
    aws = world(job(30 * HOUR), OURS)
    aws.faults["Publish"] = [RuntimeError("no topic")]
    report = sweep(aws, SETTINGS, START)
    assert aws.did == ["stop-training"]
    assert report.failures == ("team-a-0123456789: the notice: RuntimeError: no topic",)


@pytest.mark.parametrize(
    ("event", "tags"),
    [
        ({"job": "team-a-0123456789", "arn": job_arn("team-a-0123456789")}, {}),
        ({"job": "team-a-0123456789", "arn": job_arn("another")}, OURS),
        ({"job": "", "arn": ""}, OURS),
        ({}, OURS),
    ],
)
def test_the_switch_refuses_what_is_not_ours(event: dict[str, str], tags: dict[str, str]) -> None:
    aws = world(job(30 * HOUR), tags)
    assert turn(aws, {"action": "stop-training", **event})["state"] == "refused"
    assert aws.deeds == []


minutes = st.integers(-3000, 3000)


@given(
    started=st.none() | minutes, ends=st.none() | minutes, runtime=st.integers(1, 3000), spot=st.booleans()
)
def test_no_job_within_both_limits_is_stopped_and_none_beyond_one_runs_on(
    started: int | None, ends: int | None, runtime: int, spot: bool
) -> None:
    age = None if started is None else started * MINUTE
    result = job(age, spot=spot, max_runtime=runtime * MINUTE)
    tags = OURS if ends is None else deadline(START + ends * MINUTE)
    late = ends is not None and ends < 0
    ran_out = not spot and age is not None and age > runtime * MINUTE + GRACE
    assert (over_limit(result, tags, START) is not None) == (late or ran_out)
