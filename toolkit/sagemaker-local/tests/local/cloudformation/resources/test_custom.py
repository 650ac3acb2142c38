"""Custom resources: the real provider code gets the request and answers by URL."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from sagemaker_local.cloudformation.resources.base import Created, ResourceFailure
from sagemaker_local.cloudformation.resources.custom import as_text
from sagemaker_local.cloudformation.resources.types import handler_for
from tests.local.cloudformation.resources.conftest import Stack

# Answers as its property `Do` says, and writes down what it was asked.
PROVIDER = """
import json, time, urllib.request
import boto3

def handler(event, context):
    table = boto3.client("ssm")
    table.put_parameter(Name="/asked/" + event["RequestId"], Type="String", Value=json.dumps(event))
    answer = {
        "Status": "SUCCESS",
        "PhysicalResourceId": event.get("PhysicalResourceId", "made"),
        "StackId": event["StackId"],
        "RequestId": event["RequestId"],
        "LogicalResourceId": event["LogicalResourceId"],
        "Data": {"Arn": "arn:made", "Asked": event["RequestId"]},
    }
    do = event["ResourceProperties"].get("Do")
    if do == "raise":
        raise RuntimeError("broken provider")
    if do == "silence":
        return
    if do == "hang":
        time.sleep(3600)
    if do == "refuse":
        answer |= {"Status": "FAILED", "Reason": "no such model", "PhysicalResourceId": "half-made"}
        del answer["Data"]
    if do == "replace":
        answer["PhysicalResourceId"] = "another"
    if do == "much":
        answer["Data"]["Much"] = "x" * 5000
    body = json.dumps(answer).encode()
    request = urllib.request.Request(event["ResponseURL"], data=body, method="PUT")
    request.add_header("Content-Type", "")
    urllib.request.urlopen(request)
"""
TYPE = "Custom::PeagleModel"


@pytest.fixture
def token(stack: Stack) -> str:
    created = stack.create(
        "AWS::Lambda::Function",
        Role=stack.role("lambda.amazonaws.com"),
        Runtime="python3.13",
        Handler="index.handler",
        Code={"ZipFile": PROVIDER},
        Timeout=60,
    )
    return str(created.attributes["Arn"])


def asked(stack: Stack, made: Created) -> dict[str, Any]:
    kept = stack.client("ssm").get_parameter(Name=f"/asked/{made.attributes['Asked']}")
    return dict(json.loads(kept["Parameter"]["Value"]))


def test_a_provider_is_asked_to_create_update_and_delete(stack: Stack, token: str) -> None:
    old = {"ServiceToken": token, "Count": 3, "Flag": True, "Deep": [{"N": 1.5}]}
    created = stack.create(TYPE, **old)
    assert (created.physical_id, created.attributes["Arn"]) == ("made", "arn:made")
    request = asked(stack, created)
    assert request["RequestType"] == "Create"
    assert request["ResourceType"] == TYPE
    assert (request["StackId"], request["LogicalResourceId"]) == (stack.context.stack_id, "It")
    properties = {"ServiceToken": token, "Count": "3", "Flag": "true", "Deep": [{"N": "1.5"}]}
    assert request["ResourceProperties"] == properties
    new = {**old, "Count": 4}
    request = asked(stack, stack.update(TYPE, created, old, new))
    assert (request["RequestType"], request["PhysicalResourceId"]) == ("Update", "made")
    assert request["OldResourceProperties"] == properties
    assert request["ResourceProperties"]["Count"] == "4"
    replaced = stack.update(TYPE, created, new, {**new, "Do": "replace"})
    assert replaced.physical_id == "another"
    stack.delete(TYPE, created, **new)


def test_a_refusal_is_told_and_names_what_a_rollback_is_to_delete(stack: Stack, token: str) -> None:
    with pytest.raises(ResourceFailure) as raised:
        stack.create(TYPE, ServiceToken=token, Do="refuse")
    assert "Received response status [FAILED] from custom resource" in raised.value.reason
    assert "Message returned: no such model" in raised.value.reason
    assert raised.value.physical_id == "half-made"


@pytest.mark.parametrize(
    ("do", "says", "timeout_s"),
    [
        ("raise", "did not receive a response.*broken provider", "120"),
        ("silence", "did not receive a response", "1"),
        ("much", "Response object is too long", "120"),
    ],
)
def test_a_provider_that_does_not_answer_fails_the_resource(
    stack: Stack, token: str, do: str, says: str, timeout_s: str
) -> None:
    with pytest.raises(ResourceFailure, match=says):
        stack.create(TYPE, ServiceToken=token, Do=do, ServiceTimeout=timeout_s)


def test_the_service_timeout_ends_the_wait_while_the_function_still_runs(stack: Stack, token: str) -> None:
    with pytest.raises(ResourceFailure, match="did not receive a response") as raised:
        stack.create(TYPE, ServiceToken=token, Do="hang", ServiceTimeout="1")
    # The function's own limit is 60 seconds; its error would be in the reason.
    assert "The function ended with an error" not in raised.value.reason


def test_another_provider_for_a_standing_resource_is_refused(stack: Stack, token: str) -> None:
    created = Created("made")
    with pytest.raises(ResourceFailure, match="Modifying service token is not allowed"):
        stack.update(TYPE, created, {"ServiceToken": token}, {"ServiceToken": f"{token}2"})


def test_a_provider_that_is_not_there_fails_creation_and_deletion(stack: Stack) -> None:
    token = "arn:aws:lambda:us-east-1:123456789012:function:nobody"
    with pytest.raises(ResourceFailure, match="Function not found"):
        stack.create(TYPE, ServiceToken=token)
    with pytest.raises(ResourceFailure, match="Function not found"):
        stack.delete(TYPE, "made", ServiceToken=token)


def test_waiting_ends_when_the_stack_s_work_is_ended(stack: Stack, token: str) -> None:
    class Ended(Exception):
        pass

    def ended(seconds: float) -> None:
        raise Ended

    handler = handler_for(TYPE)
    assert handler is not None
    context = replace(stack.context, pause=ended)
    with pytest.raises(Ended):
        handler.create(context, "It", {"ServiceToken": token, "Do": "silence"})


def test_properties_reach_a_provider_as_text() -> None:
    assert as_text({"a": [1, 2.5, True, None, "x"], "b": {"c": False}}) == {
        "a": ["1", "2.5", "true", None, "x"],
        "b": {"c": "false"},
    }
