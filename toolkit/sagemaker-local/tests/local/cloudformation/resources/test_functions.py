"""Functions with their permissions and asynchronous settings, and schedules and rules, from templates."""

from __future__ import annotations

import io
import json
import zipfile
from typing import Any

import pytest
from botocore.exceptions import ClientError

from sagemaker_local.cloudformation.resources.base import Created, ResourceFailure
from tests.local.cloudformation.resources.conftest import Stack

LETTERS = "arn:aws:sqs:us-east-1:123456789012:letters-of-functions"
SEND = {"Effect": "Allow", "Action": "sqs:SendMessage", "Resource": LETTERS}
INLINE = {"ZipFile": "def handler(event, context):\n    return 'inline'"}


def function(stack: Stack, **more: Any) -> tuple[Created, dict[str, Any]]:
    properties = {
        "Role": stack.role("lambda.amazonaws.com", SEND),
        "Runtime": "python3.13",
        "Handler": "index.handler",
        "Code": INLINE,
        "Timeout": "20",
        **more,
    }
    return stack.create("AWS::Lambda::Function", **properties), properties


def called(stack: Stack, made: Created) -> Any:
    return json.loads(stack.client("lambda").invoke(FunctionName=made.physical_id)["Payload"].read())


def test_source_in_the_template_becomes_a_package_and_new_code_replaces_it(stack: Stack) -> None:
    made, old = function(stack, FunctionName="inline", DeadLetterConfig={"TargetArn": LETTERS})
    assert made.attributes["Arn"] == "arn:aws:lambda:us-east-1:123456789012:function:inline"
    assert called(stack, made) == "inline"
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:
        archive.writestr("index.py", "import os\ndef handler(event, context):\n    return os.environ['WORD']")
    s3 = stack.client("s3")
    s3.create_bucket(Bucket="packages")
    s3.put_object(Bucket="packages", Key="p.zip", Body=packed.getvalue())
    new = {
        **old,
        "Code": {"S3Bucket": "packages", "S3Key": "p.zip"},
        "Environment": {"Variables": {"WORD": 7}},
        "ReservedConcurrentExecutions": 1,
    }
    del new["DeadLetterConfig"], new["Timeout"]
    stack.update("AWS::Lambda::Function", made, old, new)
    assert called(stack, made) == "7"
    client = stack.client("lambda")
    kept = client.get_function_configuration(FunctionName="inline")
    assert kept["Timeout"] == 3
    assert "DeadLetterConfig" not in kept
    assert client.get_function_concurrency(FunctionName="inline")["ReservedConcurrentExecutions"] == 1
    stack.delete("AWS::Lambda::Function", made)
    stack.delete("AWS::Lambda::Function", made)
    with pytest.raises(ClientError, match="ResourceNotFoundException"):
        client.get_function(FunctionName="inline")


def test_what_aws_refuses_of_a_function_is_refused(stack: Stack) -> None:
    made, properties = function(stack)
    name = made.physical_id
    assert name.startswith("Peagle-s-It-")
    with pytest.raises(ResourceFailure, match=f"{name} already exists"):
        stack.create("AWS::Lambda::Function", **properties, FunctionName=name)
    other = stack.role("sagemaker.amazonaws.com")
    with pytest.raises(
        ResourceFailure, match="The role defined for the function cannot be assumed by Lambda"
    ):
        stack.create("AWS::Lambda::Function", **{**properties, "Role": other})
    code = {"S3Bucket": "no-such-bucket", "S3Key": "k"}
    with pytest.raises(ResourceFailure, match="NoSuch"):
        stack.create("AWS::Lambda::Function", **{**properties, "Code": code})
    wrong = {"TargetArn": "arn:aws:sqs:us-east-1:123456789012:others"}
    with pytest.raises(ResourceFailure, match="does not have permissions to call SendMessage on SQS"):
        stack.create("AWS::Lambda::Function", **properties, DeadLetterConfig=wrong)
    with pytest.raises(ResourceFailure, match="does not set SnapStart of AWS::Lambda::Function"):
        stack.create("AWS::Lambda::Function", **properties, SnapStart={"ApplyOn": "None"})


def test_a_permission_and_asynchronous_settings(stack: Stack) -> None:
    made, _ = function(stack)
    name = made.physical_id
    client = stack.client("lambda")
    answer = {"FunctionName": name, "Action": "lambda:InvokeFunction", "Principal": "sns.amazonaws.com"}
    permission = stack.create("AWS::Lambda::Permission", **answer)
    policy = json.loads(client.get_policy(FunctionName=name)["Policy"])
    assert [statement["Sid"] for statement in policy["Statement"]] == [permission.physical_id]
    old = {"FunctionName": name, "Qualifier": "$LATEST", "MaximumRetryAttempts": "1"}
    events = stack.create("AWS::Lambda::EventInvokeConfig", **old)
    new = {**old, "MaximumRetryAttempts": 0, "MaximumEventAgeInSeconds": 300}
    stack.update("AWS::Lambda::EventInvokeConfig", events, old, new)
    kept = client.get_function_event_invoke_config(FunctionName=name)
    assert (kept["MaximumRetryAttempts"], kept["MaximumEventAgeInSeconds"]) == (0, 300)
    for type_name, each, properties in (
        ("AWS::Lambda::EventInvokeConfig", events, new),
        ("AWS::Lambda::Permission", permission, answer),
    ):
        stack.delete(type_name, each, **properties)
        stack.delete(type_name, each, **properties)
    with pytest.raises(ResourceFailure, match=r"qualifier \$LATEST only, found live"):
        stack.create("AWS::Lambda::EventInvokeConfig", FunctionName=name, Qualifier="live")


def test_a_schedule_is_changed_in_its_group(stack: Stack) -> None:
    role = stack.role("scheduler.amazonaws.com")
    target = {"Arn": "arn:aws:lambda:us-east-1:123456789012:function:f", "RoleArn": role, "Input": "{}"}
    stack.create("AWS::Scheduler::ScheduleGroup", Name="group")
    old = {
        "Name": "sweep",
        "GroupName": "group",
        "ScheduleExpression": "rate(5 minutes)",
        "StartDate": "2030-01-01T00:00:00Z",
        "FlexibleTimeWindow": {"Mode": "OFF"},
        "Target": {**target, "RetryPolicy": {"MaximumRetryAttempts": "2", "MaximumEventAgeInSeconds": 300}},
    }
    created = stack.create("AWS::Scheduler::Schedule", **old)
    assert created.physical_id == "sweep"
    scheduler = stack.client("scheduler")
    new = {**old, "ScheduleExpression": "rate(10 minutes)"}
    stack.update("AWS::Scheduler::Schedule", created, old, new)
    schedule = scheduler.get_schedule(Name="sweep", GroupName="group")
    assert schedule["Arn"] == created.attributes["Arn"]
    assert schedule["ScheduleExpression"] == "rate(10 minutes)"
    assert schedule["Target"]["RetryPolicy"]["MaximumRetryAttempts"] == 2
    with pytest.raises(ResourceFailure, match="does not change GroupName"):
        stack.update("AWS::Scheduler::Schedule", created, old, {**old, "GroupName": "default"})
    stack.delete("AWS::Scheduler::Schedule", created, **new)
    stack.delete("AWS::Scheduler::Schedule", created, **new)
    stack.delete("AWS::Scheduler::ScheduleGroup", "group")


def test_a_schedule_whose_role_trusts_somebody_else_is_refused(stack: Stack) -> None:
    role = stack.role("lambda.amazonaws.com")
    with pytest.raises(ResourceFailure, match="must allow AWS EventBridge Scheduler to assume the role"):
        stack.create(
            "AWS::Scheduler::Schedule",
            ScheduleExpression="rate(5 minutes)",
            FlexibleTimeWindow={"Mode": "OFF"},
            Target={"Arn": "arn:aws:lambda:us-east-1:123456789012:function:f", "RoleArn": role},
        )
