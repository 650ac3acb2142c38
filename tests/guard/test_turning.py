"""The switch in each status of a stack and of its endpoint."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count
from typing import Any

import pytest
from botocore.exceptions import ClientError, ReadTimeoutError

from peagle_guard.aws import NoUpdates
from peagle_guard.records import BUSY, OffBy
from peagle_guard.sweeper import sweep
from peagle_guard.switch import turn
from tests.guard.by_hand import HOUR, MINUTE, START, AwsByHand, arn_of, set_up
from tests.guard.simulator.fake_services.cloudformation import BROKEN
from tests.guard.simulator.making import plan
from tests.guard.simulator.people import SETTINGS
from tests.guard.simulator.worlds.traffic import Traffic
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
IN_PROGRESS = (
    "CREATE_IN_PROGRESS",
    "UPDATE_IN_PROGRESS",
    "UPDATE_COMPLETE_CLEANUP_IN_PROGRESS",
    "UPDATE_ROLLBACK_IN_PROGRESS",
    "UPDATE_ROLLBACK_COMPLETE_CLEANUP_IN_PROGRESS",
    "ROLLBACK_IN_PROGRESS",
    "DELETE_IN_PROGRESS",
)


def world(stack_status: str = "CREATE_COMPLETE", state: str = "on", status: str = "InService") -> AwsByHand:
    aws = set_up(status=status, stack="Peagle-chat")
    aws.stacks["Peagle-chat"].status, aws.stacks["Peagle-chat"].state = stack_status, state
    return aws


@pytest.mark.parametrize("status", UPDATABLE)
def test_off_updates_a_stack_that_can_be_updated(status: str) -> None:
    aws = world(status)
    answer = turn(aws, OFF)
    assert (answer["state"], answer["started"], aws.did) == ("in-progress", True, ["stack-off"])
    # Asked again while it is on its way, it waits; once the endpoint is gone it is done.
    assert turn(aws, OFF)["state"] == "in-progress"
    aws.now += 5 * MINUTE
    assert (turn(aws, OFF)["state"], aws.did) == ("done", ["stack-off"])


@pytest.mark.parametrize(
    ("stack_status", "state"),
    # Also where the stack says off: UPDATE_COMPLETE is not believed while the endpoint exists.
    [*((status, "on") for status in sorted(BROKEN)), ("UPDATE_COMPLETE", "off"), ("", "on")],
)
def test_off_deletes_the_endpoint_itself_where_no_stack_can_be_updated(stack_status: str, state: str) -> None:
    aws = world(stack_status, state)
    if not stack_status:
        aws.stacks.clear()
    assert (turn(aws, OFF)["state"], aws.did) == ("in-progress", ["delete"])
    aws.now += 5 * MINUTE
    assert turn(aws, OFF)["state"] == "done"


@pytest.mark.parametrize(
    ("stack_status", "status", "actions"),
    [
        *((busy, "InService", (OFF, ON)) for busy in sorted(IN_PROGRESS)),
        # CloudFormation would try the deletion once, in its clean-up, and then forget the endpoint.
        *(
            (stack, busy, (OFF,))
            for stack in ("CREATE_COMPLETE", "ROLLBACK_COMPLETE")
            for busy in sorted(BUSY)
        ),
        ("UPDATE_COMPLETE", "Deleting", (OFF, ON)),
    ],
)
def test_what_aws_would_refuse_now_is_waited_for(
    stack_status: str, status: str, actions: tuple[dict[str, str], ...]
) -> None:
    aws = world(stack_status, status=status)
    for action in actions:
        answer = turn(aws, action)
        assert (answer["state"], answer["started"], aws.did) == ("in-progress", False, [])


def test_off_refuses_stacks_and_endpoints_that_are_not_ours() -> None:
    aws = world()
    aws.add("code", stack="Peagle-code")
    for event in (
        {"action": "off", "stack": "production"},
        {"action": "burn", "stack": "Peagle-chat"},
        {"action": "off", "endpoint": "chat"},
        identified(stack="Peagle-code"),
        direct(),  # a stack owns it
        direct(created_at=""),
    ):
        assert turn(aws, event)["state"] == "refused", event
    aws.stacks["Peagle-chat"].state = ""
    assert "no parameter EndpointState" in turn(aws, OFF)["detail"]
    aws.stacks.clear()
    aws.endpoints["chat"].tags["peagle-sm:stack"] = "Peagle-other"
    assert turn(aws, OFF)["state"] == "refused"
    assert aws.did == []


def test_an_old_limit_never_meets_a_new_endpoint_of_that_name() -> None:
    aws = world()
    before = (START - MINUTE).isoformat()
    assert turn(aws, {**OFF, "expires_at": before})["state"] == "refused"
    assert aws.did == []
    assert turn(aws, {**OFF, "expires_at": (START + MINUTE).isoformat()})["state"] == "in-progress"


def identified(**changes: str) -> dict[str, str]:
    """An event of the sweep for an endpoint in a stack: it says which endpoint is meant."""
    named = {"endpoint": "chat", "arn": arn_of("chat"), "created_at": START.isoformat()}
    return {**OFF, **named, **changes}


@pytest.mark.parametrize(
    "other", [{"created_at": (START - MINUTE).isoformat()}, {"arn": arn_of("chat2")}], ids=["older", "arn"]
)
@pytest.mark.parametrize("status", ["CREATE_COMPLETE", "ROLLBACK_COMPLETE", ""])
def test_an_event_about_an_older_endpoint_touches_neither_the_next_one_nor_its_stack(
    status: str, other: dict[str, str]
) -> None:
    aws, event = (world(status), identified) if status else (set_up(), direct)
    assert (turn(aws, event(**other))["state"], aws.did) == ("done", [])
    assert turn(aws, event())["state"] == "in-progress"


def test_a_stack_whose_endpoint_was_deleted_by_hand_is_turned_off_all_the_same() -> None:
    aws = world()
    aws.remove("chat")
    assert (turn(aws, OFF)["state"], aws.did) == ("in-progress", ["stack-off"])
    aws.stacks.clear()
    assert turn(aws, OFF)["state"] == "done"


def test_where_cloudformation_finds_nothing_to_update_the_endpoint_is_deleted_all_the_same() -> None:
    aws = world()
    aws.faults["UpdateStack"] = [NoUpdates()]
    assert (turn(aws, OFF)["state"], aws.did) == ("in-progress", ["delete"])


def test_a_stack_that_failed_with_components_and_autoscaling_is_dismantled_step_by_step() -> None:
    aws = dismantled("Peagle-chat")
    aws.stacks["Peagle-chat"].status = "UPDATE_ROLLBACK_FAILED"
    for _ in range(3):
        assert turn(aws, OFF)["state"] == "in-progress"
    assert aws.did == [*["deregister"] * 2, *["delete-component"] * 2, "delete", "deregister"]
    aws.now += 5 * MINUTE
    assert turn(aws, OFF)["state"] == "done"


# --- on -----------------------------------------------------------------------------------------------


def asleep(status: str = "UPDATE_COMPLETE", state: str = "off") -> AwsByHand:
    aws = world(status, state)
    aws.register.write("chat", tags=dict(aws.endpoints["chat"].tags))
    aws.remove("chat")
    return aws


@pytest.mark.parametrize("status", UPDATABLE)
def test_on_updates_a_stack_that_is_off(status: str) -> None:
    aws = asleep(status)
    assert (turn(aws, ON)["state"], aws.did) == ("in-progress", ["stack-on"])
    aws.now += 5 * MINUTE
    assert (turn(aws, ON)["state"], aws.did) == ("done", ["stack-on"])


def test_on_mends_a_stack_whose_endpoint_was_deleted_behind_its_back() -> None:
    aws = asleep(state="on")
    assert turn(aws, ON)["started"] is False
    aws.now += 5 * MINUTE
    turn(aws, ON)
    assert aws.did == ["stack-off", "stack-on"]


@pytest.mark.parametrize("status", sorted(BROKEN))
def test_on_refuses_a_broken_stack(status: str) -> None:
    aws = asleep(status)
    assert (turn(aws, ON)["state"], aws.did) == ("refused", [])
    aws.stacks.clear()
    assert turn(aws, ON)["state"] == "refused"


# --- without a stack ----------------------------------------------------------------------------------


def direct(created_at: str = START.isoformat(), arn: str = arn_of("chat"), **more: str) -> dict[str, str]:
    return {"action": "off", "endpoint": "chat", "arn": arn, "created_at": created_at, **more}


def test_off_deletes_an_endpoint_without_a_stack_and_then_its_schedules_but_no_later_one() -> None:
    aws, ends = set_up(), START + 8 * HOUR
    aws.arm({f"peagle-chat-lifetime{end}": ends for end in ("", "-hard-1", "-hard-2")})
    aws.arm({"peagle-chat-lifetime-hard-3": ends + HOUR})
    event = direct(expires_at=ends.isoformat())
    assert (turn(aws, event)["state"], aws.did, len(aws.schedules)) == ("in-progress", ["delete"], 4)
    aws.now += 5 * MINUTE
    assert (turn(aws, event)["state"], aws.schedules) == ("done", {"peagle-chat-lifetime-hard-3"})


def test_a_schedule_that_a_redeploy_has_armed_since_stays_although_it_ends_sooner() -> None:
    aws = AwsByHand()
    ends, seen_at = START + 48 * HOUR, START + HOUR
    sooner = {"peagle-chat-lifetime": START + 4 * HOUR}
    event = direct(expires_at=ends.isoformat(), last_seen_at=seen_at.isoformat())
    for written_at, stays in ((seen_at + 10 * MINUTE, set(sooner)), (seen_at - MINUTE, set())):
        aws.arm(sooner, written_at)
        assert (turn(aws, event)["state"], aws.schedules) == ("done", stays)


VARIANT = {"endpoint/chat/variant/AllTraffic": "sagemaker:variant:DesiredInstanceCount"}
COPIES = {
    f"inference-component/chat-copy-{number}": "sagemaker:inference-component:DesiredCopyCount"
    for number in (0, 1)
}


def dismantled(stack: str = "") -> AwsByHand:
    """Two components that scale, on an endpoint that the sweep has decided to turn off."""
    aws = AwsByHand()
    copies = (("chat-copy-0", Traffic()), ("chat-copy-1", Traffic()))
    aws.add(like=plan(components=True, scales=True, traffic=copies), stack=stack)
    aws.targets.update(VARIANT)
    aws.register.write("chat", created_at=START, off_at=START, off_by=OffBy.IDLE)
    return aws


def test_components_and_their_scalable_targets_go_first() -> None:
    aws = dismantled()
    aws.account.hook = lambda operation: (
        pytest.fail("before it was recorded")
        if operation in ("DeregisterScalableTarget", "DeleteInferenceComponent")
        and not aws.register.records["chat"].parting
        else None
    )
    turn(aws, direct())
    assert aws.did == ["deregister", "deregister", "delete-component", "delete-component"]
    turn(aws, direct())
    assert aws.did[4:] == ["delete", "deregister"]
    assert aws.targets == {}


def test_a_deletion_that_aws_refuses_leaves_the_autoscaling_set_up() -> None:
    aws = set_up()
    aws.targets.update(VARIANT)
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

    aws.account.hook = fail
    with pytest.raises(ClientError, match="Rate exceeded"):
        turn(aws, direct())
    assert aws.register.records["chat"].parting is parting
    aws.account.hook = None
    aws.serve("chat", START, START + 10 * MINUTE, "chat-copy-1")
    for minutes in (5, 10, 15):
        aws.now = START + minutes * MINUTE
        assert sweep(aws, SETTINGS, aws.now).failures == ()
    assert (aws.endpoints == {}) is parting
    if not parting:
        assert aws.targets == {**COPIES, **VARIANT}


def test_what_is_half_dismantled_is_carried_through_although_later_tries_fail_at_once() -> None:
    aws = dismantled()
    aws.faults["DeleteInferenceComponent"] = [throttled("DeleteInferenceComponent")] * 3
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


def at_its_end(**record: Any) -> tuple[AwsByHand, dict[str, str]]:
    aws = world()
    aws.now = ends = START + 8 * HOUR
    aws.arm({"peagle-chat-lifetime": ends})
    aws.register.write("chat", created_at=START, **record)
    return aws, {**OFF, "expires_at": ends.isoformat()}


@pytest.mark.parametrize("tried", [{}, {"off_at": START, "off_by": OffBy.IDLE}])
def test_the_end_of_a_lifetime_is_claimed_before_the_stack_is_updated(tried: dict[str, Any]) -> None:
    aws, event = at_its_end(**tried)
    assert (turn(aws, event)["state"], aws.did) == ("in-progress", ["stack-off"])
    record = aws.register.records["chat"]
    assert (record.off_by, record.off_at) == (OffBy.LIFETIME, aws.now)


@pytest.mark.parametrize("where", ["schedule", "register"])
def test_an_event_of_a_limit_that_keep_has_moved_is_refused(where: str) -> None:
    aws, event = at_its_end()
    later = aws.now + 3 * HOUR
    if where == "schedule":
        aws.arm({"peagle-chat-lifetime": later})
    else:
        aws.register.write("chat", expires_at=later, keep_until=later)
    answer = turn(aws, event)
    assert (answer["state"], aws.did) == ("refused", [])
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
            operation: str, aws: AwsByHand = aws, calls: Iterator[int] = calls, position: int = position
        ) -> None:
            if next(calls) != position:
                return
            record = aws.register.records["chat"]
            if record.off_at is None:
                later = aws.now + 3 * HOUR
                aws.register.write("chat", keep_until=later, expires_at=later)

        aws.account.hook = keep
        turn(aws, event)
        if next(calls) <= position:
            break
        record = aws.register.records["chat"]
        kept.append(record.keep_until is not None)
        assert aws.did == ([] if record.keep_until else ["stack-off"]), position
    assert True in kept
    assert False in kept


def test_a_lifetime_ends_also_where_the_register_cannot_be_read() -> None:
    aws, event = at_its_end()
    aws.faults["GetItem"] = [throttled("GetItem")] * 9
    assert (turn(aws, event)["state"], aws.did) == ("in-progress", ["stack-off"])


def test_a_lease_of_an_older_endpoint_does_not_prolong_the_next() -> None:
    aws, event = at_its_end(expires_at=START + 20 * HOUR)
    aws.change("chat", created_at=START + HOUR)
    assert (turn(aws, event)["state"], aws.did) == ("in-progress", ["stack-off"])
    assert aws.register.records["chat"].created_at == START + HOUR


def test_every_parameter_is_passed() -> None:
    aws = world()
    turn(aws, OFF)
    assert (aws.stacks["Peagle-chat"].state, aws.stacks["Peagle-chat"].image) == ("off", "chosen")
