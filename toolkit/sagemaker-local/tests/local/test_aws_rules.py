"""Rules of AWS that an audit found missing: roles, tags, schedules, scaling, events, identities."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from botocore.exceptions import ClientError

from tests.local.serving import Server

IMAGE = "123456789012.dkr.ecr.us-east-1.amazonaws.com/vllm:latest"


def refused(call: Callable[[], Any]) -> tuple[str, str, int]:
    with pytest.raises(ClientError) as raised:
        call()
    answer = raised.value.response
    return answer["Error"]["Code"], answer["Error"]["Message"], answer["ResponseMetadata"]["HTTPStatusCode"]


def test_create_model_refuses_a_role_that_does_not_exist(server: Server, sagemaker: Any) -> None:
    role = "arn:aws:iam::123456789012:role/absent"
    model = {"ModelName": "m", "PrimaryContainer": {"Image": IMAGE}, "ExecutionRoleArn": role}
    code, message, _ = refused(lambda: sagemaker.create_model(**model))
    assert code == "ValidationException"
    assert message.startswith(f"Could not assume role {role}.")


def test_create_model_refuses_a_role_that_sagemaker_may_not_assume(server: Server, sagemaker: Any) -> None:
    role = server.status.scheduler_role_arn
    model = {"ModelName": "m", "PrimaryContainer": {"Image": IMAGE}, "ExecutionRoleArn": role}
    assert refused(lambda: sagemaker.create_model(**model))[0] == "ValidationException"


def test_tags_may_not_begin_with_aws(server: Server, sagemaker: Any) -> None:
    model = {
        "ModelName": "tagged",
        "PrimaryContainer": {"Image": IMAGE},
        "ExecutionRoleArn": server.status.role_arn,
    }
    arn = sagemaker.create_model(**model)["ModelArn"]
    tags = [{"Key": "aws:mine", "Value": "1"}]
    code, message, _ = refused(lambda: sagemaker.add_tags(ResourceArn=arn, Tags=tags))
    assert (code, "aws: prefixed" in message) == ("ValidationException", True)
    assert sagemaker.describe_model(ModelName="tagged")["PrimaryContainer"]["Mode"] == "SingleModel"
    sagemaker.delete_model(ModelName="tagged")


def schedule(server: Server, expression: str) -> dict[str, Any]:
    return {
        "Name": "checked",
        "ScheduleExpression": expression,
        "FlexibleTimeWindow": {"Mode": "OFF"},
        "State": "DISABLED",
        "Target": {
            "Arn": "arn:aws:scheduler:::aws-sdk:sagemaker:deleteEndpoint",
            "RoleArn": server.status.scheduler_role_arn,
            "Input": "{}",
        },
    }


@pytest.mark.parametrize(
    "expression", ["every day", "rate(0 minutes)", "rate(5)", "at(2026-13-01T00:00:00)", "cron(0 8 * * ?)"]
)
def test_create_schedule_refuses_an_expression_that_does_not_parse(server: Server, expression: str) -> None:
    client = server.client("scheduler")
    code, message, _ = refused(lambda: client.create_schedule(**schedule(server, expression)))
    assert (code, message) == ("ValidationException", f"Invalid Schedule Expression {expression}.")


@pytest.mark.parametrize("expression", ["rate(10 minutes)", "cron(0 8 * * ? *)"])
def test_a_start_older_than_five_minutes_is_refused(server: Server, expression: str) -> None:
    client = server.client("scheduler")
    now = datetime.strptime(
        client.list_schedules()["ResponseMetadata"]["HTTPHeaders"]["date"], "%a, %d %b %Y %H:%M:%S GMT"
    ).replace(tzinfo=UTC)
    request = schedule(server, expression)
    old = {**request, "StartDate": now - timedelta(minutes=6)}
    expected = ("ValidationException", "The StartDate you specify cannot be earlier than 5 minutes ago.")
    assert refused(lambda: client.create_schedule(**old))[:2] == expected
    client.create_schedule(**request, StartDate=now - timedelta(minutes=4))
    try:
        assert refused(lambda: client.update_schedule(**old))[:2] == expected
    finally:
        client.delete_schedule(Name="checked")


def test_a_second_schedule_of_a_name_is_a_409(server: Server) -> None:
    client = server.client("scheduler")
    client.create_schedule(**schedule(server, "cron(0 8 * * ? *)"))
    try:
        assert refused(lambda: client.create_schedule(**schedule(server, "rate(1 hour)")))[::2] == (
            "ConflictException",
            409,
        )
    finally:
        client.delete_schedule(Name="checked")


def test_the_caller_is_an_iam_user(server: Server) -> None:
    caller = server.client("sts").get_caller_identity()
    assert re.fullmatch(r"arn:aws:iam::123456789012:user/[\w+=,.@-]+", caller["Arn"])
    assert re.fullmatch(r"AIDA[A-Z0-9]{16,17}", caller["UserId"])


def test_a_scalable_target_needs_its_variant(server: Server) -> None:
    scaling = server.client("application-autoscaling")
    target = {
        "ServiceNamespace": "sagemaker",
        "ResourceId": "endpoint/absent/variant/AllTraffic",
        "ScalableDimension": "sagemaker:variant:DesiredInstanceCount",
    }
    code, _, _ = refused(lambda: scaling.register_scalable_target(**target, MinCapacity=1, MaxCapacity=2))
    assert code == "ValidationException"


def test_target_tracking_makes_its_alarms_and_deregistering_deletes_them(server: Server) -> None:
    name = server.deploy()
    scaling, cloudwatch = server.client("application-autoscaling"), server.client("cloudwatch")
    target = {
        "ServiceNamespace": "sagemaker",
        "ResourceId": f"endpoint/{name}/variant/AllTraffic",
        "ScalableDimension": "sagemaker:variant:DesiredInstanceCount",
    }
    scaling.register_scalable_target(**target, MinCapacity=1, MaxCapacity=2)
    for value in (30.0, 40.0):  # the second call replaces the policy and its alarms
        put_scaling_policy = scaling.put_scaling_policy(
            **target,
            PolicyName="track",
            PolicyType="TargetTrackingScaling",
            TargetTrackingScalingPolicyConfiguration={
                "TargetValue": value,
                "PredefinedMetricSpecification": {
                    "PredefinedMetricType": "SageMakerVariantInvocationsPerInstance"
                },
            },
        )
    prefix = f"TargetTracking-endpoint/{name}/variant/AllTraffic-Alarm"
    alarms = cloudwatch.describe_alarms(AlarmNamePrefix=prefix)["MetricAlarms"]
    assert {alarm["AlarmName"] for alarm in alarms} == {
        alarm["AlarmName"] for alarm in put_scaling_policy["Alarms"]
    }
    assert {(a["MetricName"], a["Threshold"], a["EvaluationPeriods"], a["StateValue"]) for a in alarms} == {
        ("InvocationsPerInstance", 40.0, 3, "INSUFFICIENT_DATA"),
        ("InvocationsPerInstance", 36.0, 15, "INSUFFICIENT_DATA"),
    }
    scaling.deregister_scalable_target(**target)
    assert not cloudwatch.describe_alarms(AlarmNamePrefix=prefix)["MetricAlarms"]


def test_an_at_in_the_past_is_refused(server: Server) -> None:
    scheduler = server.client("scheduler")
    target = {
        "Arn": "arn:aws:scheduler:::aws-sdk:sagemaker:deleteEndpoint",
        "RoleArn": server.status.scheduler_role_arn,
        "Input": '{"EndpointName": "e"}',
    }
    request = {"Name": "past", "FlexibleTimeWindow": {"Mode": "OFF"}, "Target": target}
    with pytest.raises(ClientError, match="its time has passed"):
        scheduler.create_schedule(**request, ScheduleExpression="at(2020-01-01T00:00:00)")
    scheduler.create_schedule(**request, ScheduleExpression="at(2099-01-01T00:00:00)")
    scheduler.delete_schedule(Name="past")


def test_an_image_is_described_with_a_digest(server: Server, sagemaker: Any) -> None:
    described = sagemaker.describe_endpoint(EndpointName=server.deploy())
    [image] = described["ProductionVariants"][0]["DeployedImages"]
    assert re.fullmatch(r"\S+/vllm@sha256:[0-9a-f]{64}", image["ResolvedImage"])
