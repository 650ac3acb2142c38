"""Calls that botocore's clients send and AWS refuses: they are refused here too, over HTTP."""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from botocore.exceptions import ClientError
from botocore.loaders import Loader

from sagemaker_local.control.requests import compiled
from tests.local.serving import Server

VARIANT = "sagemaker:variant:DesiredInstanceCount"
TRACKING = {
    "PolicyName": "track",
    "PolicyType": "TargetTrackingScaling",
    "TargetTrackingScalingPolicyConfiguration": {
        "TargetValue": 3.0,
        "PredefinedMetricSpecification": {"PredefinedMetricType": "SageMakerVariantInvocationsPerInstance"},
    },
}


@pytest.mark.parametrize("service", ["scheduler", "application-autoscaling", "logs", "sagemaker"])
def test_every_pattern_of_the_models_is_readable(service: str) -> None:
    shapes = Loader().load_service_model(service, "service-2")["shapes"]
    patterns = {shape["pattern"] for shape in shapes.values() if "pattern" in shape}
    assert all(compiled(pattern) for pattern in patterns)
    assert len(patterns) > 2


def test_characters_beyond_the_first_plane_fit_javas_ranges() -> None:
    pattern = compiled(r"[\u0020-\uD7FF\uE000-\uFFFD\uD800\uDC00-\uDBFF\uDFFF\r\n\t]*")
    assert pattern.fullmatch("endpoint/ä/\U0001f600")
    assert not pattern.fullmatch("a\x00b")
    printable = compiled(r"\p{Print}+")
    assert (bool(printable.fullmatch("two words")), bool(printable.fullmatch("ä"))) == (True, False)


def refused(call: Callable[..., Any], **asked: Any) -> tuple[str, str]:
    with pytest.raises(ClientError) as raised:
        call(**asked)
    answer = raised.value.response
    assert answer["ResponseMetadata"]["HTTPStatusCode"] == 400
    return answer["Error"]["Code"], answer["Error"]["Message"]


def schedule(server: Server, **changes: Any) -> dict[str, Any]:
    return {
        "Name": "plain",
        "ScheduleExpression": "cron(0 8 * * ? *)",
        "FlexibleTimeWindow": {"Mode": "OFF"},
        "State": "DISABLED",
        "Target": {
            "Arn": "arn:aws:scheduler:::aws-sdk:sagemaker:deleteEndpoint",
            "RoleArn": server.status.scheduler_role_arn,
            "Input": "{}",
        },
    } | changes


@pytest.mark.parametrize(
    ("changes", "member", "constraint"),
    [
        ({"Name": "two words"}, "name", "regular expression pattern"),
        ({"Name": "a" * 65}, "name", "length less than or equal to 64"),
        ({"Name": "umläut"}, "name", "regular expression pattern"),
        ({"GroupName": "a group"}, "groupName", "regular expression pattern"),
        ({"Description": "d" * 513}, "description", "length less than or equal to 512"),
        ({"State": "PAUSED"}, "state", "enum value set: [ENABLED, DISABLED]"),
        ({"FlexibleTimeWindow": {"Mode": "SOON"}}, "flexibleTimeWindow.mode", "enum value set"),
        (
            {"FlexibleTimeWindow": {"Mode": "FLEXIBLE", "MaximumWindowInMinutes": 1441}},
            "flexibleTimeWindow.maximumWindowInMinutes",
            "value less than or equal to 1440",
        ),
        ({"ActionAfterCompletion": "KEEP"}, "actionAfterCompletion", "enum value set"),
    ],
)
@pytest.mark.parametrize("verb", ["create", "update"])
def test_a_schedule_that_its_model_forbids(
    server: Server, verb: str, changes: dict[str, Any], member: str, constraint: str
) -> None:
    client = server.client("scheduler")
    code, message = refused(getattr(client, f"{verb}_schedule"), **schedule(server, **changes))
    assert code == "ValidationException"
    assert message.startswith("1 validation error detected: Value ")
    assert f"at '{member}' failed to satisfy constraint" in message
    assert constraint in message
    names = [row["Name"] for row in client.list_schedules()["Schedules"]]
    assert changes.get("Name", "plain") not in names


def test_other_calls_about_schedules_are_checked_too(server: Server) -> None:
    client = server.client("scheduler")
    for call in (client.get_schedule, client.delete_schedule):
        assert refused(call, Name="two words")[0] == "ValidationException"
    assert refused(client.list_schedules, MaxResults=101)[0] == "ValidationException"
    assert refused(client.list_schedules, NamePrefix="a b")[0] == "ValidationException"
    assert refused(client.create_schedule_group, Name="two words")[0] == "ValidationException"


def test_capacities_of_a_scalable_target(server: Server) -> None:
    endpoint = server.deploy()
    scaling = server.client("application-autoscaling")
    place = {
        "ServiceNamespace": "sagemaker",
        "ResourceId": f"endpoint/{endpoint}/variant/AllTraffic",
        "ScalableDimension": VARIANT,
    }
    register = scaling.register_scalable_target
    assert refused(register, **place, MinCapacity=3, MaxCapacity=2)[0] == "ValidationException"
    assert refused(register, **place, MinCapacity=1)[0] == "ValidationException"
    assert not scaling.describe_scalable_targets(ServiceNamespace="sagemaker")["ScalableTargets"]
    absent = place | {"ResourceId": "endpoint/absent/variant/AllTraffic"}
    assert refused(register, **absent, MinCapacity=1, MaxCapacity=2)[0] == "ValidationException"
    register(**place, MinCapacity=1, MaxCapacity=2)
    assert refused(register, **place, MaxCapacity=0)[0] == "ValidationException"
    register(**place, MaxCapacity=4)
    row = scaling.describe_scalable_targets(ServiceNamespace="sagemaker")["ScalableTargets"][0]
    assert (row["MinCapacity"], row["MaxCapacity"]) == (1, 4)
    scaling.deregister_scalable_target(**place)


def test_what_needs_a_scalable_target_that_is_not_registered(server: Server) -> None:
    scaling = server.client("application-autoscaling")
    place = {
        "ServiceNamespace": "sagemaker",
        "ResourceId": "endpoint/absent/variant/AllTraffic",
        "ScalableDimension": VARIANT,
    }
    code, message = refused(scaling.put_scaling_policy, **place, **TRACKING)
    assert (code, message) == (
        "ObjectNotFoundException",
        "No scalable target registered for service namespace: sagemaker, resource ID: "
        f"endpoint/absent/variant/AllTraffic, scalable dimension: {VARIANT}",
    )
    for call, more in (
        (scaling.deregister_scalable_target, {}),
        (scaling.delete_scaling_policy, {"PolicyName": "track"}),
    ):
        assert refused(call, **place, **more)[0] == "ObjectNotFoundException"
    assert refused(scaling.describe_scaling_policies, ServiceNamespace="elsewhere")[0] == (
        "ValidationException"
    )


def test_log_events_of_streams_with_a_prefix(server: Server) -> None:
    logs = server.client("logs")
    group = "/checked/streams"
    logs.create_log_group(logGroupName=group)
    now = int(time.time() * 1000)
    for stream in ("a/1", "a/2", "b/1"):
        logs.create_log_stream(logGroupName=group, logStreamName=stream)
        event = {"timestamp": now, "message": f"of {stream}"}
        logs.put_log_events(logGroupName=group, logStreamName=stream, logEvents=[event])

    def messages(**asked: Any) -> list[str]:
        pages = logs.get_paginator("filter_log_events").paginate(logGroupName=group, **asked)
        return sorted(event["message"] for page in pages for event in page["events"])

    assert messages(logStreamNamePrefix="a/") == ["of a/1", "of a/2"]
    assert messages(logStreamNamePrefix="a/", PaginationConfig={"PageSize": 1}) == ["of a/1", "of a/2"]
    assert messages(logStreamNamePrefix="c/") == []
    assert len(messages()) == 3
    both = {"logGroupName": group, "logStreamNamePrefix": "a", "logStreamNames": ["a/1"]}
    assert refused(logs.filter_log_events, **both)[0] == "InvalidParameterException"


def test_calls_to_logs_that_their_model_forbids(server: Server) -> None:
    logs = server.client("logs")
    code, message = refused(logs.create_log_group, logGroupName="two words")
    assert code == "InvalidParameterException"
    assert "at 'logGroupName' failed to satisfy constraint" in message
    assert refused(logs.create_log_group, logGroupName="g" * 513)[0] == "InvalidParameterException"
    assert refused(logs.describe_log_groups, limit=51)[0] == "InvalidParameterException"
    assert refused(logs.filter_log_events, logGroupName="/g", limit=10_001)[0] == "InvalidParameterException"


def test_the_next_token_of_another_call(server: Server, sagemaker: Any) -> None:
    for number in range(3):
        sagemaker.create_model(
            ModelName=f"paged-{number}",
            PrimaryContainer={"Image": "123456789012.dkr.ecr.us-east-1.amazonaws.com/vllm:latest"},
            ExecutionRoleArn=server.status.role_arn,
        )
    first = sagemaker.list_models(NameContains="paged", MaxResults=1)
    token = first["NextToken"]
    for call, asked in (
        (sagemaker.list_endpoints, {}),
        (sagemaker.list_models, {}),
        (sagemaker.list_models, {"NameContains": "other"}),
        (sagemaker.list_models, {"NameContains": "paged", "SortBy": "Name"}),
    ):
        assert refused(call, **asked, NextToken=token)[0] == "ValidationException"
    rest = sagemaker.list_models(NameContains="paged", MaxResults=5, NextToken=token)
    names = [row["ModelName"] for row in (*first["Models"], *rest["Models"])]
    assert sorted(names) == ["paged-0", "paged-1", "paged-2"]
    for name in names:
        sagemaker.delete_model(ModelName=name)


def test_the_next_token_of_another_cloudformation_call(server: Server) -> None:
    client = server.client("cloudformation")
    template = json.dumps({"Resources": {f"R{n}": {"Type": "AWS::CDK::Metadata"} for n in range(101)}})
    client.create_stack(StackName="paged", TemplateBody=template)
    client.get_waiter("stack_create_complete").wait(StackName="paged", WaiterConfig={"Delay": 1})
    try:
        token = client.list_stack_resources(StackName="paged")["NextToken"]
        assert refused(client.list_stacks, NextToken=token)[0] == "ValidationError"
        assert refused(client.describe_stack_events, StackName="paged", NextToken=token)[0] == (
            "ValidationError"
        )
        rest = client.list_stack_resources(StackName="paged", NextToken=token)
        assert len(rest["StackResourceSummaries"]) == 1
    finally:
        client.delete_stack(StackName="paged")


# Fixed: a date that is counted from the import is in the past when the test runs an hour later.
SOON = datetime(2098, 6, 1, tzinfo=UTC)
PAST = datetime(2020, 6, 1, tzinfo=UTC)
REPEATED = {"ScheduleExpression": "rate(5 minutes)", "StartDate": SOON}
FLEXIBLE = {"Mode": "FLEXIBLE", "MaximumWindowInMinutes": 5}


def _universal(action: str, text: str = "{}") -> dict[str, Any]:
    return {"Arn": f"arn:aws:scheduler:::aws-sdk:sagemaker:{action}", "Input": text}


@pytest.mark.parametrize(
    ("changes", "target", "said"),
    [
        ({**REPEATED, "EndDate": SOON}, {}, "EndDate"),
        ({"ScheduleExpression": "rate(1 hour)", "EndDate": PAST}, {}, "EndDate"),
        ({"ScheduleExpressionTimezone": "Mars/Base"}, {}, "Mars/Base"),
        ({"FlexibleTimeWindow": {"Mode": "FLEXIBLE"}}, {}, "MaximumWindowInMinutes"),
        ({"FlexibleTimeWindow": {**FLEXIBLE, "Mode": "OFF"}}, {}, "MaximumWindowInMinutes"),
        ({}, _universal("DeleteEndpoint"), "not a supported target"),
        ({}, _universal("dropEndpoint"), "not a supported target"),
        ({}, _universal("describeEndpoint"), "not a supported target"),
        ({}, _universal("deleteEndpoint", "{x"), "JSON"),
        *(
            ({"ScheduleExpression": expression}, {}, f"Invalid Schedule Expression {expression}.")
            for expression in (
                "every day",
                "rate(0 minutes)",
                "rate(5)",
                "at(2026-13-01T00:00:00)",
                "cron(0 8 * * ?)",
            )
        ),
        ({"ScheduleExpression": "at(2020-01-01T00:00:00)"}, {}, "its time has passed"),
    ],
)
@pytest.mark.parametrize("verb", ["create", "update"])
def test_a_schedule_that_scheduler_refuses_beside_its_model(
    server: Server, verb: str, changes: dict[str, Any], target: dict[str, Any], said: str
) -> None:
    request = schedule(server, **changes)
    request["Target"] |= target
    code, message = refused(getattr(server.client("scheduler"), f"{verb}_schedule"), **request)
    assert code == "ValidationException"
    assert said in message


@pytest.mark.parametrize(
    ("changes", "target"),
    [
        ({**REPEATED, "EndDate": SOON + timedelta(days=1)}, _universal("deleteInferenceComponent")),
        ({"ScheduleExpression": "at(2099-01-01T00:00:00)", "EndDate": SOON}, {}),
        ({"FlexibleTimeWindow": FLEXIBLE, "ScheduleExpressionTimezone": "Europe/Berlin"}, {}),
    ],
)
def test_a_schedule_that_scheduler_takes(
    server: Server, changes: dict[str, Any], target: dict[str, Any]
) -> None:
    client, request = server.client("scheduler"), schedule(server, Name="taken", **changes)
    request["Target"] |= target
    client.create_schedule(**request)
    client.delete_schedule(Name="taken")


def test_a_schedule_in_a_group_that_does_not_exist(server: Server) -> None:
    with pytest.raises(ClientError) as raised:
        server.client("scheduler").create_schedule(**schedule(server, GroupName="absent"))
    assert raised.value.response["Error"]["Code"] == "ResourceNotFoundException"
    assert raised.value.response["ResponseMetadata"]["HTTPStatusCode"] == 404


def _tracking(**changes: Any) -> dict[str, Any]:
    body = {**TRACKING["TargetTrackingScalingPolicyConfiguration"], **changes}  # type: ignore[dict-item]
    kept = {key: value for key, value in body.items() if value is not None}
    return {**TRACKING, "TargetTrackingScalingPolicyConfiguration": kept}


def _steps(*steps: dict[str, Any], **more: Any) -> dict[str, Any]:
    body = {"AdjustmentType": "ChangeInCapacity", "StepAdjustments": list(steps), **more}
    kept = {key: value for key, value in body.items() if value is not None}
    return {"PolicyName": "s", "PolicyType": "StepScaling", "StepScalingPolicyConfiguration": kept}


UP = {"MetricIntervalLowerBound": 0.0, "ScalingAdjustment": 1}
OTHER_METRIC = {"MetricName": "a", "Namespace": "b", "Statistic": "Average"}


@pytest.mark.parametrize(
    "policy",
    [
        {"PolicyName": "t", "PolicyType": "TargetTrackingScaling"},
        {**_steps(UP), "PolicyType": "TargetTrackingScaling"},
        {**TRACKING, **_steps(UP)},
        {**TRACKING, "PolicyType": "PredictiveScaling"},
        _tracking(TargetValue=0.0),
        _tracking(PredefinedMetricSpecification=None),
        _tracking(CustomizedMetricSpecification=OTHER_METRIC),
        _tracking(PredefinedMetricSpecification={"PredefinedMetricType": "ECSServiceAverageCPUUtilization"}),
        _tracking(
            PredefinedMetricSpecification={
                "PredefinedMetricType": "SageMakerInferenceComponentInvocationsPerCopy"
            }
        ),
        _steps(),
        _steps(UP, AdjustmentType=None),
        _steps(UP, UP),
        _steps({**UP, "MetricIntervalUpperBound": 1.0}, {**UP, "MetricIntervalLowerBound": 2.0}),
        _steps({**UP, "MetricIntervalUpperBound": -1.0}),
    ],
)
def test_a_scaling_policy_that_aws_refuses(server: Server, policy: dict[str, Any]) -> None:
    scaling = server.client("application-autoscaling")
    place = {
        "ServiceNamespace": "sagemaker",
        "ResourceId": "endpoint/any/variant/AllTraffic",
        "ScalableDimension": VARIANT,
    }
    code, _ = refused(scaling.put_scaling_policy, **place, **policy)
    assert code == "ValidationException"


def test_a_target_of_autoscaling_keeps_its_instance_type(server: Server, sagemaker: Any) -> None:
    name = server.deploy()
    config = sagemaker.describe_endpoint(EndpointName=name)["EndpointConfigName"]
    variant = sagemaker.describe_endpoint_config(EndpointConfigName=config)["ProductionVariants"][0]
    other = f"{name}-larger"
    variants = [{**variant, "InstanceType": "ml.g5.12xlarge"}]
    sagemaker.create_endpoint_config(EndpointConfigName=other, ProductionVariants=variants)
    scaling = server.client("application-autoscaling")
    place = {
        "ServiceNamespace": "sagemaker",
        "ResourceId": f"endpoint/{name}/variant/{variant['VariantName']}",
        "ScalableDimension": VARIANT,
    }
    scaling.register_scalable_target(**place, MinCapacity=1, MaxCapacity=2)
    code, message = refused(sagemaker.update_endpoint, EndpointName=name, EndpointConfigName=other)
    assert code == "ValidationException"
    assert "must be deregistered as scalable target" in message
    scaling.deregister_scalable_target(**place)
    sagemaker.update_endpoint(EndpointName=name, EndpointConfigName=other)


def test_a_volume_s_size_is_not_for_types_with_disks_of_their_own(server: Server, sagemaker: Any) -> None:
    name = server.deploy()
    config = sagemaker.describe_endpoint(EndpointName=name)["EndpointConfigName"]
    variant = sagemaker.describe_endpoint_config(EndpointConfigName=config)["ProductionVariants"][0]
    sized = {**variant, "VolumeSizeInGB": 100}
    create = sagemaker.create_endpoint_config
    variants = [{**sized, "InstanceType": "ml.g5.xlarge"}]
    code, message = refused(create, EndpointConfigName=f"{name}-disks", ProductionVariants=variants)
    assert (code, "ml.g5.xlarge" in message) == ("ValidationException", True)
    create(EndpointConfigName=f"{name}-ebs", ProductionVariants=[{**sized, "InstanceType": "ml.m5.xlarge"}])


def test_log_groups_that_aws_refuses(server: Server) -> None:
    logs = server.client("logs")
    assert refused(logs.create_log_group, logGroupName="aws/own")[0] == "InvalidParameterException"
    absent = "arn:aws:kms:us-east-1:123456789012:key/0a1b2c3d"
    code, message = refused(logs.create_log_group, logGroupName="/keyed/absent", kmsKeyId=absent)
    assert (code, absent in message) == ("InvalidParameterException", True)
    key = server.client("kms").create_key()["KeyMetadata"]["Arn"]
    logs.create_log_group(logGroupName="/keyed", kmsKeyId=key)
    code, message = refused(logs.put_retention_policy, logGroupName="/keyed", retentionInDays=29)
    assert (code, "30, 60" in message) == ("InvalidParameterException", True)
    logs.put_retention_policy(logGroupName="/keyed", retentionInDays=30)


ALARM = {
    "AlarmName": "checked",
    "Namespace": "N",
    "MetricName": "m",
    "Statistic": "Sum",
    "Period": 60,
    "EvaluationPeriods": 2,
    "Threshold": 1.0,
    "ComparisonOperator": "GreaterThanThreshold",
}


@pytest.mark.parametrize(
    "change",
    [
        {"Period": 7},
        {"Period": 90},
        {"EvaluationPeriods": 1441},
        {"Period": 3600, "EvaluationPeriods": 169},
        {"DatapointsToAlarm": 3},
        {"TreatMissingData": "zero"},
        {"AlarmActions": ["a-topic"]},
        {"ExtendedStatistic": "p99"},
        {"Statistic": None},
    ],
)
def test_an_alarm_that_cloudwatch_refuses(server: Server, change: dict[str, Any]) -> None:
    cloudwatch = server.client("cloudwatch")
    by_name = {key: value for key, value in {**ALARM, **change}.items() if value is not None}
    assert refused(cloudwatch.put_metric_alarm, **by_name)[0] == "ValidationError"
    cloudwatch.put_metric_alarm(**ALARM, DatapointsToAlarm=2, TreatMissingData="breaching")


@pytest.mark.parametrize(
    ("pattern", "dimensions", "message"),
    [
        ("{ $.a = 1", False, "Invalid filter pattern"),
        ("{ a = 1 }", False, "Invalid filter pattern"),
        ("[ip, user", False, "Invalid filter pattern"),
        ('"half', False, "Invalid filter pattern"),
        ("?ERROR ?WARN", True, "does not support dimensions"),
    ],
)
def test_metric_filters_that_aws_refuses(
    server: Server, pattern: str, dimensions: bool, message: str
) -> None:
    logs = server.client("logs")
    with contextlib.suppress(ClientError):
        logs.create_log_group(logGroupName="/filtered")
    metric: dict[str, Any] = {"metricName": "m", "metricNamespace": "n", "metricValue": "1"}
    request = {"logGroupName": "/filtered", "filterName": "f"}
    logs.put_metric_filter(**request, filterPattern="{ $.a = 1 }", metricTransformations=[metric])
    metric |= {"dimensions": {"d": "$.d"}} if dimensions else {}
    with pytest.raises(ClientError, match=message):
        logs.put_metric_filter(**request, filterPattern=pattern, metricTransformations=[metric])
