"""The switch in each status of a stack and of its endpoint."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from itertools import count
from typing import Any

import pytest
from botocore.exceptions import ClientError, ReadTimeoutError

from peagle_guard.aws import NoUpdates, Stack
from peagle_guard.records import BUSY, OffBy
from peagle_guard.sweeper import sweep
from peagle_guard.switch import turn
from tests.guard.fake_aws import MINUTE, SETTINGS, START, FakeAws, arn_of
from tests.service.aws_errors import throttled

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


def identified(**changes: str) -> dict[str, str]:
    """An event of the sweep for an endpoint in a stack: it says which endpoint is meant."""
    named = {"endpoint": "chat", "arn": arn_of("chat"), "created_at": START.isoformat()}
    return {**OFF, **named, **changes}


@pytest.mark.parametrize(
    "other", [{"created_at": (START - MINUTE).isoformat()}, {"arn": arn_of("chat2")}], ids=["older", "arn"]
)
@pytest.mark.parametrize("status", ["CREATE_COMPLETE", "ROLLBACK_COMPLETE"])
def test_an_event_about_an_older_endpoint_touches_neither_the_next_one_nor_its_stack(
    status: str, other: dict[str, str]
) -> None:
    aws = world(status)
    assert (turn(aws, identified(**other))["state"], did(aws)) == ("done", [])
    assert turn(aws, identified())["state"] == "in-progress"


def test_a_stack_is_turned_off_only_for_its_own_endpoint() -> None:
    aws = world()
    aws.add("code", stack="Peagle-code")
    assert turn(aws, identified(stack="Peagle-code"))["state"] == "refused"
    assert did(aws) == []


def test_a_stack_whose_endpoint_was_deleted_by_hand_is_turned_off_all_the_same() -> None:
    aws = world()
    del aws.endpoints["chat"]
    assert (turn(aws, OFF)["state"], did(aws)) == ("in-progress", ["stack-off"])
    aws.stacks.clear()
    assert turn(aws, OFF)["state"] == "done"


def test_where_cloudformation_finds_nothing_to_update_the_endpoint_is_deleted_all_the_same() -> None:
    aws = world()
    aws.faults["UpdateStack"] = [NoUpdates()]
    assert (turn(aws, OFF)["state"], did(aws)) == ("in-progress", ["delete"])


def test_a_stack_that_failed_with_components_and_autoscaling_is_dismantled_step_by_step() -> None:
    aws = world("UPDATE_ROLLBACK_FAILED")
    aws.endpoints["chat"].components = ["one"]
    aws.targets = {key: value for key, value in {**COPIES, **VARIANT}.items() if not key.endswith("two")}
    for _ in range(3):
        assert turn(aws, OFF)["state"] == "in-progress"
    assert did(aws) == ["deregister", "delete-component", "delete", "deregister"]
    aws.now += 5 * MINUTE
    assert turn(aws, OFF)["state"] == "done"


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


def test_a_schedule_that_a_redeploy_has_armed_since_stays_although_it_ends_sooner() -> None:
    aws = FakeAws()
    name, ends, seen_at = "peagle-chat-lifetime", START + timedelta(hours=48), START + timedelta(hours=1)
    sooner = {name: START + timedelta(hours=4)}
    aws.schedules, aws.rewritten = dict(sooner), {name: seen_at + 10 * MINUTE}
    event = direct(expires_at=ends.isoformat(), last_seen_at=seen_at.isoformat())
    assert (turn(aws, event)["state"], aws.schedules) == ("done", sooner)
    aws.rewritten = {name: seen_at - MINUTE}
    assert (turn(aws, event)["state"], aws.schedules) == ("done", {})


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


VARIANT = {"endpoint/chat/variant/AllTraffic": "sagemaker:variant:DesiredInstanceCount"}
COPIES = {
    f"inference-component/{name}": "sagemaker:inference-component:DesiredCopyCount" for name in ("one", "two")
}


def dismantled() -> FakeAws:
    """Two components that scale, on an endpoint that the sweep has decided to turn off."""
    aws = alone()
    aws.endpoints["chat"].components = ["one", "two"]
    aws.targets = {**COPIES, **VARIANT}
    aws.register.write("chat", created_at=START, off_at=START, off_by=OffBy.IDLE)
    return aws


def test_components_and_their_scalable_targets_go_first() -> None:
    aws = dismantled()
    aws.hook = lambda operation: (
        pytest.fail("before it was recorded")
        if operation in ("DeregisterScalableTarget", "DeleteInferenceComponent")
        and not aws.register.records["chat"].parting
        else None
    )
    turn(aws, direct())
    assert did(aws) == ["deregister", "deregister", "delete-component", "delete-component"]
    turn(aws, direct())
    assert did(aws)[4:] == ["delete", "deregister"]
    assert aws.targets == {}


def test_a_deletion_that_aws_refuses_leaves_the_autoscaling_alone() -> None:
    aws = alone()
    aws.targets = dict(VARIANT)
    aws.faults["DeleteEndpoint"] = [throttled("DeleteEndpoint")]
    with pytest.raises(ClientError, match="Rate exceeded"):
        turn(aws, direct())
    assert aws.targets == VARIANT
    aws.faults["DeregisterScalableTarget"] = [throttled("DeregisterScalableTarget")]
    with pytest.raises(ClientError, match="Rate exceeded"):
        turn(aws, direct())
    assert (turn(aws, direct())["state"], aws.targets) == ("in-progress", {})


@pytest.mark.parametrize(
    ("operation", "done", "parting"),
    [
        ("DeregisterScalableTarget", 0, False),
        ("DeregisterScalableTarget", 1, True),
        ("DeleteInferenceComponent", 0, True),
        ("DeleteInferenceComponent", 1, True),
    ],
)
def test_what_has_begun_to_be_dismantled_is_recorded_and_carried_through(
    operation: str, done: int, parting: bool
) -> None:
    """A first call that AWS refuses leaves the endpoint whole, so traffic still keeps it."""
    aws = dismantled()
    calls = count()

    def fail(called: str) -> None:
        if called == operation and next(calls) == done:
            raise throttled(operation)

    aws.hook = fail
    with pytest.raises(ClientError, match="Rate exceeded"):
        turn(aws, direct())
    assert aws.register.records["chat"].parting is parting
    aws.hook = None
    aws.traffic_points("chat", START, START + 10 * MINUTE)
    for minutes in (5, 10, 15):
        aws.now = START + minutes * MINUTE
        assert sweep(aws, SETTINGS, aws.now).failures == ()
    assert (aws.endpoints == {}) is parting
    if not parting:
        assert aws.targets == {**COPIES, **VARIANT}


def test_what_is_half_dismantled_is_carried_through_although_later_tries_fail_at_once() -> None:
    aws = dismantled()
    aws.faults["DeregisterScalableTarget"] = []
    calls = count()

    def fail(called: str) -> None:
        if called == "DeleteInferenceComponent" and next(calls) >= 1:
            raise throttled("DeleteInferenceComponent")

    aws.hook = fail
    for _ in range(3):
        with pytest.raises(ClientError, match="Rate exceeded"):
            turn(aws, direct())
        assert aws.register.records["chat"].parting


def test_an_answer_that_is_lost_counts_as_begun() -> None:
    aws = dismantled()
    aws.faults["DeregisterScalableTarget"] = [ReadTimeoutError(endpoint_url="https://scaling")]
    with pytest.raises(ReadTimeoutError):
        turn(aws, direct())
    assert aws.register.records["chat"].parting


# --- the end of a lifetime and `keep` ------------------------------------------------------------------


def at_its_end(**record: Any) -> tuple[FakeAws, dict[str, str]]:
    aws = world()
    aws.now = ends = START + timedelta(hours=8)
    aws.schedules = {"peagle-chat-lifetime": ends}
    aws.register.write("chat", created_at=START, **record)
    return aws, {**OFF, "expires_at": ends.isoformat()}


@pytest.mark.parametrize("tried", [{}, {"off_at": START, "off_by": OffBy.IDLE}])
def test_the_end_of_a_lifetime_is_claimed_before_the_stack_is_updated(tried: dict[str, Any]) -> None:
    aws, event = at_its_end(**tried)
    assert (turn(aws, event)["state"], did(aws)) == ("in-progress", ["stack-off"])
    record = aws.register.records["chat"]
    assert (record.off_by, record.off_at) == (OffBy.LIFETIME, aws.now)


@pytest.mark.parametrize("where", ["schedule", "register"])
def test_an_event_of_a_limit_that_keep_has_moved_is_refused(where: str) -> None:
    aws, event = at_its_end()
    later = aws.now + timedelta(hours=3)
    if where == "schedule":
        aws.schedules["peagle-chat-lifetime"] = later
    else:
        aws.register.write("chat", expires_at=later, keep_until=later)
    answer = turn(aws, event)
    assert (answer["state"], did(aws)) == ("refused", [])
    assert answer["detail"] == "the lifetime of chat was moved to 2026-11-16T19:00:00+00:00"
    # The event of the new end is obeyed.
    aws.now = later
    assert turn(aws, {**OFF, "expires_at": later.isoformat()})["state"] == "in-progress"


def test_keep_and_the_end_of_a_lifetime_never_both_succeed() -> None:
    """`keep` writes the register, on the version that it read, at each call of the switch in turn."""
    kept = []
    for position in count():
        aws, event = at_its_end()
        calls = count()

        def keep(
            operation: str, aws: FakeAws = aws, calls: Iterator[int] = calls, position: int = position
        ) -> None:
            if next(calls) != position:
                return
            record = aws.register.records["chat"]
            if record.off_at is None:
                later = aws.now + timedelta(hours=3)
                aws.register.write("chat", keep_until=later, expires_at=later)

        aws.hook = keep
        turn(aws, event)
        if next(calls) <= position:
            break
        record = aws.register.records["chat"]
        kept.append(record.keep_until is not None)
        assert did(aws) == ([] if record.keep_until else ["stack-off"]), position
    assert True in kept
    assert False in kept


def test_a_lifetime_ends_also_where_the_register_cannot_be_read() -> None:
    aws, event = at_its_end()
    aws.faults["GetItem"] = [throttled("GetItem")] * 9
    assert (turn(aws, event)["state"], did(aws)) == ("in-progress", ["stack-off"])


def test_a_lease_of_an_older_endpoint_does_not_prolong_the_next() -> None:
    aws, event = at_its_end(expires_at=START + timedelta(hours=20))
    aws.change("chat", created_at=START + timedelta(hours=1))
    assert (turn(aws, event)["state"], did(aws)) == ("in-progress", ["stack-off"])
    assert aws.register.records["chat"].created_at == START + timedelta(hours=1)


def test_every_parameter_is_passed() -> None:
    aws = world()
    turn(aws, OFF)
    assert aws.sent == [
        {"ParameterKey": "EndpointState", "ParameterValue": "off"},
        {"ParameterKey": "Image", "UsePreviousValue": True},
    ]
