"""Rules of AWS that an audit found missing: roles, tags, schedules, scaling, events, identities."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from botocore.exceptions import ClientError

from tests.local.serving import Server
from tests.local.test_request_checks import refused, schedule

IMAGE = "123456789012.dkr.ecr.us-east-1.amazonaws.com/vllm:latest"


def test_create_model_refuses_a_role_that_sagemaker_may_not_assume(server: Server, sagemaker: Any) -> None:
    for role in ("arn:aws:iam::123456789012:role/absent", server.status.scheduler_role_arn):
        model = {"ModelName": "m", "PrimaryContainer": {"Image": IMAGE}, "ExecutionRoleArn": role}
        code, message = refused(sagemaker.create_model, **model)
        assert code == "ValidationException"
        assert message.startswith(f"Could not assume role {role}.")


def test_tags_may_not_begin_with_aws(server: Server, sagemaker: Any) -> None:
    model = {
        "ModelName": "tagged",
        "PrimaryContainer": {"Image": IMAGE},
        "ExecutionRoleArn": server.status.role_arn,
    }
    arn = sagemaker.create_model(**model)["ModelArn"]
    tags = [{"Key": "aws:mine", "Value": "1"}]
    code, message = refused(sagemaker.add_tags, ResourceArn=arn, Tags=tags)
    assert (code, "aws: prefixed" in message) == ("ValidationException", True)
    assert sagemaker.describe_model(ModelName="tagged")["PrimaryContainer"]["Mode"] == "SingleModel"
    sagemaker.delete_model(ModelName="tagged")


@pytest.mark.parametrize("expression", ["rate(10 minutes)", "cron(0 8 * * ? *)"])
def test_a_start_older_than_five_minutes_is_refused(server: Server, expression: str) -> None:
    client = server.client("scheduler")
    now = datetime.strptime(
        client.list_schedules()["ResponseMetadata"]["HTTPHeaders"]["date"], "%a, %d %b %Y %H:%M:%S GMT"
    ).replace(tzinfo=UTC)
    request = schedule(server, Name="checked", ScheduleExpression=expression)
    old = {**request, "StartDate": now - timedelta(minutes=6)}
    expected = ("ValidationException", "The StartDate you specify cannot be earlier than 5 minutes ago.")
    assert refused(client.create_schedule, **old) == expected
    client.create_schedule(**request, StartDate=now - timedelta(minutes=4))
    try:
        assert refused(client.update_schedule, **old) == expected
    finally:
        client.delete_schedule(Name="checked")


def test_a_second_schedule_of_a_name_is_a_409(server: Server) -> None:
    client = server.client("scheduler")
    client.create_schedule(**schedule(server, Name="checked"))
    try:
        with pytest.raises(ClientError) as raised:
            client.create_schedule(**schedule(server, Name="checked", ScheduleExpression="rate(1 hour)"))
        answer = raised.value.response
        assert answer["Error"]["Code"] == "ConflictException"
        assert answer["ResponseMetadata"]["HTTPStatusCode"] == 409
    finally:
        client.delete_schedule(Name="checked")


def test_the_caller_is_an_iam_user(server: Server) -> None:
    caller = server.client("sts").get_caller_identity()
    assert re.fullmatch(r"arn:aws:iam::123456789012:user/[\w+=,.@-]+", caller["Arn"])
    assert re.fullmatch(r"AIDA[A-Z0-9]{16,17}", caller["UserId"])


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


def test_an_image_is_described_with_a_digest(server: Server, sagemaker: Any) -> None:
    described = sagemaker.describe_endpoint(EndpointName=server.deploy())
    [image] = described["ProductionVariants"][0]["DeployedImages"]
    assert re.fullmatch(r"\S+/vllm@sha256:[0-9a-f]{64}", image["ResolvedImage"])
