"""The stack says to CloudFormation what boto3 would say to SageMaker, field by field."""

from __future__ import annotations

import json
from dataclasses import asdict, replace
from typing import Any

import pytest
from aws_cdk import Stack

from peagle_sm.core.spec.endpoint_spec import dump_spec, parse_spec
from stacks.endpoint import add_checked
from stacks.schemas import Unsupported, lacking
from stacks.specs import EXECUTION_ROLE
from tests.core.support import bodies, breaches
from tests.stacks.support import EXPORTS, evaluated, one_template, plan_of, specs, template

NAMES = sorted(specs())


def _same_tags(payload: dict[str, Any]) -> dict[str, Any]:
    """CloudFormation keeps no order of tags, so neither does the comparison."""
    return {**payload, "Tags": {tag["Key"]: tag["Value"] for tag in payload["Tags"]}}


def _with_the_guards_role(payload: dict[str, Any]) -> dict[str, Any]:
    text = json.dumps(payload).replace(EXECUTION_ROLE, EXPORTS["PeagleGuard-ExecutionRoleArn"])
    document = json.loads(text)
    assert isinstance(document, dict)
    return document


def _sent(name: str) -> dict[str, dict[str, Any]]:
    """What boto3 would send."""
    sent = {kind: payload for kind, payload in asdict(bodies(plan_of(name))).items() if payload is not None}
    return {kind: _same_tags(_with_the_guards_role(payload)) for kind, payload in sent.items()}


def _in_the_stack(name: str) -> dict[str, dict[str, Any]]:
    by_name = {}
    kinds = {
        "AWS::SageMaker::Model": "model",
        "AWS::SageMaker::EndpointConfig": "config",
        "AWS::SageMaker::Endpoint": "endpoint",
        "AWS::SageMaker::InferenceComponent": "component",
    }
    for resource in evaluated(template(name)).values():
        if resource["Type"] in kinds:
            # CloudFormation's own word for what UpdateEndpoint takes beside the config
            resource["Properties"].pop("RetainAllVariantProperties", None)
            by_name[kinds[resource["Type"]]] = _same_tags(resource["Properties"])
        elif resource["Type"] == "Custom::PeagleModel":
            by_name["model"] = _same_tags(json.loads(resource["Properties"]["Payload"]))
    return by_name


@pytest.mark.parametrize("name", NAMES)
def test_a_stack_sends_what_boto3_would_send(name: str) -> None:
    assert _in_the_stack(name) == _sent(name)


@pytest.mark.parametrize("name", NAMES)
def test_what_a_stack_sends_is_what_the_api_takes(name: str) -> None:
    requests = [
        replace(request, parameters=_with_the_guards_role(request.parameters))
        for request in plan_of(name).requests
    ]
    scaling = {"application-autoscaling", "cloudwatch"} if name == "zero" else {"application-autoscaling"}
    expected = {"logs", "sagemaker", *(scaling if name in ("scaling", "zero") else ())}
    assert {request.service for request in requests} == expected
    assert [breaches(request) for request in requests] == [[] for _ in requests]


def test_jumpstarts_head_needs_the_provider_and_a_head_below_its_target_does_not() -> None:
    kinds = {name: {row["Type"] for row in template(name)["Resources"].values()} for name in NAMES}
    by_provider = {name for name in NAMES if "Custom::PeagleModel" in kinds[name]}
    plain = {name for name in NAMES if "AWS::SageMaker::Model" in kinds[name]}
    assert {"gpt-oss-20b", "smollm2-p-eagle", "smollm2-eagle3", "gpt-oss-120b", "everything"} <= by_provider
    assert {"gemma-4-31b-it", "smollm2-none", "scaling", "zero"} <= plain
    assert by_provider.isdisjoint(plain)


def test_the_providers_model_and_the_plain_one_have_ids_of_their_own() -> None:
    """CloudFormation refuses a resource that changes its type, as from mode none to p-eagle."""
    assert "PeagleModel" in template("smollm2-p-eagle")["Resources"]
    assert "Model" in template("smollm2-none")["Resources"]
    assert "Model" not in template("smollm2-p-eagle")["Resources"]


def test_a_role_of_the_spec_is_taken_and_the_guards_is_imported() -> None:
    given = json.loads(template("gpt-oss-20b")["Resources"]["PeagleModel"]["Properties"]["Payload"])
    assert given["ExecutionRoleArn"] == specs()["gpt-oss-20b"].execution_role_arn
    imported = template("scaling")["Resources"]["Model"]["Properties"]["ExecutionRoleArn"]
    assert imported == {"Fn::ImportValue": "PeagleGuard-ExecutionRoleArn"}


def test_a_dollar_brace_of_the_users_own_reaches_the_container_as_it_is() -> None:
    text = "${ExecutionRoleArn} ${!x} ${AWS::Region}"
    spec = parse_spec(f"name: odd\nmodel: gpt-oss-20b\nserving: {{env: {{GREETING: '{text}'}}}}\n")
    sent = json.loads(evaluated(one_template(spec))["PeagleModel"]["Properties"]["Payload"])
    assert sent["PrimaryContainer"]["Environment"]["GREETING"] == text
    assert sent["ExecutionRoleArn"] == EXPORTS["PeagleGuard-ExecutionRoleArn"]


def test_another_k_makes_a_new_model_and_config_and_updates_the_endpoint_in_place() -> None:
    before = template("gpt-oss-20b")["Resources"]
    text = dump_spec(specs()["gpt-oss-20b"])
    after = one_template(parse_spec(text.replace("num_speculative_tokens: 3", "num_speculative_tokens: 5")))[
        "Resources"
    ]
    assert before.keys() == after.keys()
    named = [
        (resource, key, before[resource]["Properties"][key], after[resource]["Properties"][key])
        for resource, key in (
            ("PeagleModel", "ModelName"),
            ("EndpointConfig", "EndpointConfigName"),
            ("Endpoint", "EndpointConfigName"),
            ("Endpoint", "EndpointName"),
        )
    ]
    assert [was != now for _, _, was, now in named] == [True, True, True, False]
    assert named[1][3] == named[2][3]


def test_a_field_that_cloudformation_lacks_is_found_and_not_dropped() -> None:
    payload = {"ModelName": "m", "PrimaryContainer": {"Image": "i", "AdditionalModelDataSources": []}}
    assert lacking("AWS::SageMaker::Model", payload) == ["PrimaryContainer.AdditionalModelDataSources"]
    with pytest.raises(Unsupported, match="AdditionalModelDataSources"):
        add_checked(Stack(), "Model", "AWS::SageMaker::Model", payload, {})


@pytest.mark.parametrize(("name", "retained"), [("scaling", True), ("zero", True), ("five", None)])
def test_an_update_of_an_endpoint_that_scales_keeps_the_count_that_runs(name: str, retained: Any) -> None:
    """SageMaker's default resets it to the config's count, whatever the load."""
    properties = evaluated(template(name))["Endpoint"]["Properties"]
    assert properties.get("RetainAllVariantProperties") == retained


def test_the_lifetime_knows_the_instance_types_of_an_endpoint_whose_instances_scale() -> None:
    """Its provider refuses another type before CloudFormation touches the endpoint."""
    properties = evaluated(template("scaling"))["Lifetime"]["Properties"]
    assert properties["ScalingInstanceTypes"] == ["ml.g7e.2xlarge"]
    assert properties["EndpointConfigName"] == plan_of("scaling").names.config
    for name in ("zero", "five"):
        assert "ScalingInstanceTypes" not in evaluated(template(name))["Lifetime"]["Properties"]
