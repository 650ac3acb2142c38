"""UpdateEndpoint: a new fleet beside the old one, swapped when it answers, rolled back when it does not."""

import asyncio
import urllib.request
from collections.abc import Sequence

import pytest

from sagemaker_local.control import ApiError
from sagemaker_local.control.endpoints import traffic_shift
from tests.local.control.conftest import PREFIX, Account, MakeAccount


async def version(aws: Account, name: str = "e") -> str:
    """Which engine answers now."""
    url = aws.plane.route(name).engine_url + "/invocations"

    def ask() -> str:
        with urllib.request.urlopen(url, data=b"{}", timeout=5) as answer:
            return str(answer.read())

    text = await asyncio.to_thread(ask)
    return "new" if '"version": "new"' in text else "old"


async def serving(aws: Account, **new: str) -> None:
    """The old configuration InService, the new one ready to be asked for."""
    await aws.serve(SCRIPT_VERSION="old")
    await aws.model("m2", SCRIPT_VERSION="new", **new)
    await aws.config("c2", "m2")


async def update(aws: Account, **more: object) -> dict[str, object]:
    return await aws.call("UpdateEndpoint", EndpointName="e", EndpointConfigName="c2", **more)


async def test_the_old_fleet_serves_until_the_new_one_answers(aws: Account) -> None:
    await serving(aws, SCRIPT_PING="never")
    assert await update(aws) == {"EndpointArn": f"{PREFIX}:endpoint/e"}
    updating = await aws.describe()
    assert updating["EndpointStatus"] == "Updating"
    assert updating["EndpointConfigName"] == "c"
    assert updating["PendingDeploymentSummary"]["EndpointConfigName"] == "c2"
    assert await version(aws) == "old"
    await aws.tell("ready", 1)
    done = await aws.until("InService")
    assert done["EndpointConfigName"] == "c2"
    assert await version(aws) == "new"
    assert aws.statuses() == ["Creating", "InService", "Updating", "InService"]
    await aws.wait(lambda: running(aws, 1), "the old engine's end")


async def test_an_update_that_fails_rolls_back_to_the_old_config_without_a_reason(aws: Account) -> None:
    await serving(aws, SCRIPT_PING="never", SCRIPT_EXIT_AFTER="0.1", SCRIPT_EXIT_LINE="bad flag")
    await update(aws)
    await aws.until("InService")
    assert aws.statuses() == ["Creating", "InService", "Updating", "RollingBack", "InService"]
    done = await aws.describe()
    assert done["EndpointConfigName"] == "c"
    assert "FailureReason" not in done
    assert "PendingDeploymentSummary" not in done
    assert await version(aws) == "old"
    (row,) = aws.plane.describe_engines()
    assert "bad flag" in row["last_update_failure"]
    assert len(aws.launcher.running) == 1


async def test_update_and_delete_are_refused_while_updating(aws: Account) -> None:
    await serving(aws, SCRIPT_PING="never")
    await update(aws)
    message = f'Cannot update in-progress endpoint "{PREFIX}:endpoint/e".'
    await aws.refused(message, "UpdateEndpoint", EndpointName="e", EndpointConfigName="c")
    await aws.refused(message, "DeleteEndpoint", EndpointName="e")


async def test_both_fleets_dead_is_update_rollback_failed_and_another_update_heals_it(aws: Account) -> None:
    await serving(aws, SCRIPT_PING="never")
    await update(aws)
    aws.launcher.processes[0].kill()
    await aws.wait(lambda: noticed(aws), "the old engine's death")
    await aws.tell("exit", 1)
    failed = await aws.until("UpdateRollbackFailed")
    assert "did not pass the ping health check" in failed["FailureReason"]
    with pytest.raises(ApiError) as down:
        aws.plane.route("e")
    assert (down.value.code, down.value.status) == ("ServiceUnavailable", 503)
    await aws.model("m3", SCRIPT_VERSION="new")
    await aws.config("c3", "m3")
    await aws.call("UpdateEndpoint", EndpointName="e", EndpointConfigName="c3")
    healed = await aws.until("InService")
    assert healed["EndpointConfigName"] == "c3"
    assert "FailureReason" not in healed


async def test_an_old_fleet_that_dies_during_the_update_is_replaced_by_the_new_one(aws: Account) -> None:
    await serving(aws, SCRIPT_PING="never")
    await update(aws)
    aws.launcher.processes[0].kill()
    await aws.wait(lambda: noticed(aws), "the old engine's death")
    assert await aws.status() == "Updating"
    await aws.tell("ready", 1)
    done = await aws.until("InService")
    assert done["EndpointConfigName"] == "c2"
    assert await version(aws) == "new"


async def test_what_is_in_flight_on_the_old_engine_may_finish(aws: Account) -> None:
    await serving(aws)
    route = aws.plane.route("e")
    with route.hold():
        await update(aws)
        await aws.until("InService")
        assert await version(aws) == "new"
        await asyncio.sleep(0.2)
        assert len(aws.launcher.running) == 2
    await aws.wait(lambda: running(aws, 1), "the old engine's end")


async def test_an_update_to_a_config_that_is_not_there_changes_nothing(aws: Account) -> None:
    await aws.serve()
    missing = f'Could not find endpoint configuration "{PREFIX}:endpoint-config/c2".'
    await aws.refused(missing, "UpdateEndpoint", EndpointName="e", EndpointConfigName="c2")
    await aws.refused(
        f'Could not find endpoint "{PREFIX}:endpoint/x".',
        "UpdateEndpoint",
        EndpointName="x",
        EndpointConfigName="c",
    )
    assert await aws.status() == "InService"


async def test_weights_and_counts_are_taken_over_when_asked_for(aws: Account) -> None:
    await serving(aws)
    await aws.call(
        "UpdateEndpointWeightsAndCapacities",
        EndpointName="e",
        DesiredWeightsAndCapacities=[
            {"VariantName": "AllTraffic", "DesiredWeight": 0.5, "DesiredInstanceCount": 2}
        ],
    )
    assert await aws.status() == "Updating"
    changed = await aws.until("InService")
    assert changed["ProductionVariants"][0]["CurrentWeight"] == 0.5
    await update(
        aws,
        RetainAllVariantProperties=True,
        ExcludeRetainedVariantProperties=[{"VariantPropertyType": "DesiredWeight"}],
    )
    await aws.until("InService")
    (variant,) = (await aws.describe())["ProductionVariants"]
    assert (variant["CurrentWeight"], variant["CurrentInstanceCount"]) == (1.0, 2)


async def test_the_deployment_config_is_kept_only_when_asked_for(aws: Account) -> None:
    await serving(aws)
    policy = {"AutoRollbackConfiguration": {"Alarms": [{"AlarmName": "a"}]}}
    await update(aws, DeploymentConfig=policy)
    await aws.until("InService")
    assert (await aws.describe())["LastDeploymentConfig"] == policy
    await update(aws, RetainDeploymentConfig=True)
    await aws.until("InService")
    assert (await aws.describe())["LastDeploymentConfig"] == policy
    await update(aws)
    await aws.until("InService")
    assert "LastDeploymentConfig" not in await aws.describe()


SHIFT = {"Type": "ALL_AT_ONCE", "WaitIntervalInSeconds": 0}
HALF = {"Type": "CAPACITY_PERCENT", "Value": 50}


def blue_green(routing: dict[str, object], **more: object) -> dict[str, object]:
    return {"BlueGreenUpdatePolicy": {"TrafficRoutingConfiguration": SHIFT | routing, **more}}


@pytest.mark.parametrize(
    ("policy", "told"),
    [
        (
            {"RollingUpdatePolicy": {"MaximumBatchSize": HALF, "WaitIntervalInSeconds": 0}},
            "DeploymentConfig.RollingUpdatePolicy of an endpoint is not implemented by the local SageMaker; "
            "give BlueGreenUpdatePolicy.",
        ),
        (
            blue_green({"Type": "CANARY"}),
            "TrafficRoutingConfiguration of Type CANARY needs CanarySize: found none.",
        ),
        (
            blue_green({"CanarySize": HALF}),
            "TrafficRoutingConfiguration.CanarySize is for Type CANARY; found Type ALL_AT_ONCE.",
        ),
        (
            blue_green({"Type": "LINEAR", "LinearStepSize": HALF}),
            "TrafficRoutingConfiguration of Type LINEAR is not implemented by the local SageMaker; "
            "choose CANARY or ALL_AT_ONCE.",
        ),
        (
            blue_green({"Type": "CANARY", "CanarySize": {"Type": "CAPACITY_PERCENT", "Value": 60}}),
            "TrafficRoutingConfiguration.CanarySize is 60%; allowed are 1% to 50%.",
        ),
        (
            blue_green({"Type": "CANARY", "CanarySize": {"Type": "INSTANCE_COUNT", "Value": 2}}),
            "TrafficRoutingConfiguration.CanarySize is 2; allowed is at most 1, half of 1.",
        ),
        (
            blue_green({}, TerminationWaitInSeconds=600, MaximumExecutionTimeoutInSeconds=600),
            "MaximumExecutionTimeoutInSeconds is 600; it must be larger than the 600 s of "
            "TerminationWaitInSeconds and WaitIntervalInSeconds.",
        ),
    ],
)
async def test_deployment_configs_that_aws_does_not_take(
    aws: Account, policy: dict[str, object], told: str
) -> None:
    await serving(aws)
    await aws.refused(
        told, "UpdateEndpoint", EndpointName="e", EndpointConfigName="c2", DeploymentConfig=policy
    )
    assert await aws.status() == "InService"


CANARY = {
    **blue_green(
        {
            "Type": "CANARY",
            "CanarySize": {"Type": "CAPACITY_PERCENT", "Value": 10},
            "WaitIntervalInSeconds": 600,
        },
        TerminationWaitInSeconds=300,
    ),
    "AutoRollbackConfiguration": {"Alarms": [{"AlarmName": "acceptance"}]},
}


def canary_of(unit: str, value: int) -> dict[str, object]:
    size = {"Type": unit, "Value": value}
    return blue_green({"Type": "CANARY", "CanarySize": size, "WaitIntervalInSeconds": 60})


@pytest.mark.parametrize(
    ("config", "instances", "steps"),
    [
        (blue_green({}, TerminationWaitInSeconds=300), 2, None),
        (canary_of("CAPACITY_PERCENT", 10), 2, ((0.5, 60), (1, 0))),
        (canary_of("CAPACITY_PERCENT", 10), 20, ((0.1, 60), (1, 0))),
        (canary_of("INSTANCE_COUNT", 3), 8, ((0.375, 60), (1, 0))),
        (canary_of("CAPACITY_PERCENT", 50), 1, ((1, 0),)),
    ],
)
def test_a_step_is_a_whole_number_of_instances(
    config: dict[str, object], instances: int, steps: tuple[tuple[float, float], ...] | None
) -> None:
    shift = traffic_shift(config, [instances])
    assert (shift.steps if shift is not None else None) == steps


class Alarms:
    """The alarms of a test: those in `tripped` are in state ALARM."""

    def __init__(self) -> None:
        self.tripped: set[str] = set()

    async def __call__(self, names: Sequence[str]) -> str | None:
        return next((name for name in names if name in self.tripped), None)


async def canary(make_account: MakeAccount, alarms: Alarms) -> Account:
    """An endpoint of two instances whose update has its canary on the new fleet."""
    aws = make_account(tripped=alarms)
    await aws.model("m", SCRIPT_VERSION="old")
    await aws.model("m2", SCRIPT_VERSION="new")
    await aws.config("c", "m", InitialInstanceCount=2)
    await aws.config("c2", "m2", InitialInstanceCount=2)
    await aws.endpoint()
    await aws.until("InService")
    await update(aws, DeploymentConfig=CANARY)

    async def both_serve() -> bool:
        return await share_of_the_new(aws) not in (0, 1)

    await aws.wait(both_serve, "a canary")
    return aws


async def share_of_the_new(aws: Account) -> float:
    answers = [await version(aws) for _ in range(24)]
    return answers.count("new") / len(answers)


async def test_a_canary_serves_beside_the_old_fleet_until_its_time_is_over(make_account: MakeAccount) -> None:
    aws = await canary(make_account, Alarms())
    assert (await aws.describe())["EndpointConfigName"] == "c"
    aws.clock.advance(600)

    async def all_shifted() -> bool:
        return await share_of_the_new(aws) == 1

    await aws.wait(all_shifted, "all traffic on the new fleet")
    assert await aws.status() == "Updating"
    await aws.wait(lambda: running(aws, 2), "both fleets in the final baking period")
    aws.clock.advance(300)
    assert (await aws.until("InService"))["EndpointConfigName"] == "c2"
    await aws.wait(lambda: running(aws, 1), "the old fleet's end")


@pytest.mark.parametrize("seconds", [0, 600])
async def test_an_alarm_takes_all_traffic_back_while_the_fleet_bakes(
    make_account: MakeAccount, seconds: int
) -> None:
    alarms = Alarms()
    aws = await canary(make_account, alarms)
    aws.clock.advance(seconds)
    alarms.tripped = {"another", "acceptance"}
    done = await aws.until("InService")
    assert aws.statuses() == ["Creating", "InService", "Updating", "RollingBack", "InService"]
    assert done["EndpointConfigName"] == "c"
    assert await share_of_the_new(aws) == 0
    (row,) = aws.plane.describe_engines()
    assert row["last_update_failure"].startswith("alarm acceptance is in state ALARM with ")
    await aws.wait(lambda: running(aws, 1), "the new fleet's end")


async def test_a_fleet_that_dies_as_a_canary_rolls_back(make_account: MakeAccount) -> None:
    aws = await canary(make_account, Alarms())
    await aws.tell("exit")
    assert (await aws.until("InService"))["EndpointConfigName"] == "c"
    assert await share_of_the_new(aws) == 0


async def noticed(aws: Account) -> bool:
    return any(event.kind == "engine-died" for event in aws.events)


async def running(aws: Account, count: int) -> bool:
    return len(aws.launcher.running) == count
