"""Every call of every role is allowed with the condition keys that AWS sends, and no permission is unused.

The policies are the real ones, with their functions evaluated; the calls come from `calls.py`.
"""

from __future__ import annotations

import json
import re
from functools import cache
from importlib.resources import files
from typing import Any

import pytest
from aws_cdk import App

from stacks.image_stack import ImageStack
from tests.stacks.iam import reference
from tests.stacks.iam.calls import BUILD, BUILD_ARNS, GUARD, SOURCE, Call, arn
from tests.stacks.iam.decisions import Document, denied, unused
from tests.stacks.iam.roles import GIVEN, policies

ROLES = {**GUARD, "BuildRole": BUILD}


@cache
def _policies() -> dict[str, list[Document]]:
    guard = json.loads((files("peagle_sm") / "guard_assets" / "template.json").read_text())
    app = App(analytics_reporting=False)
    ImageStack(app)
    image = json.dumps(app.synth().stacks[0].template)
    # the source's name is a hash of its content
    image = re.sub(r"[0-9a-f]{64}\.zip", SOURCE.rpartition("/")[2], image)
    base = {"BaseImage": "vllm/vllm-openai:v0.33.0"}
    return {**policies(guard, GIVEN), **policies(json.loads(image), base, BUILD_ARNS)}


def test_every_role_of_the_stacks_has_its_list_of_calls() -> None:
    assert _policies().keys() == ROLES.keys()


@pytest.mark.parametrize("role", ROLES)
def test_aws_documents_the_action_the_resources_and_the_keys_of_each_call(role: str) -> None:
    assert [wrong for call in ROLES[role] for wrong in reference.wrong(call)] == []
    assert reference.lacking(ROLES[role]) == []


@pytest.mark.parametrize("role", ROLES)
def test_each_call_is_allowed(role: str) -> None:
    assert denied(_policies()[role], ROLES[role]) == []


@pytest.mark.parametrize("role", ROLES)
def test_each_permission_is_used_by_a_call(role: str) -> None:
    assert unused(_policies()[role], ROLES[role]) == []


@pytest.mark.parametrize("role", ROLES)
def test_no_role_creates_a_log_group_that_a_stack_owns(role: str) -> None:
    """A late line would bring a deleted group back, and the next stack of that name would fail."""
    groups = (
        "/aws/lambda/peagle-guard-sweeper",
        "/aws/sagemaker/Endpoints/demo",
        "/aws/sagemaker/InferenceComponents/demo",
        "/aws/codebuild/peagle-image",
    )
    calls = [Call("logs:CreateLogGroup", (arn("logs", f"log-group:{group}"),)) for group in groups]
    assert len(denied(_policies()[role], calls)) == len(groups)


def test_a_condition_key_that_the_action_never_carries_is_found() -> None:
    statement: dict[str, Any] = {
        "Sid": "Grant",
        "Effect": "Allow",
        "Action": ["kms:CreateGrant", "kms:DescribeKey"],
        "Resource": "*",
        "Condition": {"Bool": {"kms:GrantIsForAWSResource": "true"}},
    }
    key = "arn:aws:kms:us-east-1:123456789012:key/1"
    calls = [
        Call("kms:CreateGrant", (key,), {"kms:GrantIsForAWSResource": "true"}),
        Call("kms:DescribeKey", (key,)),
    ]
    planted = [{"Statement": [statement]}]
    assert denied(planted, calls) == [f"kms:DescribeKey on {key}"]
    assert unused(planted, calls) == ["Grant: kms:DescribeKey"]
    wrong = Call("kms:DescribeKey", (key,), {"kms:GrantIsForAWSResource": "true"})
    assert reference.wrong(wrong) == ["kms:DescribeKey: key kms:GrantIsForAWSResource"]


@pytest.mark.parametrize(
    ("role", "call"),
    [
        (
            "SwitchRole",
            Call("sagemaker:DeleteEndpoint", ("arn:aws:sagemaker:us-east-1:123456789012:endpoint/x",)),
        ),
        (
            "SwitchRole",
            Call(
                "cloudformation:UpdateStack",
                ("arn:aws:cloudformation:us-east-1:123456789012:stack/Peagle-x/1",),
                {"cloudformation:TemplateUrl": "https://s3/template"},
            ),
        ),
        (
            "LifetimeProviderRole",
            Call(
                "iam:PassRole",
                ("arn:aws:iam::123456789012:role/peagle-scheduler-us-east-1",),
                {"iam:PassedToService": "lambda.amazonaws.com"},
            ),
        ),
        (
            "LifetimeProviderRole",
            Call("kms:CreateGrant", (GIVEN["EndpointKeyArns"],), {"kms:GrantIsForAWSResource": "false"}),
        ),
        ("ExecutionRole", Call("cloudwatch:PutMetricData", keys={"cloudwatch:namespace": "billing"})),
    ],
    ids=lambda value: value.action if isinstance(value, Call) else value,
)
def test_a_call_with_other_keys_isdenied(role: str, call: Call) -> None:
    assert denied(_policies()[role], [call]) == [f"{call.action} on {call.resources[0]}"]
