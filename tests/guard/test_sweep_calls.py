"""What a sweep costs in calls: it grows as it must and no faster."""

from __future__ import annotations

from dataclasses import replace

from peagle_guard.sweeper import sweep
from tests.guard.by_hand import HOUR, MINUTE, AwsByHand
from tests.guard.simulator.fake_services.fake_aws import seconds
from tests.guard.simulator.people import SETTINGS

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
    aws = AwsByHand()
    aws.add(usd_per_hour="10", instance_count="1", idle="scale-to-zero")
    calls(aws)
    life = aws.endpoints["chat"]
    life.plan = replace(life.plan, instances=((0, 3),))
    life.views.clear()
    aws.now += 5 * MINUTE
    calls(aws)
    assert aws.register.records["chat"].instances == 3
