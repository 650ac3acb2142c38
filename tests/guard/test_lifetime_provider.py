"""Custom::PeagleLifetime, and waking without a stack: the dead-man's switch is armed first."""

from __future__ import annotations

import json
from datetime import datetime
from typing import Any

import pytest
from botocore.exceptions import ClientError

from peagle_guard.cfn_response import Made, ProviderError
from peagle_guard.lifetime_provider import (
    Arming,
    NotArmed,
    provide,
    schedules,
    wake,
)
from peagle_sm.core.plan.tags_and_schedules import hard_name, lifetime_schedule, schedule_name
from tests.guard.by_hand import HOUR, START, AwsByHand, set_up, tags_for
from tests.guard.simulator.fake_services.clients import SchedulerClient
from tests.guard.simulator.making import plan
from tests.guard.simulator.people import SETTINGS
from tests.service.aws_errors import client_error

TOKEN = "arn:aws:lambda:us-east-1:123456789012:function:peagle-guard-lifetime"


PREFIX = "peagle-chat-lifetime"


def deploy(aws: AwsByHand, request: dict[str, Any], now: datetime = START) -> Made:
    return provide(aws.scheduler, aws.sagemaker, aws.register, SETTINGS, request, now)


class Deaf(SchedulerClient):
    """A Scheduler that keeps something else than it was sent."""

    def get_schedule(self, **request: Any) -> dict[str, Any]:
        return {**super().get_schedule(**request), "State": "DISABLED"}


def event(kind: str = "Create", **properties: Any) -> dict[str, Any]:
    request = {
        "ServiceToken": TOKEN,
        "EndpointName": "chat",
        "StackName": "Peagle-chat",
        "MaxLifetimeHours": "8",
        "ScheduleName": PREFIX,
        "Nonce": "12345678",
    }
    answer = {"RequestType": kind, "ResourceProperties": {**request, **properties}}
    return answer if kind == "Create" else {**answer, "PhysicalResourceId": PREFIX}


def test_the_stacks_switch_comes_first_and_half_an_hour_later_the_endpoint_itself() -> None:
    aws = AwsByHand()
    created = deploy(aws, event())
    assert created.physical_id == PREFIX
    assert created.attributes["ExpiresAt"] == (START + 8 * HOUR).isoformat(timespec="seconds")
    soft, hard = (aws.scheduler.schedules[f"{PREFIX}{suffix}"] for suffix in ("", "-hard"))
    assert soft["StartDate"] == START + 8 * HOUR
    assert hard["StartDate"] == START + 8.5 * HOUR
    for schedule in (soft, hard):
        assert schedule["ScheduleExpression"] == "rate(10 minutes)"
        assert schedule["EndDate"] - schedule["StartDate"] == 24 * HOUR
        assert schedule["Target"]["DeadLetterConfig"] == {"Arn": SETTINGS.dead_letters_arn}
        assert schedule["Target"]["RoleArn"] == SETTINGS.scheduler_role_arn
    assert soft["Target"]["Arn"] == "arn:aws:lambda:us-east-1:123456789012:function:peagle-guard-switch"
    assert json.loads(soft["Target"]["Input"]) == {
        "action": "off",
        "stack": "Peagle-chat",
        "expires_at": (START + 8 * HOUR).isoformat(),
    }
    assert hard["Target"]["Arn"] == "arn:aws:scheduler:::aws-sdk:sagemaker:deleteEndpoint"
    assert json.loads(hard["Target"]["Input"]) == {"EndpointName": "chat"}


def test_components_are_deleted_before_the_endpoint_and_forgotten_with_it() -> None:
    aws = AwsByHand()
    deploy(aws, event(InferenceComponentNames=["one", "two"]))
    assert list(aws.scheduler.schedules) == [PREFIX + end for end in ("", "-hard-1", "-hard-2", "-hard")]
    second = aws.scheduler.schedules["peagle-chat-lifetime-hard-2"]["Target"]
    assert second["Arn"].endswith(":deleteInferenceComponent")
    assert json.loads(second["Input"]) == {"InferenceComponentName": "two"}
    deploy(aws, event("Delete", InferenceComponentNames=["one"]))
    assert aws.scheduler.schedules == {}


def test_without_a_stack_components_do_not_block_the_last_line_either() -> None:
    ends = START + 8 * HOUR
    arming = Arming(PREFIX, "chat", ends, "arn:aws:iam::1:role/r", "queue", components=("copy",))
    component, endpoint = schedules(arming)
    assert (component["Name"], component["StartDate"]) == ("peagle-chat-lifetime-hard-1", ends)
    assert json.loads(component["Target"]["Input"]) == {"InferenceComponentName": "copy"}
    assert (endpoint["Name"], endpoint["StartDate"]) == (PREFIX, ends)


def test_what_an_older_endpoint_of_the_name_left_does_not_end_the_new_one() -> None:
    """It had three components; the new one has one, under the third one's name."""
    aws = AwsByHand()
    older = event(InferenceComponentNames=["one", "two", "three"])
    deploy(aws, older)
    created = event(InferenceComponentNames=["three"])
    deploy(aws, created)
    assert sorted(aws.scheduler.schedules) == [f"{PREFIX}{end}" for end in ("", "-hard", "-hard-1")]
    deploy(aws, older)
    aws.account.plans["chat"] = plan(name="chat")
    aws.register.write("chat", tags=tags_for("chat"))
    woken(aws)
    assert list(aws.scheduler.schedules) == [PREFIX]


def test_a_new_deploy_rewrites_the_schedules_and_the_sweeper_knows() -> None:
    aws = AwsByHand()
    deploy(aws, event())
    aws.register.write("chat", created_at=START, keep_until=START + HOUR)
    later = START + 5 * HOUR
    deploy(aws, event("Update", Nonce="87654321"), later)
    assert aws.scheduler.schedules[PREFIX]["StartDate"] == later + 8 * HOUR
    assert aws.register.records["chat"].expires_at == later + 8 * HOUR
    assert aws.register.records["chat"].keep_until == START + HOUR


@pytest.mark.parametrize("kind", ["Update", "Create"])
def test_a_lease_outlasts_a_deploy_and_a_pause_by_hand(kind: str) -> None:
    """The end is the later of both, and schedules and register agree on it."""
    aws = AwsByHand()
    until = START + 20 * HOUR
    aws.register.write("chat", created_at=START, keep_until=until, expires_at=until, paused=kind == "Create")
    created = deploy(aws, event(kind), START + HOUR)
    assert created.attributes["ExpiresAt"] == until.isoformat(timespec="seconds")
    soft, hard = (aws.scheduler.schedules[f"{PREFIX}{suffix}"] for suffix in ("", "-hard"))
    assert (soft["StartDate"], hard["StartDate"]) == (until, until + HOUR / 2)
    assert json.loads(soft["Target"]["Input"])["expires_at"] == until.isoformat()
    assert aws.register.records["chat"].expires_at == until


@pytest.mark.parametrize(
    ("record", "expires_at"),
    [
        ({"expires_at": START + 50 * HOUR}, START + 9 * HOUR),  # no lease
        ({"keep_until": START + 20 * HOUR, "gone_at": START + HOUR}, None),  # of an endpoint that is gone
    ],
)
def test_a_shorter_lifetime_that_no_lease_holds_off_shortens_schedule_and_register(
    record: dict[str, datetime], expires_at: datetime | None
) -> None:
    aws = AwsByHand()
    aws.register.write("chat", created_at=START, **record)
    for kind in ("Update", "Create"):
        deploy(aws, event(kind), START + HOUR)
        assert aws.scheduler.schedules[PREFIX]["StartDate"] == START + 9 * HOUR
        assert aws.register.records["chat"].expires_at == expires_at


@pytest.mark.parametrize("status", ["InService", "Updating", "Deleting"])
def test_the_schedules_of_an_endpoint_that_the_cleanup_left_behind_stay_armed(status: str) -> None:
    """CloudFormation tries three times to delete it, skips it, and deletes the lifetime next."""
    aws = AwsByHand()
    deploy(aws, event(InferenceComponentNames=["one"]))
    armed = dict(aws.scheduler.schedules)
    remove = event("Delete", InferenceComponentNames=["one"])
    aws.add(status=status)
    deploy(aws, remove)
    assert aws.scheduler.schedules == armed
    aws.remove("chat")
    deploy(aws, remove)
    assert aws.scheduler.schedules == {}


def test_a_schedule_of_another_name_is_not_the_last_line_of_an_endpoint() -> None:
    aws = AwsByHand()
    deploy(aws, event(ScheduleName="peagle-old"))
    remove = {**event("Delete"), "PhysicalResourceId": "peagle-old"}
    aws.add()
    deploy(aws, remove)
    assert aws.scheduler.schedules == {}


def test_an_update_keeps_the_schedule_of_a_component_that_its_cleanup_will_delete() -> None:
    """The old component would block the deletion of the endpoint if the cleanup leaves it behind."""
    aws = AwsByHand()
    deploy(aws, event(InferenceComponentNames=["a", "b"]))
    update = event("Update", InferenceComponentNames=["c"])
    update["OldResourceProperties"] = {"InferenceComponentNames": ["a"]}
    deploy(aws, update, START + HOUR)
    ended = {
        json.loads(schedule["Target"]["Input"])["InferenceComponentName"]: schedule["StartDate"]
        for schedule in aws.scheduler.schedules.values()
        if schedule["Target"]["Arn"].endswith(":deleteInferenceComponent")
    }
    assert ended == dict.fromkeys(["c", "a"], START + 9.5 * HOUR)


def test_what_does_not_read_back_is_not_armed() -> None:
    aws = AwsByHand()
    aws.scheduler = Deaf(aws.account, {})
    with pytest.raises(NotArmed, match="peagle-chat-lifetime does not read back"):
        deploy(aws, event())


def test_delete_removes_both_and_is_done_when_there_are_none() -> None:
    aws = AwsByHand()
    deploy(aws, event())
    for _ in range(2):
        assert deploy(aws, event("Delete")).physical_id
        assert aws.scheduler.schedules == {}


@pytest.mark.parametrize(
    "properties",
    [
        {"MaxLifetimeHours": "0"},
        {"MaxLifetimeHours": "never"},
        {"MaxLifetimeHours": "nan"},
        {"EndpointName": ""},
        {"ScheduleName": ""},
        {"StackName": ""},
        {"ServiceToken": "x"},
    ],
)
def test_a_property_that_cannot_be_is_refused_before_anything_is_armed(properties: dict[str, str]) -> None:
    aws = AwsByHand()
    with pytest.raises(ProviderError):
        deploy(aws, event(**properties))
    assert aws.scheduler.schedules == {}


@pytest.mark.parametrize("name", ["chat", "a", "x" * 63, "long-name-" * 6])
def test_names_differ_and_fit_into_64_characters(name: str) -> None:
    hard = {hard_name(schedule_name(name), number) for number in (None, 1, 12)}
    assert len(hard) == 3
    assert all(len(each) <= 64 and schedule_name(name) != each for each in hard)


@pytest.mark.parametrize("stack", ["", "Peagle-chat"])
def test_no_firing_is_retried_so_a_late_one_never_meets_a_new_endpoint_of_the_name(stack: str) -> None:
    """Scheduler's default is 185 retries in 24 hours; the command line's schedules follow the same rule."""
    role = SETTINGS.scheduler_role_arn
    arming = Arming(PREFIX, "chat", START, role, "queue", TOKEN, stack, ("copy",))
    ours = lifetime_schedule("chat", "us-east-1", role, START)
    for schedule in (*schedules(arming), ours):
        assert schedule["Target"]["RetryPolicy"] == {
            "MaximumEventAgeInSeconds": 60,
            "MaximumRetryAttempts": 0,
        }, schedule["Name"]


# --- waking -------------------------------------------------------------------------------------------

WAKE = {"action": "wake", "endpoint": "chat", "config": "chat-1", "time": START.isoformat()}


def known(**tags: str) -> AwsByHand:
    """An endpoint that was turned off, as the register knows it."""
    aws = set_up()
    aws.remove("chat")
    aws.register.write("chat", tags={**tags_for("chat", max_lifetime_hours="3"), "team": "search", **tags})
    return aws


def woken(aws: AwsByHand, **changes: str) -> dict[str, Any]:
    return dict(wake(aws.scheduler, aws.sagemaker, aws.register, SETTINGS, WAKE | changes))


def test_waking_arms_the_schedule_and_creates_from_the_kept_configuration_with_its_tags() -> None:
    aws, operations = known(), list[str]()
    aws.account.hook = operations.append
    assert woken(aws)["state"] == "done"
    assert {name: each["StartDate"] for name, each in aws.scheduler.schedules.items()} == {
        PREFIX: START + 3 * HOUR
    }
    assert operations.index("CreateSchedule") < operations.index("CreateEndpoint")
    life = aws.endpoints["chat"]
    assert (life.config_name, life.tags["team"]) == ("chat-1", "search")


def test_a_wake_that_is_delivered_twice_moves_no_schedule() -> None:
    """`keep` may have moved it between the two."""
    aws = known()
    woken(aws)
    aws.scheduler.schedules[PREFIX]["StartDate"] = kept = START + 20 * HOUR
    for status in ("Creating", "InService"):
        aws.change("chat", status)
        assert woken(aws) == {"state": "done", "detail": "chat exists already"}
        assert aws.scheduler.schedules[PREFIX]["StartDate"] == kept


@pytest.mark.parametrize(
    ("message", "state", "armed"),
    [
        ('Cannot create already existing endpoint "chat".', "done", [PREFIX]),
        ("Could not find endpoint configuration", "refused", []),
    ],
)
def test_waking_that_aws_refuses_leaves_no_schedule_unless_the_endpoint_exists(
    message: str, state: str, armed: list[str]
) -> None:
    aws = known()
    aws.faults["CreateEndpoint"] = [client_error("CreateEndpoint", "ValidationException", message)]
    assert (woken(aws)["state"], list(aws.scheduler.schedules)) == (state, armed)


def test_waking_without_a_clear_answer_keeps_the_schedules() -> None:
    """The endpoint may have been created: without its schedule nothing would end it."""
    aws = known()
    aws.faults["CreateEndpoint"] = [client_error("CreateEndpoint", "ValidationException", "internal", 500)]
    with pytest.raises(ClientError):
        woken(aws)
    assert list(aws.scheduler.schedules) == [PREFIX]


@pytest.mark.parametrize(
    ("tags", "event"),
    [
        # The endpoint of a component would be billed, would serve nothing, and would not count as idle.
        ({"peagle-sm:scaling": "1-3 6.0 10"}, {}),
        ({"peagle-sm:component": "1-3 6.0 10"}, {}),
        ({"peagle-sm:endpoint": "another"}, {}),
        ({}, {"time": "soon"}),
        ({}, {"endpoint": "never-seen"}),
    ],
)
def test_waking_refuses_what_scales_and_what_the_guard_does_not_know(
    tags: dict[str, str], event: dict[str, str]
) -> None:
    aws = known(**tags)
    assert (woken(aws, **event)["state"], aws.did, aws.scheduler.schedules) == ("refused", [], {})


def _scaling(types: list[str], config: str, before: list[str] | None) -> dict[str, Any]:
    answer = event("Update", ScalingInstanceTypes=types, EndpointConfigName=config)
    return answer if before is None else {**answer, "OldResourceProperties": {"ScalingInstanceTypes": before}}


def test_another_instance_type_is_refused_before_a_scaling_endpoint_is_touched() -> None:
    aws = AwsByHand()
    scaling = _scaling(["ml.g7e.4xlarge"], "chat-new", ["ml.g7e.2xlarge"])
    aws.add()
    with pytest.raises(ProviderError) as refused:
        deploy(aws, scaling)
    assert "found ml.g7e.2xlarge, wanted ml.g7e.4xlarge" in str(refused.value)
    assert "Run `peagle-sm pause chat`, deploy the stack again, then run `peagle-sm resume chat`" in str(
        refused.value
    )
    assert aws.scheduler.schedules == {}


@pytest.mark.parametrize(
    ("update", "exists"),
    [
        (_scaling(["b"], "chat-new", ["a"]), False),  # off: nothing runs that could be refused
        (_scaling(["b"], "chat-1", ["a"]), True),  # CloudFormation's rollback: this config runs already
        (_scaling(["a"], "chat-new", ["a"]), True),
        (_scaling(["b"], "chat-new", None), True),  # it did not scale before
        (_scaling([], "chat-new", ["a"]), True),  # it does not scale any more
    ],
)
def test_any_other_update_of_a_scaling_endpoint_passes(update: dict[str, Any], exists: bool) -> None:
    aws = AwsByHand()
    if exists:
        aws.add()
    deploy(aws, update)
    assert aws.scheduler.schedules
