"""Queues, topics, log groups, alarms and dashboards."""

from __future__ import annotations

import json
from typing import Any

import pytest

from sagemaker_local.cloudformation.resources.base import ResourceFailure
from tests.local.cloudformation.resources.conftest import Stack

POLICY = {
    "Version": "2012-10-17",
    "Statement": [{"Sid": "a", "Effect": "Allow", "Principal": "*", "Action": "*", "Resource": "*"}],
}


def attributes(stack: Stack, url: str) -> dict[str, str]:
    queue_attributes = stack.client("sqs").get_queue_attributes(QueueUrl=url, AttributeNames=["All"])
    return dict(queue_attributes["Attributes"])


def test_a_queue_goes_back_to_defaults_for_what_is_no_longer_said(stack: Stack) -> None:
    old = {"QueueName": "letters", "MessageRetentionPeriod": 1_209_600, "VisibilityTimeout": "7"}
    created = stack.create("AWS::SQS::Queue", **old)
    assert created.attributes["Arn"] == "arn:aws:sqs:us-east-1:123456789012:letters"
    assert attributes(stack, created.physical_id)["MessageRetentionPeriod"] == "1209600"
    stack.update("AWS::SQS::Queue", created, old, {"QueueName": "letters", "DelaySeconds": 3})
    result = attributes(stack, created.physical_id)
    now = {name: result[name] for name in ("MessageRetentionPeriod", "VisibilityTimeout", "DelaySeconds")}
    assert now == {"MessageRetentionPeriod": "345600", "VisibilityTimeout": "30", "DelaySeconds": "3"}
    policy = {"PolicyDocument": POLICY, "Queues": [created.physical_id]}
    policed = stack.create("AWS::SQS::QueuePolicy", **policy)
    assert json.loads(attributes(stack, created.physical_id)["Policy"]) == POLICY
    stack.delete("AWS::SQS::QueuePolicy", policed, **policy)
    assert "Policy" not in attributes(stack, created.physical_id)
    stack.delete("AWS::SQS::Queue", created)
    stack.delete("AWS::SQS::Queue", created)


def test_a_topic_with_a_policy_and_a_subscriber(stack: Stack) -> None:
    old: dict[str, Any] = {"TopicName": "notices", "DisplayName": "guard"}
    topic = stack.create("AWS::SNS::Topic", **old)
    assert topic.physical_id == "arn:aws:sns:us-east-1:123456789012:notices"
    with pytest.raises(ResourceFailure, match="already exists"):
        stack.create("AWS::SNS::Topic", **old)
    sns = stack.client("sns")
    answer = {"PolicyDocument": POLICY, "Topics": [topic.physical_id]}
    policy = stack.create("AWS::SNS::TopicPolicy", **answer)
    kept = sns.get_topic_attributes(TopicArn=topic.physical_id)["Attributes"]
    assert json.loads(kept["Policy"]) == POLICY
    mail = {"TopicArn": topic.physical_id, "Protocol": "email", "Endpoint": "a@example.com"}
    subscription = stack.create("AWS::SNS::Subscription", **mail)
    (found,) = sns.list_subscriptions_by_topic(TopicArn=topic.physical_id)["Subscriptions"]
    assert (found["Endpoint"], found["SubscriptionArn"]) == ("a@example.com", subscription.physical_id)
    stack.delete("AWS::SNS::Subscription", subscription)
    stack.delete("AWS::SNS::TopicPolicy", policy, **answer)
    kept = sns.get_topic_attributes(TopicArn=topic.physical_id)["Attributes"]
    assert json.loads(kept["Policy"])["Statement"] == []
    stack.update("AWS::SNS::Topic", topic, old, {"TopicName": "notices"})
    kept = sns.get_topic_attributes(TopicArn=topic.physical_id)["Attributes"]
    assert kept["DisplayName"] == ""
    stack.delete("AWS::SNS::Topic", topic)
    stack.delete("AWS::SNS::Topic", topic)


def test_a_log_group_is_refused_where_one_is_and_keeps_its_days(stack: Stack) -> None:
    old = {"LogGroupName": "/aws/lambda/x", "RetentionInDays": "90"}
    created = stack.with_tags(team="a").create("AWS::Logs::LogGroup", **old)
    assert created.attributes["Arn"] == "arn:aws:logs:us-east-1:123456789012:log-group:/aws/lambda/x:*"
    with pytest.raises(ResourceFailure, match="already exists"):
        stack.create("AWS::Logs::LogGroup", **old)
    logs = stack.client("logs")
    (found,) = logs.describe_log_groups(logGroupNamePrefix="/aws/lambda/x")["logGroups"]
    assert found["retentionInDays"] == 90
    stack.update("AWS::Logs::LogGroup", created, old, {"LogGroupName": "/aws/lambda/x"})
    (found,) = logs.describe_log_groups(logGroupNamePrefix="/aws/lambda/x")["logGroups"]
    assert "retentionInDays" not in found
    filtered = {
        "LogGroupName": "/aws/lambda/x",
        "FilterPattern": "{ $.a = 1 }",
        "MetricTransformations": [
            {
                "MetricName": "m",
                "MetricNamespace": "n",
                "MetricValue": "$.a",
                "Dimensions": [{"Key": "d", "Value": "$.b"}],
            }
        ],
    }
    metric = stack.create("AWS::Logs::MetricFilter", **filtered)
    (kept,) = logs.describe_metric_filters(logGroupName="/aws/lambda/x")["metricFilters"]
    assert (kept["filterName"], kept["filterPattern"]) == (metric.physical_id, "{ $.a = 1 }")
    stack.delete("AWS::Logs::MetricFilter", metric, **filtered)
    assert logs.describe_metric_filters(logGroupName="/aws/lambda/x")["metricFilters"] == []
    stack.delete("AWS::Logs::LogGroup", created)
    stack.delete("AWS::Logs::LogGroup", created)


def test_alarms_and_a_dashboard(stack: Stack) -> None:
    query = {
        "Id": "m0",
        "ReturnData": "false",
        "MetricStat": {
            "Metric": {"Namespace": "AWS/Lambda", "MetricName": "Errors", "Dimensions": []},
            "Period": 300,
            "Stat": "Sum",
        },
    }
    old = {
        "AlarmName": "errors",
        "Metrics": [query, {"Id": "all", "Expression": "FILL(m0, 0)"}],
        "ComparisonOperator": "GreaterThanThreshold",
        "Threshold": "0",
        "EvaluationPeriods": "1",
        "Tags": [{"Key": "a", "Value": "1"}],
    }
    created = stack.create("AWS::CloudWatch::Alarm", **old)
    assert created.attributes["Arn"] == "arn:aws:cloudwatch:us-east-1:123456789012:alarm:errors"
    with pytest.raises(ResourceFailure, match="errors already exists"):
        stack.create("AWS::CloudWatch::Alarm", **old)
    stack.update("AWS::CloudWatch::Alarm", created, old, {**old, "Threshold": 3, "Tags": []})
    cloudwatch = stack.client("cloudwatch")
    (found,) = cloudwatch.describe_alarms(AlarmNames=["errors"])["MetricAlarms"]
    assert found["Threshold"] == 3
    assert cloudwatch.list_tags_for_resource(ResourceARN=created.attributes["Arn"])["Tags"] == []
    body: dict[str, Any] = {"widgets": []}
    board = stack.create("AWS::CloudWatch::Dashboard", DashboardName="board", DashboardBody=json.dumps(body))
    assert json.loads(cloudwatch.get_dashboard(DashboardName="board")["DashboardBody"]) == body
    for type_name, each in (("Alarm", created), ("Dashboard", board)):
        stack.delete(f"AWS::CloudWatch::{type_name}", each)
        stack.delete(f"AWS::CloudWatch::{type_name}", each)
