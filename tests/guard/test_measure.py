"""What a sweep reads: how many calls it makes, and which metrics it asks for, how much at once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

import pytest

from peagle_guard.aws import Page, Query, Result
from peagle_guard.evidence import MOST_POINTS, MOST_QUERIES
from peagle_guard.sweeper import sweep
from tests.guard.by_hand import HOUR, MINUTE, START, AwsByHand, interval, set_up
from tests.guard.simulator.fake_services.fake_aws import seconds
from tests.guard.simulator.making import plan
from tests.guard.simulator.people import SETTINGS
from tests.guard.simulator.worlds.world import CloudWatch

WEEK_MINUTES = 7 * 24 * 60
IDLE: dict[str, Any] = {"idle_minutes": "15", "max_lifetime_hours": "100"}


class CountingAws(AwsByHand):
    """An AWS that notes what each GetMetricData asks for: queries, and the most datapoints of the answer."""

    def __init__(self, **rules: Any) -> None:
        super().__init__(cloudwatch=CloudWatch(lag_s=0, **rules))
        self.asked: list[tuple[int, int]] = []
        self.metrics: set[str] = set()

    def metric_data(
        self, queries: Sequence[Query], start: datetime, end: datetime, token: str | None
    ) -> Page[Result]:
        self.asked.append((len(queries), len(queries) * ((end - start) // MINUTE)))
        self.metrics |= {query.metric for query in queries}
        return super().metric_data(queries, start, end, token)


@pytest.mark.parametrize("idle_minutes", [60, WEEK_MINUTES])
def test_a_batch_holds_no_more_datapoints_than_one_page(idle_minutes: int) -> None:
    """40 endpoints with an idle time of a week had 1.2 million datapoints at once in a Lambda of 256 MB."""
    aws = CountingAws(stale=interval(START - 200 * HOUR))
    for number in range(40):
        aws.add(f"chat-{number:02}", age=timedelta(days=8), idle_minutes=str(idle_minutes))
    report = sweep(aws, SETTINGS, aws.now, dry_run=True)
    assert report.failures == ()
    assert sum(queries for queries, _ in aws.asked) == 3 * 40
    assert all(queries <= MOST_QUERIES and points <= MOST_POINTS for queries, points in aws.asked)
    assert len(aws.asked) == (1 if idle_minutes == 60 else 14)


def _swept(aws: AwsByHand, minutes: int) -> None:
    for _ in range(minutes // 5):
        aws.now += 5 * MINUTE
        assert sweep(aws, SETTINGS, aws.now).failures == ()


@pytest.mark.parametrize(("tag", "did"), [("300", ["delete"]), ("", [])])
def test_without_its_tag_an_interval_of_five_minutes_is_unknown(tag: str, did: list[str]) -> None:
    aws = CountingAws(zeros=False)
    aws.add(like=plan(publish_s=300), publish_seconds=tag, **IDLE)
    _swept(aws, 120)
    assert aws.did == did


# --- asynchronous inference ---------------------------------------------------------------------------


def test_an_endpoint_that_an_operator_made_asynchronous_is_not_idle_without_its_backlog() -> None:
    aws = CountingAws(request_gaps=interval(START))
    aws.add(like=plan(async_config=True), **IDLE)
    _swept(aws, 180)
    assert aws.deeds == []
    assert "ApproximateBacklogSize" in aws.metrics
    assert aws.register.records["chat"].is_async


# --- streams that are not shown -----------------------------------------------------------------------


def test_where_no_concurrency_is_written_the_gpus_show_a_stream_longer_than_the_grace() -> None:
    aws = CountingAws(zeros=False, concurrency=False)
    aws.add(**IDLE)
    aws.serve("chat", START + 10 * MINUTE, START + 90 * MINUTE)
    _swept(aws, 200)
    assert aws.deeds[0][0] - START > 105 * MINUTE
    assert aws.register.records["chat"].streams_hidden
    assert "GPUUtilization" in aws.metrics


def test_where_concurrency_is_written_the_gpus_are_not_read() -> None:
    aws = CountingAws()
    aws.add(**IDLE)
    aws.serve("chat", START, START + 30 * MINUTE)
    _swept(aws, 30)
    assert not aws.register.records["chat"].streams_hidden
    assert "GPUUtilization" not in aws.metrics


# --- calls: they grow as they must and no faster --------------------------------------------------------

JOBS = {"ListTrainingJobs": 1}


def world(ours: int, others: int) -> AwsByHand:
    aws = AwsByHand()
    for number in range(ours):
        aws.add(f"ours-{number:03}", age=HOUR, idle_minutes="120")
    for number in range(others):
        aws.add(f"others-{number:03}", age=HOUR)
        aws.endpoints[f"others-{number:03}"].tags = {"team": "somebody"}
    return aws


def calls(aws: AwsByHand) -> dict[str, int]:
    aws.account.calls.clear()
    report = sweep(aws, SETTINGS, aws.now)
    assert report.failures == ()
    return {name: count for name, count in report.calls.items() if name not in ("Lock", "Unlock", "Scan")}


def test_250_endpoints_of_ours() -> None:
    aws = world(ours=250, others=0)
    first = {"ListEndpoints": 3, "GetResources": 3, "ListInferenceComponents": 1, "GetMetricData": 2} | JOBS
    # Each is described and written down once, when it is new.
    assert calls(aws) == {**first, "DescribeEndpoint": 250, "UpdateItem": 250}
    aws.now += 5 * MINUTE
    assert calls(aws) == first


def test_250_endpoints_of_which_10_are_ours() -> None:
    aws = world(ours=10, others=240)
    calls(aws)
    aws.now += 5 * MINUTE
    few = {"ListEndpoints": 3, "GetResources": 1, "ListInferenceComponents": 1, "GetMetricData": 1} | JOBS
    assert calls(aws) == few
    aws.now += 5 * MINUTE
    for name in ("ours-003", "others-003"):
        aws.change(name, instances=((seconds(aws.now), 2),))
    assert calls(aws) == {**few, "DescribeEndpoint": 1, "UpdateItem": 1}


def test_what_sagemaker_itself_scales_is_described_in_each_sweep() -> None:
    """A component's instances: its cost follows their number, also where LastModifiedTime stays."""
    aws = set_up(usd_per_hour="10", instance_count="1", idle="scale-to-zero")
    calls(aws)
    life = aws.endpoints["chat"]
    life.plan = replace(life.plan, instances=((0, 3),))
    life.views.clear()
    aws.now += 5 * MINUTE
    calls(aws)
    assert aws.register.records["chat"].instances == 3
