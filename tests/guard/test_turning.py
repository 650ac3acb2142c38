"""The switch in each status of a stack and of its endpoint."""

from __future__ import annotations

from datetime import timedelta

import pytest

from peagle_guard.records import BUSY
from peagle_guard.turning import Stack, turn
from tests.guard.fake_aws import MINUTE, START, FakeAws, arn_of

OFF = {"action": "off", "stack": "Peagle-chat"}
ON = {"action": "on", "stack": "Peagle-chat"}
UPDATABLE = (
    "CREATE_COMPLETE",
    "UPDATE_COMPLETE",
    "UPDATE_ROLLBACK_COMPLETE",
    "IMPORT_COMPLETE",
    "UPDATE_FAILED",
)
BROKEN = ("ROLLBACK_COMPLETE", "ROLLBACK_FAILED", "UPDATE_ROLLBACK_FAILED", "CREATE_FAILED", "DELETE_FAILED")
IN_PROGRESS = (
    "CREATE_IN_PROGRESS",
    "UPDATE_IN_PROGRESS",
    "UPDATE_COMPLETE_CLEANUP_IN_PROGRESS",
    "UPDATE_ROLLBACK_IN_PROGRESS",
    "UPDATE_ROLLBACK_COMPLETE_CLEANUP_IN_PROGRESS",
    "ROLLBACK_IN_PROGRESS",
    "DELETE_IN_PROGRESS",
)


def world(stack_status: str = "CREATE_COMPLETE", state: str = "on", status: str = "InService") -> FakeAws:
    aws = FakeAws()
    aws.add("chat", status=status, stack="Peagle-chat")
    aws.stacks["Peagle-chat"] = Stack("Peagle-chat", stack_status, {"EndpointState": state, "Image": "some"})
    return aws


def did(aws: FakeAws) -> list[str]:
    return [what for _, what, _ in aws.deeds]


@pytest.mark.parametrize("status", UPDATABLE)
def test_off_updates_a_stack_that_can_be_updated(status: str) -> None:
    aws = world(status)
    answer = turn(aws, OFF)
    assert (answer["state"], answer["started"], did(aws)) == ("in-progress", True, ["stack-off"])
    # Asked again while it is on its way, it waits; once the endpoint is gone it is done.
    assert turn(aws, OFF)["state"] == "in-progress"
    aws.now += 5 * MINUTE
    assert (turn(aws, OFF)["state"], did(aws)) == ("done", ["stack-off"])


@pytest.mark.parametrize("action", [OFF, ON], ids=["off", "on"])
@pytest.mark.parametrize("status", IN_PROGRESS)
def test_a_busy_stack_is_waited_for(status: str, action: dict[str, str]) -> None:
    aws = world(status)
    answer = turn(aws, action)
    assert (answer["state"], answer["started"], did(aws)) == ("in-progress", False, [])


@pytest.mark.parametrize("status", BROKEN)
def test_off_deletes_the_endpoint_itself_where_the_stack_cannot_be_updated(status: str) -> None:
    aws = world(status)
    assert (turn(aws, OFF)["state"], did(aws)) == ("in-progress", ["delete"])
    aws.now += 5 * MINUTE
    assert turn(aws, OFF)["state"] == "done"


def test_off_deletes_what_a_deleted_stack_has_left_behind() -> None:
    aws = world()
    aws.stacks.clear()
    turn(aws, OFF)
    assert did(aws) == ["delete"]


def test_update_complete_is_not_believed() -> None:
    """The stack says off, and CloudFormation sees no update to perform, but the endpoint is there."""
    aws = world("UPDATE_COMPLETE", state="off")
    assert (turn(aws, OFF)["state"], did(aws)) == ("in-progress", ["delete"])


@pytest.mark.parametrize("status", sorted(BUSY))
@pytest.mark.parametrize("stack_status", ["CREATE_COMPLETE", "ROLLBACK_COMPLETE"])
def test_off_never_tries_what_aws_would_refuse(status: str, stack_status: str) -> None:
    """CloudFormation would try the deletion once, in its clean-up, and then forget the endpoint."""
    aws = world(stack_status, status=status)
    answer = turn(aws, OFF)
    assert (answer["state"], answer["started"], did(aws)) == ("in-progress", False, [])


def test_off_refuses_stacks_and_endpoints_that_are_not_ours() -> None:
    aws = world()
    assert turn(aws, {"action": "off", "stack": "production"})["state"] == "refused"
    assert turn(aws, {"action": "burn", "stack": "Peagle-chat"})["state"] == "refused"
    aws.stacks["Peagle-chat"] = Stack("Peagle-chat", "CREATE_COMPLETE", {"Image": "some"})
    assert "no parameter EndpointState" in turn(aws, OFF)["detail"]
    aws.stacks.clear()
    aws.endpoints["chat"].tags["peagle-sm:stack"] = "Peagle-other"
    assert turn(aws, OFF)["state"] == "refused"
    assert did(aws) == []


def test_an_old_limit_never_meets_a_new_endpoint_of_that_name() -> None:
    aws = world()
    before = (START - MINUTE).isoformat()
    assert turn(aws, {**OFF, "expires_at": before})["state"] == "refused"
    assert did(aws) == []
    assert turn(aws, {**OFF, "expires_at": (START + MINUTE).isoformat()})["state"] == "in-progress"


# --- on -----------------------------------------------------------------------------------------------


def asleep(status: str = "UPDATE_COMPLETE", state: str = "off") -> FakeAws:
    aws = world(status, state)
    aws.register.write("chat", tags=dict(aws.endpoints.pop("chat").tags))
    return aws


@pytest.mark.parametrize("status", UPDATABLE)
def test_on_updates_a_stack_that_is_off(status: str) -> None:
    aws = asleep(status)
    assert (turn(aws, ON)["state"], did(aws)) == ("in-progress", ["stack-on"])
    assert (turn(aws, ON)["state"], did(aws)) == ("done", ["stack-on"])


def test_on_mends_a_stack_whose_endpoint_was_deleted_behind_its_back() -> None:
    aws = asleep(state="on")
    assert turn(aws, ON)["started"] is False
    turn(aws, ON)
    assert did(aws) == ["stack-off", "stack-on"]


def test_on_waits_for_a_deletion_to_end() -> None:
    aws = world("UPDATE_COMPLETE", state="off", status="Deleting")
    assert (turn(aws, ON)["state"], did(aws)) == ("in-progress", [])


@pytest.mark.parametrize("status", BROKEN)
def test_on_refuses_a_broken_stack(status: str) -> None:
    aws = asleep(status)
    assert (turn(aws, ON)["state"], did(aws)) == ("refused", [])
    aws.stacks.clear()
    assert turn(aws, ON)["state"] == "refused"


# --- without a stack ----------------------------------------------------------------------------------


def direct(created_at: str = START.isoformat(), arn: str = arn_of("chat"), **more: str) -> dict[str, str]:
    return {"action": "off", "endpoint": "chat", "arn": arn, "created_at": created_at, **more}


def alone(status: str = "InService") -> FakeAws:
    aws = FakeAws()
    aws.add("chat", status=status)
    return aws


def test_off_deletes_an_endpoint_without_a_stack_and_then_its_schedule() -> None:
    aws = alone()
    aws.schedules = {"peagle-chat-lifetime": START + timedelta(hours=8)}
    event = direct(expires_at=(START + timedelta(hours=8)).isoformat())
    assert (turn(aws, event)["state"], did(aws), len(aws.schedules)) == ("in-progress", ["delete"], 1)
    aws.now += 5 * MINUTE
    assert (turn(aws, event)["state"], aws.schedules) == ("done", {})


def test_the_schedules_of_its_components_go_with_it_and_a_later_one_stays() -> None:
    aws = FakeAws()
    ends = START + timedelta(hours=8)
    late = {"peagle-chat-lifetime-hard-3": ends + timedelta(hours=1)}
    aws.schedules = {f"peagle-chat-lifetime{end}": ends for end in ("", "-hard-1", "-hard-2")} | late
    assert (turn(aws, direct(expires_at=ends.isoformat()))["state"], aws.schedules) == ("done", late)


def test_off_without_a_stack_leaves_another_creation_or_arn_alone() -> None:
    for event in (direct(created_at=(START - MINUTE).isoformat()), direct(arn=arn_of("chat2"))):
        aws = alone()
        assert (turn(aws, event)["state"], did(aws)) == ("done", [])


def test_off_without_a_stack_refuses_what_a_stack_owns_and_what_is_not_said() -> None:
    aws = world()
    assert turn(aws, direct())["state"] == "refused"
    assert turn(aws, direct(created_at=""))["state"] == "refused"
    assert turn(aws, {"action": "off", "endpoint": "chat"})["state"] == "refused"
    assert did(aws) == []


def test_components_and_scalable_targets_go_first() -> None:
    aws = alone()
    aws.endpoints["chat"].components = ["copy"]
    aws.targets = {"endpoint/chat/variant/AllTraffic": "sagemaker:variant:DesiredInstanceCount"}
    turn(aws, direct())
    assert did(aws) == ["deregister", "delete-component"]
    turn(aws, direct())
    assert did(aws) == ["deregister", "delete-component", "delete"]


def test_every_parameter_is_passed() -> None:
    aws = world()
    turn(aws, OFF)
    assert aws.sent == [
        {"ParameterKey": "EndpointState", "ParameterValue": "off"},
        {"ParameterKey": "Image", "UsePreviousValue": True},
    ]
