"""CloudFormation on a running server, as boto3 meets it."""

from __future__ import annotations

import json
import urllib.request
from typing import Any

import pytest
from botocore.exceptions import ClientError

from tests.local.serving import Server

QUEUE = {"Type": "AWS::SQS::Queue", "Properties": {"QueueName": {"Ref": "Name"}, "VisibilityTimeout": 30}}


def template(**more: Any) -> dict[str, Any]:
    return {
        "Parameters": {"Name": {"Type": "AWS::SSM::Parameter::Value<String>"}},
        "Resources": {"Queue": QUEUE, **more},
        "Outputs": {"Arn": {"Value": {"Fn::GetAtt": ["Queue", "Arn"]}}},
    }


@pytest.fixture
def cloudformation(server: Server) -> Any:
    return server.client("cloudformation")


def test_a_stack_from_s3_to_its_end(server: Server, cloudformation: Any) -> None:
    s3, sqs = server.client("s3"), server.client("sqs")
    server.client("ssm").put_parameter(Name="/queue/name", Value="from-the-store", Type="String")
    s3.create_bucket(Bucket="templates")
    s3.put_object(Bucket="templates", Key="a/t.json", Body=json.dumps(template()).encode())
    name = [{"ParameterKey": "Name", "ParameterValue": "/queue/name"}]
    cloudformation.create_stack(
        StackName="http", TemplateURL=f"{server.url}/templates/a/t.json", Parameters=name
    )
    quickly = {"Delay": 1, "MaxAttempts": 60}
    cloudformation.get_waiter("stack_create_complete").wait(StackName="http", WaiterConfig=quickly)
    (stack,) = cloudformation.describe_stacks(StackName="http")["Stacks"]
    assert stack["Outputs"][0]["OutputValue"].endswith(":from-the-store")
    assert stack["Parameters"][0]["ResolvedValue"] == "from-the-store"
    url = sqs.get_queue_url(QueueName="from-the-store")["QueueUrl"]
    changed = template(Second={"Type": "AWS::SNS::Topic"})
    changed["Resources"]["Queue"] = {**QUEUE, "Properties": {**QUEUE["Properties"], "VisibilityTimeout": 60}}  # type: ignore[dict-item]
    kept = [{"ParameterKey": "Name", "UsePreviousValue": True}]
    cloudformation.update_stack(StackName="http", TemplateBody=json.dumps(changed), Parameters=kept)
    cloudformation.get_waiter("stack_update_complete").wait(StackName="http", WaiterConfig=quickly)
    attributes = sqs.get_queue_attributes(QueueUrl=url, AttributeNames=["VisibilityTimeout"])["Attributes"]
    assert attributes == {"VisibilityTimeout": "60"}
    types = {
        row["ResourceType"]
        for row in cloudformation.list_stack_resources(StackName="http")["StackResourceSummaries"]
    }
    assert types == {"AWS::SQS::Queue", "AWS::SNS::Topic"}
    assert json.loads(json.dumps(cloudformation.get_template(StackName="http")["TemplateBody"])) == changed
    cloudformation.delete_stack(StackName="http")
    cloudformation.get_waiter("stack_delete_complete").wait(StackName=stack["StackId"], WaiterConfig=quickly)
    with pytest.raises(ClientError, match=r"(?i)does not exist|nonexistent"):
        sqs.get_queue_url(QueueName="from-the-store")


def test_refusals_carry_aws_s_codes(cloudformation: Any) -> None:
    with pytest.raises(ClientError) as raised:
        cloudformation.describe_stacks(StackName="nobody")
    error = raised.value.response["Error"]
    assert (error["Code"], error["Message"]) == ("ValidationError", "Stack with id nobody does not exist")
    with pytest.raises(cloudformation.exceptions.ChangeSetNotFoundException):
        cloudformation.describe_change_set(ChangeSetName="arn:aws:cloudformation:us-east-1:1:changeSet/c/1")
    with pytest.raises(ClientError, match="S3 error: The specified key does not exist"):
        cloudformation.create_stack(
            StackName="gone", TemplateURL="https://s3.us-east-1.amazonaws.com/nobody-s/t.json"
        )


def test_a_property_that_aws_does_not_have_is_refused(cloudformation: Any) -> None:
    body = {"Resources": {"M": {"Type": "AWS::SageMaker::Model", "Properties": {"Bogus": {}}}}}
    change_set = cloudformation.create_change_set(
        StackName="unsupported", ChangeSetName="c", ChangeSetType="CREATE", TemplateBody=json.dumps(body)
    )
    result = cloudformation.describe_change_set(ChangeSetName=change_set["Id"])
    assert result["Status"] == "FAILED"
    (event,) = cloudformation.describe_events(StackName="unsupported", ChangeSetName="c")["OperationEvents"]
    assert event["ValidationStatusReason"] == "Encountered unsupported property Bogus"
    cloudformation.delete_stack(StackName="unsupported")


def test_a_call_needs_a_signature_for_the_region(server: Server) -> None:
    elsewhere = server.client("cloudformation", region_name="eu-west-1")
    with pytest.raises(ClientError, match="Credential should be scoped to a valid region"):
        elsewhere.list_stacks()


def test_the_local_clock_can_be_asked(server: Server) -> None:
    with urllib.request.urlopen(f"{server.url}/_peagle/clock") as answer:
        assert json.loads(answer.read()).keys() == {"now"}
