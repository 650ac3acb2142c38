"""Deletes and their refusals, a death in service, restarts, close."""

import os
import time

import pytest

from sagemaker_local.control import ApiError, Timing, errors
from sagemaker_local.control.engines import Health
from tests.local.control.conftest import PREFIX, Account, MakeAccount

IN_PROGRESS = f'Cannot update in-progress endpoint "{PREFIX}:endpoint/e".'
GONE = f'Could not find endpoint "{PREFIX}:endpoint/e".'


async def test_delete_is_refused_while_creating(aws: Account) -> None:
    await aws.model(SCRIPT_PING="never")
    await aws.config()
    await aws.endpoint()
    await aws.refused(IN_PROGRESS, "DeleteEndpoint", EndpointName="e")
    await aws.tell("ready")
    await aws.until("InService")
    assert await aws.call("DeleteEndpoint", EndpointName="e") == {}


async def test_update_is_refused_while_creating(aws: Account) -> None:
    await aws.model(SCRIPT_PING="never")
    await aws.config()
    await aws.endpoint()
    await aws.refused(IN_PROGRESS, "UpdateEndpoint", EndpointName="e", EndpointConfigName="c")


async def test_deleting_takes_time_refuses_a_second_delete_and_leaves_nothing(aws: Account) -> None:
    await aws.serve()
    (process,) = aws.launcher.processes
    (request,) = aws.launcher.requests
    await aws.call("DeleteEndpoint", EndpointName="e")
    assert await aws.status() == "Deleting"
    await aws.refused(IN_PROGRESS, "DeleteEndpoint", EndpointName="e")
    taken = f'Cannot create already existing endpoint "{PREFIX}:endpoint/e".'
    await aws.refused(taken, "CreateEndpoint", EndpointName="e", EndpointConfigName="c")
    await gone(aws)
    with pytest.raises(ProcessLookupError):
        os.kill(process.pid, 0)
    assert not request.root.exists()
    assert aws.plane.describe_engines() == []


async def test_a_name_can_be_used_again_once_the_endpoint_is_gone(aws: Account) -> None:
    await aws.serve()
    await aws.call("DeleteEndpoint", EndpointName="e")
    await gone(aws)
    await aws.endpoint()
    await aws.until("InService")


async def test_a_failed_endpoint_can_be_deleted_but_not_updated(aws: Account) -> None:
    await aws.model(SCRIPT_PING="never", SCRIPT_EXIT_AFTER="0")
    await aws.config()
    await aws.endpoint()
    await aws.until("Failed")
    with pytest.raises(ApiError, match="with status Failed"):
        await aws.call("UpdateEndpoint", EndpointName="e", EndpointConfigName="c")
    await aws.call("DeleteEndpoint", EndpointName="e")
    await gone(aws)


async def test_config_and_model_in_use_can_be_deleted_and_the_endpoint_serves_on(aws: Account) -> None:
    await aws.serve()
    assert await aws.call("DeleteEndpointConfig", EndpointConfigName="c") == {}
    assert await aws.call("DeleteModel", ModelName="m") == {}
    described = await aws.describe()
    assert (described["EndpointStatus"], described["EndpointConfigName"]) == ("InService", "c")
    assert aws.plane.route("e").engine_url
    missing = f'Could not find endpoint configuration "{PREFIX}:endpoint-config/c".'
    await aws.refused(missing, "DeleteEndpointConfig", EndpointConfigName="c")
    await aws.refused(f'Could not find model "{PREFIX}:model/m".', "DeleteModel", ModelName="m")


async def test_an_engine_that_dies_fails_the_endpoint_with_its_last_words(aws: Account) -> None:
    await aws.serve(SCRIPT_EXIT_CODE="9", SCRIPT_EXIT_LINE="EngineDeadError: gone")
    await aws.tell("exit")
    failed = await aws.until("Failed")
    assert failed["FailureReason"].startswith(
        "The container of production variant AllTraffic died: it exited with status 9. Its last words: "
    )
    assert failed["FailureReason"].endswith("EngineDeadError: gone")
    assert [event.kind for event in aws.events].count("engine-died") == 1
    with pytest.raises(ApiError, match="Endpoint e of account 123456789012 not found"):
        aws.plane.route("e")


async def test_a_killed_engine_is_noticed_within_ten_seconds_at_the_pace_of_production(
    make_account: MakeAccount,
) -> None:
    aws = make_account(timing=Timing())
    await aws.serve()
    began = time.monotonic()
    aws.launcher.processes[0].kill()
    failed = await aws.until("Failed")
    assert time.monotonic() - began < 10
    assert "exited with status 137" in failed["FailureReason"]


def ping_for(seconds: float, took_s: float) -> tuple[float, str | None]:
    """Failing pings at the pace of production: when the verdict fell, and the verdict."""
    timing = Timing()
    health = Health(timing, 0.0)
    now = 0.0
    while now < seconds:
        now += timing.ping_s + timing.watch_s + took_s
        verdict = health.pinged(False, took_s, now)
        if verdict is not None:
            return now, verdict
    return now, None


def test_an_engine_that_refuses_pings_is_dead_within_ten_seconds_even_at_the_slowest_pace() -> None:
    now, verdict = ping_for(60, took_s=0.99)
    assert now < 10
    assert verdict == f"failed every /ping for {now:.0f} s"


def test_pings_that_run_into_their_limit_condemn_a_busy_engine_only_after_a_minute() -> None:
    assert ping_for(55, took_s=2.0)[1] is None
    assert ping_for(90, took_s=2.0)[1] is not None


def test_a_ping_that_succeeds_forgives_those_before() -> None:
    health = Health(Timing(), 0.0)
    outcomes = [health.pinged(now % 4 == 0, 0.01, float(now)) for now in range(1, 60)]
    assert outcomes == [None] * 59


async def test_an_engine_that_runs_but_fails_every_ping_counts_as_dead(aws: Account) -> None:
    await aws.serve()
    await aws.tell("sick")
    failed = await aws.until("Failed")
    assert "it failed every /ping for" in failed["FailureReason"]
    await aws.wait(lambda: nothing_runs(aws), "the sick engine's end")


async def test_one_endpoints_death_does_not_touch_another(aws: Account) -> None:
    await aws.serve("e")
    await aws.endpoint("other", "c")
    await aws.until("InService", "other")
    aws.launcher.processes[0].kill()
    await aws.until("Failed", "e")
    assert await aws.status("other") == "InService"


@pytest.mark.parametrize("ping", ["0", "never"])
async def test_close_ends_every_engine_whatever_the_status(make_account: MakeAccount, ping: str) -> None:
    aws = make_account()
    await aws.model(SCRIPT_PING=ping)
    await aws.config()
    for name in ("one", "two"):
        await aws.endpoint(name)
    await aws.wait(lambda: launched(aws, 2), "both engines launched")
    await aws.plane.close()
    assert aws.launcher.running == []


async def test_each_line_of_an_engine_is_told_with_its_endpoint_and_variant(aws: Account) -> None:
    await aws.serve()
    (line,) = [event for event in aws.events if event.kind == "line"]
    assert line.message.startswith("scripted engine")
    assert (line.endpoint, line.variant) == ("e", "AllTraffic")
    assert line.engine_id == aws.plane.route("e").engine_id


async def gone(aws: Account, name: str = "e") -> None:
    async def missing() -> bool:
        try:
            await aws.describe(name)
        except ApiError as error:
            return error.message == GONE
        return False

    await aws.wait(missing, "the endpoint's end")


async def nothing_runs(aws: Account) -> bool:
    return aws.launcher.running == []


async def launched(aws: Account, count: int) -> bool:
    return len(aws.launcher.processes) == count


def test_the_engines_last_words_begin_at_the_border_of_a_line() -> None:
    died = errors.died(
        "production variant AllTraffic", "exited with status 9", "\n".join(f"line {n}" for n in range(300))
    )
    assert len(died) <= errors.FAILURE_REASON_LIMIT
    first = died.partition("Its last words: … ")[2].splitlines()[0]
    assert first.startswith("line ")
    assert died.endswith("line 299")
