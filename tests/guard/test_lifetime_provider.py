"""Custom::PeagleLifetime, and waking without a stack: the dead-man's switch is armed first."""

from __future__ import annotations

import json
from datetime import timedelta
from typing import Any

import pytest
from botocore.exceptions import ClientError

from peagle_guard.cfn_response import ProviderError
from peagle_guard.lifetime_provider import (
    Arming,
    NotArmed,
    provide,
    schedules,
    wake,
)
from peagle_sm.core.plan.tags_and_schedules import hard_name, lifetime_schedule, schedule_name
from tests.guard.fake_aws import SETTINGS, START, FakeAws, tags_for
from tests.guard.simulator.fake_services.account import Account
from tests.guard.simulator.fake_services.clients import SchedulerClient
from tests.guard.simulator.making import world
from tests.service.aws_errors import client_error

HOUR = timedelta(hours=1)
TOKEN = "arn:aws:lambda:us-east-1:123456789012:function:peagle-guard-lifetime"


def scheduler_client() -> SchedulerClient:
    """The simulator's EventBridge Scheduler, on which no time passes."""
    return SchedulerClient(Account.of(world()), {})


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
        "ScheduleName": "peagle-chat-lifetime",
        "Nonce": "12345678",
    }
    answer = {"RequestType": kind, "ResourceProperties": {**request, **properties}}
    return answer if kind == "Create" else {**answer, "PhysicalResourceId": "peagle-chat-lifetime"}


def test_the_stacks_switch_comes_first_and_half_an_hour_later_the_endpoint_itself() -> None:
    scheduler = scheduler_client()
    created = provide(scheduler, FakeEndpoints(), FakeAws().register, SETTINGS, event(), START)
    assert created.physical_id == "peagle-chat-lifetime"
    assert created.attributes["ExpiresAt"] == (START + 8 * HOUR).isoformat(timespec="seconds")
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
    scheduler, register = scheduler_client(), FakeAws().register
    provide(
        scheduler, FakeEndpoints(), register, SETTINGS, event(InferenceComponentNames=["one", "two"]), START
    )
    assert [name.removeprefix("peagle-chat-lifetime") for name in scheduler.schedules] == [
        "",
        "-hard-1",
        "-hard-2",
        "-hard",
    ]
    second = scheduler.schedules["peagle-chat-lifetime-hard-2"]["Target"]
    assert second["Arn"].endswith(":deleteInferenceComponent")
    assert json.loads(second["Input"]) == {"InferenceComponentName": "two"}
    provide(
        scheduler,
        FakeEndpoints(),
        register,
        SETTINGS,
        event("Delete", InferenceComponentNames=["one"]),
        START,
    )
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


def test_what_an_older_endpoint_of_the_name_left_does_not_end_the_new_one() -> None:
    """It had three components; the new one has one, under the third one's name."""
    scheduler, register = scheduler_client(), FakeAws().register
    older = event(InferenceComponentNames=["one", "two", "three"])
    provide(scheduler, FakeEndpoints(), register, SETTINGS, older, START)
    created = event(InferenceComponentNames=["three"])
    provide(scheduler, FakeEndpoints(), FakeAws().register, SETTINGS, created, START)
    assert sorted(scheduler.schedules) == [f"peagle-chat-lifetime{end}" for end in ("", "-hard", "-hard-1")]
    provide(scheduler, FakeEndpoints(), register, SETTINGS, older, START)
    wake(scheduler, FakeEndpoints(scheduler), known().register, SETTINGS, WAKE)
    assert list(scheduler.schedules) == ["peagle-chat-lifetime"]


def test_a_new_deploy_rewrites_the_schedules_and_the_sweeper_knows() -> None:
    scheduler, aws = scheduler_client(), FakeAws()
    provide(scheduler, FakeEndpoints(), aws.register, SETTINGS, event(), START)
    aws.register.write("chat", created_at=START, keep_until=START + HOUR)
    later = START + 5 * HOUR
    provide(scheduler, FakeEndpoints(), aws.register, SETTINGS, event("Update", Nonce="87654321"), later)
    assert scheduler.schedules["peagle-chat-lifetime"]["StartDate"] == later + 8 * HOUR
    assert aws.register.records["chat"].expires_at == later + 8 * HOUR
    assert aws.register.records["chat"].keep_until == START + HOUR


@pytest.mark.parametrize("kind", ["Update", "Create"])
def test_a_lease_outlasts_a_deploy_and_a_pause_by_hand(kind: str) -> None:
    """The end is the later of both, and schedules and register agree on it."""
    scheduler, aws = scheduler_client(), FakeAws()
    until = START + 20 * HOUR
    aws.register.write("chat", created_at=START, keep_until=until, expires_at=until, paused=kind == "Create")
    created = provide(scheduler, FakeEndpoints(), aws.register, SETTINGS, event(kind), START + HOUR)
    assert created.attributes["ExpiresAt"] == until.isoformat(timespec="seconds")
    soft, hard = (scheduler.schedules[f"peagle-chat-lifetime{suffix}"] for suffix in ("", "-hard"))
    assert (soft["StartDate"], hard["StartDate"]) == (until, until + HOUR / 2)
    assert json.loads(soft["Target"]["Input"])["expires_at"] == until.isoformat()
    assert aws.register.records["chat"].expires_at == until


def test_a_shorter_lifetime_without_a_lease_shortens_schedule_and_register() -> None:
    scheduler, aws = scheduler_client(), FakeAws()
    aws.register.write("chat", created_at=START, expires_at=START + 50 * HOUR)
    provide(scheduler, FakeEndpoints(), aws.register, SETTINGS, event("Update"), START + HOUR)
    assert scheduler.schedules["peagle-chat-lifetime"]["StartDate"] == START + 9 * HOUR
    assert aws.register.records["chat"].expires_at == START + 9 * HOUR


def test_a_lease_of_an_endpoint_that_is_gone_does_not_prolong_the_next() -> None:
    scheduler, aws = scheduler_client(), FakeAws()
    aws.register.write("chat", created_at=START, keep_until=START + 20 * HOUR, gone_at=START + HOUR)
    provide(scheduler, FakeEndpoints(), aws.register, SETTINGS, event("Update"), START + HOUR)
    provide(scheduler, FakeEndpoints(), aws.register, SETTINGS, event("Create"), START + HOUR)
    assert scheduler.schedules["peagle-chat-lifetime"]["StartDate"] == START + 9 * HOUR


@pytest.mark.parametrize("status", ["InService", "Updating", "Deleting"])
def test_the_schedules_of_an_endpoint_that_the_cleanup_left_behind_stay_armed(status: str) -> None:
    """CloudFormation tries three times to delete it, skips it, and deletes the lifetime next."""
    scheduler, register = scheduler_client(), FakeAws().register
    provide(scheduler, FakeEndpoints(), register, SETTINGS, event(InferenceComponentNames=["one"]), START)
    armed = dict(scheduler.schedules)
    remove = event("Delete", InferenceComponentNames=["one"])
    provide(scheduler, FakeEndpoints(status=status), register, SETTINGS, remove, START)
    assert scheduler.schedules == armed
    provide(scheduler, FakeEndpoints(), register, SETTINGS, remove, START)
    assert scheduler.schedules == {}


def test_a_schedule_of_another_name_is_not_the_last_line_of_an_endpoint() -> None:
    scheduler, register = scheduler_client(), FakeAws().register
    provide(scheduler, FakeEndpoints(), register, SETTINGS, event(ScheduleName="peagle-old"), START)
    remove = {**event("Delete"), "PhysicalResourceId": "peagle-old"}
    provide(scheduler, FakeEndpoints(status="InService"), register, SETTINGS, remove, START)
    assert scheduler.schedules == {}


def test_an_update_keeps_the_schedule_of_a_component_that_its_cleanup_will_delete() -> None:
    """The old component would block the deletion of the endpoint if the cleanup leaves it behind."""
    scheduler, register = scheduler_client(), FakeAws().register
    provide(scheduler, FakeEndpoints(), register, SETTINGS, event(InferenceComponentNames=["a", "b"]), START)
    update = event("Update", InferenceComponentNames=["c"])
    update["OldResourceProperties"] = {"InferenceComponentNames": ["a"]}
    provide(scheduler, FakeEndpoints(), register, SETTINGS, update, START + HOUR)
    ended = {
        json.loads(schedule["Target"]["Input"])["InferenceComponentName"]: schedule["StartDate"]
        for schedule in scheduler.schedules.values()
        if schedule["Target"]["Arn"].endswith(":deleteInferenceComponent")
    }
    assert ended == dict.fromkeys(["c", "a"], START + 9.5 * HOUR)


def test_what_does_not_read_back_is_not_armed() -> None:
    scheduler = Deaf(Account.of(world()), {})
    with pytest.raises(NotArmed, match="peagle-chat-lifetime does not read back"):
        provide(scheduler, FakeEndpoints(), FakeAws().register, SETTINGS, event(), START)


def test_delete_removes_both_and_is_done_when_there_are_none() -> None:
    scheduler, register = scheduler_client(), FakeAws().register
    provide(scheduler, FakeEndpoints(), register, SETTINGS, event(), START)
    for _ in range(2):
        assert provide(scheduler, FakeEndpoints(), register, SETTINGS, event("Delete"), START).physical_id
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
    scheduler = scheduler_client()
    with pytest.raises(ProviderError):
        provide(scheduler, FakeEndpoints(), FakeAws().register, SETTINGS, event(**properties), START)
    assert scheduler.schedules == {}


@pytest.mark.parametrize("name", ["chat", "a", "x" * 63, "long-name-" * 6])
def test_names_differ_and_fit_into_64_characters(name: str) -> None:
    hard = {hard_name(schedule_name(name), number) for number in (None, 1, 12)}
    assert len(hard) == 3
    assert all(len(each) <= 64 and schedule_name(name) != each for each in hard)


@pytest.mark.parametrize("stack", ["", "Peagle-chat"])
def test_no_firing_is_retried_so_a_late_one_never_meets_a_new_endpoint_of_the_name(stack: str) -> None:
    """Scheduler's default is 185 retries in 24 hours; the command line's schedules follow the same rule."""
    role = SETTINGS.scheduler_role_arn
    arming = Arming("peagle-chat-lifetime", "chat", START, role, "queue", TOKEN, stack, ("copy",))
    ours = lifetime_schedule("chat", "us-east-1", role, START)
    for schedule in (*schedules(arming), ours):
        assert schedule["Target"]["RetryPolicy"] == {
            "MaximumEventAgeInSeconds": 60,
            "MaximumRetryAttempts": 0,
        }, schedule["Name"]


# --- waking -------------------------------------------------------------------------------------------

WAKE = {"action": "wake", "endpoint": "chat", "config": "chat-1", "time": START.isoformat()}


class FakeEndpoints:
    """SageMaker's endpoints; ``status`` is that of `chat`, empty where it does not exist."""

    def __init__(
        self,
        scheduler: SchedulerClient | None = None,
        refusal: str = "",
        status: str = "",
        config: str = "chat-1",
        http_status: int = 400,
    ) -> None:
        self.config = config
        self.http_status = http_status
        self.scheduler = scheduler
        self.refusal = refusal
        self.status = status
        self.created: list[dict[str, Any]] = []

    def describe_endpoint(self, **parameters: Any) -> Any:
        if not self.status:
            message = 'Could not find endpoint "chat".'
            raise client_error("DescribeEndpoint", "ValidationException", message)
        name = parameters["EndpointName"]
        times = {"CreationTime": START, "LastModifiedTime": START, "EndpointConfigName": self.config}
        return {"EndpointName": name, "EndpointArn": "arn", "EndpointStatus": self.status, **times}

    def create_endpoint(self, **parameters: Any) -> Any:
        assert self.scheduler is not None
        assert "peagle-chat-lifetime" in self.scheduler.schedules, "armed first"
        if self.refusal:
            raise client_error("CreateEndpoint", "ValidationException", self.refusal, self.http_status)
        self.created.append(parameters)
        return {}


def known() -> FakeAws:
    aws = FakeAws()
    aws.register.write("chat", tags={**tags_for("chat", max_lifetime_hours="3"), "team": "search"})
    return aws


def test_waking_arms_the_schedule_and_creates_from_the_kept_configuration_with_its_tags() -> None:
    scheduler = scheduler_client()
    endpoints = FakeEndpoints(scheduler)
    answer = wake(scheduler, endpoints, known().register, SETTINGS, WAKE)
    assert answer["state"] == "done"
    schedule = scheduler.schedules["peagle-chat-lifetime"]
    assert (list(scheduler.schedules), schedule["StartDate"]) == (["peagle-chat-lifetime"], START + 3 * HOUR)
    (created,) = endpoints.created
    assert (created["EndpointName"], created["EndpointConfigName"]) == ("chat", "chat-1")
    assert {"Key": "team", "Value": "search"} in created["Tags"]


def test_a_wake_that_is_delivered_twice_moves_no_schedule() -> None:
    """`keep` may have moved it between the two."""
    scheduler = scheduler_client()
    aws = known()
    wake(scheduler, FakeEndpoints(scheduler), aws.register, SETTINGS, WAKE)
    scheduler.schedules["peagle-chat-lifetime"]["StartDate"] = kept = START + 20 * HOUR
    for status in ("Creating", "InService"):
        answer = wake(scheduler, FakeEndpoints(scheduler, status=status), aws.register, SETTINGS, WAKE)
        assert answer == {"state": "done", "detail": "chat exists already"}
        assert scheduler.schedules["peagle-chat-lifetime"]["StartDate"] == kept


def test_waking_what_is_there_is_done_and_its_schedule_stays() -> None:
    scheduler = scheduler_client()
    endpoints = FakeEndpoints(scheduler, 'Cannot create already existing endpoint "chat".')
    assert wake(scheduler, endpoints, known().register, SETTINGS, WAKE)["state"] == "done"
    assert scheduler.schedules


def test_waking_that_aws_refuses_leaves_no_schedule() -> None:
    scheduler = scheduler_client()
    endpoints = FakeEndpoints(scheduler, "Could not find endpoint configuration")
    answer = wake(scheduler, endpoints, known().register, SETTINGS, WAKE)
    assert (answer["state"], scheduler.schedules) == ("refused", {})


def test_waking_without_a_clear_answer_keeps_the_schedules() -> None:
    """The endpoint may have been created: without its schedule nothing would end it."""
    scheduler = scheduler_client()
    endpoints = FakeEndpoints(scheduler, "internal", http_status=500)
    with pytest.raises(ClientError):
        wake(scheduler, endpoints, known().register, SETTINGS, WAKE)
    assert list(scheduler.schedules) == ["peagle-chat-lifetime"]


@pytest.mark.parametrize("tag", ["peagle-sm:scaling", "peagle-sm:component"])
def test_waking_refuses_what_scales(tag: str) -> None:
    """The endpoint of a component would be billed, would serve nothing, and would not count as idle."""
    scheduler, aws = scheduler_client(), known()
    endpoints, record = FakeEndpoints(scheduler), aws.register.records["chat"]
    aws.register.write("chat", tags={**record.tags, tag: "1-3 6.0 10"})
    answer = wake(scheduler, endpoints, aws.register, SETTINGS, WAKE)
    assert (answer["state"], endpoints.created, scheduler.schedules) == ("refused", [], {})


def test_waking_refuses_what_the_guard_never_saw() -> None:
    scheduler, aws = scheduler_client(), FakeAws()
    endpoints = FakeEndpoints(scheduler)
    assert wake(scheduler, endpoints, aws.register, SETTINGS, WAKE)["state"] == "refused"
    assert (
        wake(scheduler, endpoints, known().register, SETTINGS, {**WAKE, "time": "soon"})["state"] == "refused"
    )
    other = known()
    record = other.register.records["chat"]
    other.register.write("chat", tags={**record.tags, "peagle-sm:endpoint": "another"})
    assert wake(scheduler, endpoints, other.register, SETTINGS, WAKE)["state"] == "refused"
    assert endpoints.created == []


def _scaling(types: list[str], config: str, before: list[str] | None) -> dict[str, Any]:
    answer = event("Update", ScalingInstanceTypes=types, EndpointConfigName=config)
    return answer if before is None else {**answer, "OldResourceProperties": {"ScalingInstanceTypes": before}}


def test_another_instance_type_is_refused_before_a_scaling_endpoint_is_touched() -> None:
    scheduler = scheduler_client()
    scaling = _scaling(["ml.g7e.4xlarge"], "chat-new", ["ml.g7e.2xlarge"])
    endpoints = FakeEndpoints(status="InService", config="chat-old")
    with pytest.raises(ProviderError) as refused:
        provide(scheduler, endpoints, FakeAws().register, SETTINGS, scaling, START)
    assert "found ml.g7e.2xlarge, wanted ml.g7e.4xlarge" in str(refused.value)
    assert "Run `peagle-sm pause chat`, deploy the stack again, then run `peagle-sm resume chat`" in str(
        refused.value
    )
    assert scheduler.schedules == {}


@pytest.mark.parametrize(
    ("update", "exists"),
    [
        (_scaling(["b"], "chat-new", ["a"]), False),  # off: nothing runs that could be refused
        (_scaling(["b"], "chat-old", ["a"]), True),  # CloudFormation's rollback: this config runs already
        (_scaling(["a"], "chat-new", ["a"]), True),
        (_scaling(["b"], "chat-new", None), True),  # it did not scale before
        (_scaling([], "chat-new", ["a"]), True),  # it does not scale any more
    ],
)
def test_any_other_update_of_a_scaling_endpoint_passes(update: dict[str, Any], exists: bool) -> None:
    scheduler = scheduler_client()
    endpoints = FakeEndpoints(status="InService" if exists else "", config="chat-old")
    provide(scheduler, endpoints, FakeAws().register, SETTINGS, update, START)
    assert scheduler.schedules
