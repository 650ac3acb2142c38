"""EndpointState, and what a careful reader of the template asks of it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from cfnlint.schema import PROVIDER_SCHEMA_MANAGER

from peagle_sm.core.guard import LIFETIME_PROVIDER, MODEL_PROVIDER
from peagle_sm.core.spec.endpoint_spec import parse_spec
from stacks.endpoint import SERVICE_TIMEOUT_S
from stacks.guard.functions import jobs
from tests.core.support import bodies
from tests.stacks.support import ACCOUNT, REGION, evaluated, one_template, outputs, plan_of, specs, template

NAMES = sorted(specs())
SWITCHED = {"Endpoint": "AWS::SageMaker::Endpoint", "Lifetime": "Custom::PeagleLifetime"}
FURTHER_SWITCHED = {
    "scaling": {"ScalableTarget", "ScalingPolicy"},
    "zero": {"Component", "ScalableTarget", "ScalingPolicy", "FromZeroPolicy", "FromZeroAlarm"},
}


def _switched(name: str) -> set[str]:
    """At zero instances "no instance" is as it should be, so that alarm is not there."""
    presence = set() if name == "zero" else {"NoInstanceAlarm"}
    return {*SWITCHED, *FURTHER_SWITCHED.get(name, ()), *presence}


def _statements(given: Any) -> Iterator[dict[str, Any]]:
    if isinstance(given, list):
        for item in given:
            yield from _statements(item)
    elif isinstance(given, dict):
        if "Effect" in given:
            yield given
        for item in given.values():
            yield from _statements(item)


@pytest.mark.parametrize("name", NAMES)
def test_off_removes_what_bills_by_the_hour_and_what_leans_on_it_and_nothing_else(name: str) -> None:
    result = template(name)
    on, off = evaluated(result, "on"), evaluated(result, "off")
    assert on.keys() - off.keys() == _switched(name)
    assert {key: on[key] for key in off} == off, "what stays is not touched by the switch"
    assert {key: on[key]["Type"] for key in SWITCHED} == SWITCHED


@pytest.mark.parametrize("name", NAMES)
def test_the_switch_is_the_only_parameter_and_on_by_default(name: str) -> None:
    parameters = template(name)["Parameters"]
    assert list(parameters) == ["EndpointState"]
    assert parameters["EndpointState"]["Default"] == "on"
    assert parameters["EndpointState"]["AllowedValues"] == ["on", "off"]
    assert "Rules" not in template(name)
    assert "Transform" not in template(name)


@pytest.mark.parametrize("name", NAMES)
def test_nothing_that_stays_needs_what_is_switched(name: str) -> None:
    """Evaluating the switched-off template fails on a reference to something that is not there."""
    off = evaluated(template(name), "off")
    needed = {row for resource in off.values() for row in resource.get("DependsOn", [])}
    assert needed <= off.keys()
    outputs(template(name))


@pytest.mark.parametrize("name", NAMES)
def test_the_endpoint_is_created_after_the_schedules_that_end_its_life(name: str) -> None:
    on = evaluated(template(name))
    assert set(on["Endpoint"]["DependsOn"]) == {"EndpointConfig", "Lifetime", "Logs"}
    lifetime = on["Lifetime"]["Properties"]
    plan = plan_of(name)
    component = plan.names.component
    assert lifetime == {
        **({"InferenceComponentNames": [component]} if component else {}),
        "ServiceToken": f"arn:aws:lambda:{REGION}:{ACCOUNT}:function:peagle-guard-lifetime",
        "ServiceTimeout": 300,
        "EndpointName": name,
        "StackName": f"Peagle-{name}",
        "MaxLifetimeHours": f"{plan.spec.lifecycle.max_lifetime_hours:g}",
        "ScheduleName": plan.names.schedule,
        "Nonce": plan.spec_hash,
        **(
            {"ScalingInstanceTypes": ["ml.g7e.2xlarge"], "EndpointConfigName": plan.names.config}
            if name == "scaling"
            else {}
        ),
    }


@pytest.mark.parametrize("name", NAMES)
def test_a_provider_that_dies_holds_the_stack_for_five_minutes_at_most(name: str) -> None:
    """The default is an hour, and a rollback waits once more."""
    requests = [
        resource
        for resource in template(name)["Resources"].values()
        if resource["Type"].startswith("Custom::")
    ]
    assert requests
    assert {resource["Properties"].get("ServiceTimeout") for resource in requests} == {300}


def test_a_provider_that_dies_once_can_still_answer_in_time() -> None:
    retry_after_s = 60  # Lambda waits a minute before it tries an asynchronous event again
    providers = [job for job in jobs() if job.name in (MODEL_PROVIDER, LIFETIME_PROVIDER)]
    assert len(providers) == 2
    for job in providers:
        assert 2 * job.timeout_s + retry_after_s <= SERVICE_TIMEOUT_S


@pytest.mark.parametrize("name", ["scaling", "zero"])
def test_what_blocks_a_deletion_goes_before_the_endpoint(name: str) -> None:
    """CloudFormation deletes in the opposite order of creation: target, component, endpoint, schedules."""
    on = evaluated(template(name))
    chain = ["ScalableTarget", *(["Component"] if name == "zero" else []), "Endpoint"]
    assert [on[left]["DependsOn"] for left in chain[:-1]] == [[right] for right in chain[1:]]
    assert on["ScalingPolicy"]["Properties"]["ScalingTargetId"] == "<ScalableTarget>"


def test_instances_follow_the_requests_in_flight() -> None:
    on = evaluated(template("scaling"))
    target, policy = on["ScalableTarget"]["Properties"], on["ScalingPolicy"]["Properties"]
    assert target["ResourceId"] == "endpoint/scaling/variant/AllTraffic"
    assert target["ScalableDimension"] == "sagemaker:variant:DesiredInstanceCount"
    assert (target["MinCapacity"], target["MaxCapacity"]) == (1, 3)
    tracking = policy["TargetTrackingScalingPolicyConfiguration"]
    assert tracking["TargetValue"] == 6
    assert tracking["ScaleInCooldown"] == 15 * 60
    assert tracking["PredefinedMetricSpecification"] == {
        "PredefinedMetricType": "SageMakerVariantConcurrentRequestsPerModelHighResolution"
    }


def test_a_component_scales_to_none_and_the_first_failure_asks_for_one() -> None:
    on = evaluated(template("zero"))
    target = on["ScalableTarget"]["Properties"]
    assert target["ResourceId"] == "inference-component/zero"
    assert (target["MinCapacity"], target["MaxCapacity"]) == (0, 1)
    alarm = on["FromZeroAlarm"]["Properties"]
    assert alarm["MetricName"] == "NoCapacityInvocationFailures"
    assert alarm["Dimensions"] == [{"Name": "InferenceComponentName", "Value": "zero"}]
    assert alarm["AlarmActions"] == ["<FromZeroPolicy>.Arn"]


@pytest.mark.parametrize("name", NAMES)
def test_everything_that_can_carry_tags_says_whose_it_is(name: str) -> None:
    taggable = set()
    for key, resource in evaluated(template(name)).items():
        if resource["Type"].startswith("Custom::"):
            continue
        schema = PROVIDER_SCHEMA_MANAGER.get_resource_schema(REGION, resource["Type"]).schema
        if "Tags" in schema["properties"]:
            taggable.add(key)
            tags = {tag["Key"]: tag["Value"] for tag in resource["Properties"]["Tags"]}
            ours = {"managed-by": "peagle-sm", "endpoint": name, "stack": f"Peagle-{name}"}
            assert {f"peagle-sm:{tag}": value for tag, value in ours.items()}.items() <= tags.items(), key
            assert plan_of(name).spec.tags.items() <= tags.items(), key
    assert {"Endpoint", "EndpointConfig", "Logs", "Alarms", "AlarmKey", "SpendAlarm", "Dashboard"} <= taggable


def test_a_change_of_lifecycle_rewrites_no_alarm() -> None:
    """What changes with the spec stands in the tags of SageMaker's resources alone."""
    tags = {tag["Key"] for tag in evaluated(template("everything"))["SpendAlarm"]["Properties"]["Tags"]}
    assert "peagle-sm:spec-hash" not in tags
    assert "peagle-sm:idle-minutes" not in tags
    assert {tag["Key"] for tag in bodies(plan_of("everything")).endpoint["Tags"]} > tags


@pytest.mark.parametrize("name", NAMES)
def test_a_stack_needs_no_capability_and_grants_nothing_to_people(name: str) -> None:
    on = evaluated(template(name))
    assert [key for key, row in on.items() if row["Type"].startswith("AWS::IAM")] == []
    allowed = [row for row in _statements(list(on.values())) if row["Effect"] == "Allow"]
    assert allowed
    for statement in allowed:
        root = {"AWS": f"arn:aws:iam::{ACCOUNT}:root"}
        actions = json.dumps(statement["Action"])
        assert statement["Principal"] in ({"Service": "cloudwatch.amazonaws.com"}, root)
        assert statement["Principal"] != root or statement["Action"] == "kms:*"
        assert "Delete" not in actions
        assert "PassRole" not in actions


@pytest.mark.parametrize("name", NAMES)
def test_the_outputs_say_how_to_call_turn_off_and_remove(name: str) -> None:
    answer = outputs(template(name))
    assert answer["EndpointName"] == name
    assert answer["TurnOff"] == f"peagle-sm pause {name}"
    assert answer["TurnOn"] == f"peagle-sm resume {name}"
    assert "ParameterKey=EndpointState,ParameterValue=off" in answer["TurnOffByAwsCli"]
    assert "--use-previous-template" in answer["TurnOffByAwsCli"]
    assert f"--stack-name Peagle-{name}" in answer["Destroy"]
    assert answer["DashboardUrl"].endswith(f"region={REGION}#dashboards:name=Peagle-{name}")
    assert "a second fleet runs in parallel" in answer["Update"]
    plan = plan_of(name)
    bound = "at most " if plan.price_at_most else ""
    known = f"{bound}{plan.usd_per_hour} USD/hour"
    assert answer["UsdPerHour"].startswith("price unknown" if plan.usd_per_hour is None else known)


def test_an_update_without_a_second_fleet_goes_through_off() -> None:
    spec = parse_spec("name: calm\nmodel: gpt-oss-20b\nupdate: off-update-on\n")
    answer = outputs(one_template(spec))["Update"]
    assert answer.index("Peagle-calm:EndpointState=off") < answer.index("Peagle-calm:EndpointState=on")
