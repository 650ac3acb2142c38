"""The fake AWS has the faults that the worlds ask for, and no others."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.guard.simulator.fake_services.account import Account
from tests.guard.simulator.fake_services.cloudwatch import Lane, Metrics, Served
from tests.guard.simulator.fake_services.dynamodb import Table
from tests.guard.simulator.fake_services.errors import AccessDenied, DeletionRefused, NoSuchEndpoint
from tests.guard.simulator.fake_services.sagemaker import Life
from tests.guard.simulator.making import BEGIN, MINUTE, plan, world
from tests.guard.simulator.worlds.traffic import Traffic
from tests.guard.simulator.worlds.world import CloudWatch, Flap, Plan

NOW = BEGIN + 60 * MINUTE


def _metrics(rules: CloudWatch) -> Metrics:
    traffic = Traffic.of([(BEGIN + 600, BEGIN + 780), (BEGIN + 630, BEGIN + 640)])
    served = Served({"AllTraffic": Lane([traffic], [0])}, [[BEGIN, 1 << 40]])
    return Metrics(rules, {"code": served})


def _minutes(points: list[tuple[int, float]]) -> list[tuple[int, float]]:
    return [((at - BEGIN) // MINUTE, value) for at, value in points]


def test_an_arrival_counts_in_its_minute_and_idle_minutes_are_zero_or_absent() -> None:
    window = ("code", "AllTraffic", BEGIN + 540, BEGIN + 780, NOW)
    assert _minutes(_metrics(CloudWatch()).invocations(*window)) == [(9, 0), (10, 2), (11, 0), (12, 0)]
    assert _minutes(_metrics(CloudWatch(zeros=False)).invocations(*window)) == [(10, 2)]
    assert _minutes(_metrics(CloudWatch(zeros=False)).concurrency(*window)) == [(10, 2), (11, 1), (12, 1)]
    assert _metrics(CloudWatch(concurrency=False)).concurrency(*window) == []


def test_a_datapoint_appears_after_its_minute_and_the_lag() -> None:
    metrics = _metrics(CloudWatch(lag_s=90))
    assert _minutes(metrics.utilisation("code", BEGIN, NOW, BEGIN + 329)) == [(0, 4), (1, 4), (2, 4)]
    assert _minutes(metrics.utilisation("code", BEGIN, NOW, BEGIN + 330))[-1] == (3, 4)


def test_lost_minutes_never_come_and_stale_ones_come_late() -> None:
    lost = _metrics(CloudWatch(gaps=((BEGIN + 60, BEGIN + 180),), lag_s=0))
    assert _minutes(lost.utilisation("code", BEGIN, BEGIN + 300, NOW)) == [(0, 4), (3, 4), (4, 4)]
    stale = _metrics(CloudWatch(stale=((BEGIN + 120, BEGIN + 900),), lag_s=0))
    assert len(stale.utilisation("code", BEGIN, BEGIN + 840, BEGIN + 899)) == 2
    assert len(stale.utilisation("code", BEGIN, BEGIN + 840, BEGIN + 900)) == 14


def test_a_skewed_clock_moves_the_stamps_and_not_the_delay() -> None:
    metrics = _metrics(CloudWatch(skew_s=-120, lag_s=0))
    invocations = metrics.invocations("code", "AllTraffic", BEGIN - 600, NOW, BEGIN + 660)
    assert _minutes(invocations)[-1] == (8, 2)


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
    with pytest.raises(DeletionRefused):
        account.sagemaker.delete("code", account.events.now, "guard")
    account.events.run_until(BEGIN + 1300)
    account.sagemaker.delete("code", account.events.now, "guard")
    account.events.run_until(BEGIN + 3600)
    with pytest.raises(NoSuchEndpoint):
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
    with pytest.raises(DeletionRefused, match="inference components"):
        account.sagemaker.delete("code", NOW, "guard")
    account.sagemaker.delete_component("code-copy-0", NOW, "guard")
    account.sagemaker.delete("code", NOW, "guard")


def test_the_roles_may_only_delete_what_wears_our_tag() -> None:
    account = _account(plan(owner="foreign"))
    account.events.run_until(NOW)
    with pytest.raises(AccessDenied):
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
