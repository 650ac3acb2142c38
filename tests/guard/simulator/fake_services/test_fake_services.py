"""The fake AWS has the faults that the worlds ask for, and no others."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from peagle_guard.aws import Query
from tests.guard.simulator.fake_services.account import Account
from tests.guard.simulator.fake_services.dynamodb import Table
from tests.guard.simulator.fake_services.errors import AwsFault, Refused
from tests.guard.simulator.fake_services.fake_aws import moment
from tests.guard.simulator.fake_services.sagemaker import Life
from tests.guard.simulator.guard_run import start
from tests.guard.simulator.making import BEGIN, MINUTE, plan, world
from tests.guard.simulator.worlds.traffic import Traffic
from tests.guard.simulator.worlds.world import CloudWatch, Flap, Late, Plan, World

NOW = BEGIN + 60 * MINUTE
REQUESTS = ((600, 780), (630, 640))
"""Seconds after BEGIN; the endpoint is in service from minute 5 on."""


def _interval(first: int, last: int) -> tuple[tuple[int, int], ...]:
    return ((BEGIN + first * MINUTE, BEGIN + last * MINUTE),)


def _points(given: World, metric: str, stat: str = "Sum") -> dict[int, float]:
    """The datapoints of an endpoint that can be seen at NOW, by minutes after BEGIN."""
    run = start(given)
    run.account.events.run_until(NOW)
    dimensions: tuple[tuple[str, str], ...] = (("EndpointName", "code"),)
    if metric != "ApproximateBacklogSize":
        dimensions += (("VariantName", "AllTraffic"),)
    query = Query("q", "AWS/SageMaker", metric, dimensions, stat)
    points = run.aws.metric_data([query], moment(BEGIN), moment(NOW), None).items[0].points
    return {(int(at.timestamp()) - BEGIN) // MINUTE: value for at, value in points.items()}


CPU, CONCURRENT = "CPUUtilization", "ConcurrentRequestsPerModel"
STEADILY, GROWING = Late(BEGIN, NOW, 600, 600), Late(BEGIN, NOW, 0, 1800)


@pytest.mark.parametrize(
    ("metric", "rules", "endpoint", "expected"),
    [
        # An arrival counts in its minute, and idle minutes are 0 or absent.
        ("Invocations", {}, {}, {9: 0, 10: 2, 11: 0, 12: 0}),
        ("Invocations", {"zeros": False}, {}, {9: None, 10: 2, 11: None}),
        (CONCURRENT, {"zeros": False}, {}, {9: None, 10: 2, 11: 1, 12: 1}),
        (CONCURRENT, {"concurrency": False}, {}, {10: None}),
        # A datapoint appears after its minute and the lag; a skewed clock moves the stamps.
        (CPU, {"lag_s": 90}, {}, {4: None, 5: 4, 57: 4, 58: None}),
        ("Invocations", {"skew_s": -120, "lag_s": 0}, {}, {8: 2, 57: 0, 58: None}),
        # Lost minutes never come, and stale ones come late.
        (CPU, {"gaps": _interval(20, 22)}, {}, {19: 4, 20: None, 21: None, 22: 4}),
        (CPU, {"stale": _interval(30, 61), "lag_s": 0}, {}, {29: 4, 30: None}),
        (CPU, {"stale": _interval(30, 60)}, {}, {58: 4}),
        # Two publishers: the request metrics alone are late or lost.
        (CPU, {"late": (STEADILY,)}, {}, {58: 4}),
        ("Invocations", {"late": (STEADILY,)}, {}, {10: 2, 48: 0, 49: None}),
        ("Invocations", {"late": (GROWING,), "lag_s": 0}, {}, {39: 0, 40: None}),
        (CPU, {"request_gaps": _interval(20, 44)}, {}, {20: 4, 43: 4}),
        ("Invocations", {"request_gaps": _interval(20, 44)}, {}, {19: 0, 20: None, 43: None, 44: 0}),
        # The publish interval is the host's, and with enhanced metrics that of the requests too.
        (CPU, {}, {"publish_s": 300}, {5: 4, 6: None, 9: None, 10: 4}),
        (CPU, {"stamped_at_end": True}, {"publish_s": 300}, {5: None, 9: 4, 14: 4}),
        ("Invocations", {}, {"publish_s": 300}, {10: 2, 11: 0}),
        ("Invocations", {}, {"publish_s": 300, "enhanced": True}, {10: 2, 11: None}),
        # An async endpoint writes a backlog and no invocations; the GPU shows a stream while it runs.
        ("Invocations", {}, {"async_config": True}, {9: None, 10: None}),
        ("ApproximateBacklogSize", {}, {"async_config": True}, {9: 0, 10: 2, 11: 1, 12: 1, 14: 0}),
        ("GPUUtilization", {"concurrency": False}, {}, {9: 0, 12: 40, 14: 0}),
    ],
)
def test_what_cloudwatch_shows(
    metric: str, rules: dict[str, Any], endpoint: dict[str, Any], expected: dict[int, float | None]
) -> None:
    points = _points(world(plan(*REQUESTS, **endpoint), cloudwatch=CloudWatch(**rules)), metric)
    assert {minute: points.get(minute) for minute in expected} == expected


def test_samples_follow_the_instances_and_jitter_moves_them() -> None:
    given = world(plan(instances=((BEGIN, 1), (BEGIN + 30 * MINUTE, 2))))
    points = _points(given, CPU, "SampleCount")
    assert (points[29], points[30]) == (1, 2)
    points = _points(world(plan(), cloudwatch=CloudWatch(jitter_every=7)), CPU, "SampleCount")
    assert set(points.values()) == {1, 2}
    assert sum(points.values()) == pytest.approx(len(range(5, 59)), abs=1)


def _account(*plans: Plan) -> Account:
    account = Account.of(world(*plans))
    account.start()
    return account


def _life(account: Account) -> Life:
    return account.sagemaker.lives[0]


@pytest.mark.parametrize("status", ["Creating", "Updating", "SystemUpdating", "RollingBack"])
def test_a_deletion_is_refused_while_something_is_in_progress(status: str) -> None:
    flap = Flap(BEGIN + 600, BEGIN + 1200, status)
    account = _account(plan(flaps=(flap,)))
    account.events.run_until(BEGIN + 60 if status == "Creating" else BEGIN + 700)
    assert _life(account).status(account.events.now) == status
    with pytest.raises(Refused):
        account.sagemaker.delete("code", account.events.now, "guard")
    account.events.run_until(BEGIN + 1300)
    account.sagemaker.delete("code", account.events.now, "guard")
    account.events.run_until(BEGIN + 3600)
    with pytest.raises(AwsFault, match="Could not find endpoint"):
        account.sagemaker.delete("code", account.events.now, "guard")


def test_a_deletion_may_answer_and_do_nothing() -> None:
    account = _account(plan(lies=1))
    account.events.run_until(NOW)
    account.sagemaker.delete("code", NOW, "guard")
    assert _life(account).status(NOW) == "InService"
    account.sagemaker.delete("code", NOW, "guard")
    assert _life(account).status(NOW) == "Deleting"


def test_components_block_a_deletion() -> None:
    lane = (("code-copy-0", Traffic()),)
    account = _account(plan(components=True, traffic=lane))
    account.events.run_until(NOW)
    with pytest.raises(Refused, match="inference components"):
        account.sagemaker.delete("code", NOW, "guard")
    account.sagemaker.delete_component("code-copy-0", NOW, "guard")
    account.sagemaker.delete("code", NOW, "guard")


def test_the_roles_may_only_delete_what_wears_our_tag() -> None:
    account = _account(plan(owner="foreign"))
    account.events.run_until(NOW)
    with pytest.raises(AwsFault, match="AccessDenied"):
        account.may_delete("code")


def test_a_new_endpoint_waits_for_the_old_one_of_its_name() -> None:
    again = replace(plan(), created_at=BEGIN + 1800)
    account = _account(plan(drain_s=200), again)
    account.events.run_until(BEGIN + 2400)
    first, second = account.sagemaker.lives
    assert first.ended_by == "user"
    assert first.gone_at is not None
    assert second.created_at >= first.gone_at
    assert first.arn == second.arn


def test_a_condition_that_the_simulated_table_cannot_evaluate_is_refused() -> None:
    with pytest.raises(ValueError, match="does not know the condition"):
        Table(lambda operation: None).delete_item(
            Key={"pk": {"S": "endpoint#code"}}, ConditionExpression="size(#v) > :n"
        )
