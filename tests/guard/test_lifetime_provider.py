"""Custom::PeagleLifetime, and waking without a stack: the dead-man's switch is armed first."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from botocore.exceptions import ClientError

from peagle_guard.cfn_response import ProviderError
from peagle_guard.lifetime import Arming, NotArmed, schedules
from peagle_guard.lifetime_provider import provide, wake
from peagle_guard.schedules import hard_name, schedule_name
from peagle_sm.core import payloads
from tests.guard.fake_aws import SETTINGS, START, FakeAws, tags_for

HOUR = timedelta(hours=1)
TOKEN = "arn:aws:lambda:us-east-1:123456789012:function:peagle-guard-lifetime"


class FakeScheduler:
    def __init__(self) -> None:
        self.schedules: dict[str, dict[str, Any]] = {}
        self.deaf = False

    def create_schedule(self, **parameters: Any) -> Any:
        if parameters["Name"] in self.schedules:
            raise ClientError({"Error": {"Code": "ConflictException", "Message": "exists"}}, "CreateSchedule")
        return self.update_schedule(**parameters)

    def update_schedule(self, **parameters: Any) -> Any:
        kept = {**parameters, "State": "DISABLED"} if self.deaf else parameters
        self.schedules[parameters["Name"]] = kept
        return {}

    def get_schedule(self, **parameters: Any) -> Any:
        return self.schedules[parameters["Name"]]

    def delete_schedule(self, **parameters: Any) -> Any:
        if self.schedules.pop(parameters["Name"], None) is None:
            code = "ResourceNotFoundException"
            raise ClientError({"Error": {"Code": code, "Message": "none"}}, "DeleteSchedule")
        return {}


def event(kind: str = "Create", **properties: Any) -> dict[str, Any]:
    asked = {
        "ServiceToken": TOKEN,
        "EndpointName": "chat",
        "StackName": "Peagle-chat",
        "MaxLifetimeHours": "8",
        "ScheduleName": "peagle-chat-lifetime",
        "Nonce": "12345678",
    }
    told = {"RequestType": kind, "ResourceProperties": {**asked, **properties}}
    return told if kind == "Create" else {**told, "PhysicalResourceId": "peagle-chat-lifetime"}


def test_the_stacks_switch_comes_first_and_half_an_hour_later_the_endpoint_itself() -> None:
    scheduler = FakeScheduler()
    made = provide(scheduler, FakeAws().register, SETTINGS, event(), START)
    assert made.physical_id == "peagle-chat-lifetime"
    assert made.attributes["ExpiresAt"] == (START + 8 * HOUR).isoformat(timespec="seconds")
    soft, hard = (scheduler.schedules[f"peagle-chat-lifetime{suffix}"] for suffix in ("", "-hard"))
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
    scheduler, register = FakeScheduler(), FakeAws().register
    provide(scheduler, register, SETTINGS, event(InferenceComponentNames=["one", "two"]), START)
    assert [name.removeprefix("peagle-chat-lifetime") for name in scheduler.schedules] == [
        "",
        "-hard-1",
        "-hard-2",
        "-hard",
    ]
    second = scheduler.schedules["peagle-chat-lifetime-hard-2"]["Target"]
    assert second["Arn"].endswith(":deleteInferenceComponent")
    assert json.loads(second["Input"]) == {"InferenceComponentName": "two"}
    update = event("Update", InferenceComponentNames=["one"])
    update["OldResourceProperties"] = {"InferenceComponentNames": ["one", "two"]}
    provide(scheduler, register, SETTINGS, update, START)
    assert "peagle-chat-lifetime-hard-2" not in scheduler.schedules
    provide(scheduler, register, SETTINGS, event("Delete", InferenceComponentNames=["one"]), START)
    assert scheduler.schedules == {}


def test_without_a_stack_components_do_not_block_the_last_line_either() -> None:
    ends = START + 8 * HOUR
    arming = Arming(
        "peagle-chat-lifetime", "chat", ends, "arn:aws:iam::1:role/r", "queue", components=("copy",)
    )
    component, endpoint = schedules(arming)
    assert (component["Name"], component["StartDate"]) == ("peagle-chat-lifetime-hard-1", ends)
    assert json.loads(component["Target"]["Input"]) == {"InferenceComponentName": "copy"}
    assert (endpoint["Name"], endpoint["StartDate"]) == ("peagle-chat-lifetime", ends)


def test_a_new_deploy_rewrites_the_schedules_and_the_sweeper_knows() -> None:
    scheduler, aws = FakeScheduler(), FakeAws()
    provide(scheduler, aws.register, SETTINGS, event(), START)
    aws.register.write("chat", created_at=START, keep_until=START + HOUR)
    later = START + 5 * HOUR
    provide(scheduler, aws.register, SETTINGS, event("Update", Nonce="87654321"), later)
    assert scheduler.schedules["peagle-chat-lifetime"]["StartDate"] == later + 8 * HOUR
    assert aws.register.records["chat"].expires_at == later + 8 * HOUR
    assert aws.register.records["chat"].keep_until == START + HOUR


def test_a_later_lease_is_not_shortened_by_a_deploy() -> None:
    aws = FakeAws()
    aws.register.write("chat", created_at=START, expires_at=START + 50 * HOUR)
    provide(FakeScheduler(), aws.register, SETTINGS, event("Update"), START)
    assert aws.register.records["chat"].expires_at == START + 50 * HOUR


def test_what_does_not_read_back_is_not_armed() -> None:
    scheduler = FakeScheduler()
    scheduler.deaf = True
    with pytest.raises(NotArmed, match="peagle-chat-lifetime does not read back"):
        provide(scheduler, FakeAws().register, SETTINGS, event(), START)


def test_delete_removes_both_and_is_done_when_there_are_none() -> None:
    scheduler, register = FakeScheduler(), FakeAws().register
    provide(scheduler, register, SETTINGS, event(), START)
    for _ in range(2):
        assert provide(scheduler, register, SETTINGS, event("Delete"), START).physical_id
        assert scheduler.schedules == {}


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
    scheduler = FakeScheduler()
    with pytest.raises(ProviderError):
        provide(scheduler, FakeAws().register, SETTINGS, event(**properties), START)
    assert scheduler.schedules == {}


@pytest.mark.parametrize("name", ["chat", "a", "x" * 63, "long-name-" * 6])
def test_names_are_the_toolkits_and_fit_into_64_characters(name: str) -> None:
    assert schedule_name(name) == payloads.schedule_name(name)
    hard = {hard_name(schedule_name(name), number) for number in (None, 1, 12)}
    assert len(hard) == 3
    assert all(len(each) <= 64 and schedule_name(name) != each for each in hard)


# --- waking -------------------------------------------------------------------------------------------

WAKE = {"action": "wake", "endpoint": "chat", "config": "chat-1", "time": START.isoformat()}


class FakeEndpoints:
    def __init__(self, scheduler: FakeScheduler, refusal: str = "") -> None:
        self.scheduler = scheduler
        self.refusal = refusal
        self.created: list[dict[str, Any]] = []

    def create_endpoint(self, **parameters: Any) -> Any:
        assert "peagle-chat-lifetime" in self.scheduler.schedules, "armed first"
        if self.refusal:
            raise ClientError(
                {"Error": {"Code": "ValidationException", "Message": self.refusal}}, "CreateEndpoint"
            )
        self.created.append(parameters)
        return {}


def known() -> FakeAws:
    aws = FakeAws()
    aws.register.write("chat", tags={**tags_for("chat", max_lifetime_hours="3"), "team": "search"})
    return aws


def test_waking_arms_the_schedule_and_creates_from_the_kept_configuration_with_its_tags() -> None:
    scheduler = FakeScheduler()
    endpoints = FakeEndpoints(scheduler)
    answer = wake(scheduler, endpoints, known().register, SETTINGS, WAKE)
    assert answer["state"] == "done"
    schedule = scheduler.schedules["peagle-chat-lifetime"]
    assert (list(scheduler.schedules), schedule["StartDate"]) == (["peagle-chat-lifetime"], START + 3 * HOUR)
    (created,) = endpoints.created
    assert (created["EndpointName"], created["EndpointConfigName"]) == ("chat", "chat-1")
    assert {"Key": "team", "Value": "search"} in created["Tags"]


def test_waking_what_is_there_is_done_and_its_schedule_stays() -> None:
    scheduler = FakeScheduler()
    endpoints = FakeEndpoints(scheduler, 'Cannot create already existing endpoint "chat".')
    assert wake(scheduler, endpoints, known().register, SETTINGS, WAKE)["state"] == "done"
    assert scheduler.schedules


def test_waking_that_aws_refuses_leaves_no_schedule() -> None:
    scheduler = FakeScheduler()
    endpoints = FakeEndpoints(scheduler, "Could not find endpoint configuration")
    answer = wake(scheduler, endpoints, known().register, SETTINGS, WAKE)
    assert (answer["state"], scheduler.schedules) == ("refused", {})


def test_waking_refuses_what_the_guard_never_saw() -> None:
    scheduler, aws = FakeScheduler(), FakeAws()
    endpoints = FakeEndpoints(scheduler)
    assert wake(scheduler, endpoints, aws.register, SETTINGS, WAKE)["state"] == "refused"
    assert (
        wake(scheduler, endpoints, known().register, SETTINGS, {**WAKE, "time": "soon"})["state"] == "refused"
    )
    other = known()
    record = other.register.records["chat"]
    other.register.records["chat"] = replace(record, tags={**record.tags, "peagle-sm:endpoint": "another"})
    assert wake(scheduler, endpoints, other.register, SETTINGS, WAKE)["state"] == "refused"
    assert endpoints.created == []
