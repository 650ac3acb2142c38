"""Log groups, alarms, dashboards, topics, subscriptions and queues."""

from __future__ import annotations

import json
from typing import Any

from sagemaker_local.cloudformation.resources.base import Properties, ResourceContext
from sagemaker_local.cloudformation.resources.by_table import (
    Members,
    OnEach,
    Row,
    Setting,
    Tagging,
)
from sagemaker_local.cloudformation.resources.calls import send
from sagemaker_local.cloudformation.resources.rows.addresses import answers, arn, arn_of, by_arn


def _alarm_exists(ctx: ResourceContext, name: str) -> bool:
    return bool(send(ctx, "cloudwatch", "DescribeAlarms", {"AlarmNames": [name]}).get("MetricAlarms"))


def _metric_filter(properties: Properties) -> dict[str, Any]:
    """Return a filter as the API takes it; moto keeps it and emits no metrics."""
    transformations = [
        {**each, "Dimensions": {pair["Key"]: pair["Value"] for pair in each.get("Dimensions", [])} or None}
        for each in properties["MetricTransformations"]
    ]
    return {**properties, "MetricTransformations": transformations}


def _topic_attribute(name: str, created: bool = False) -> Setting:
    return Setting(
        name,
        "SetTopicAttributes",
        "AttributeValue",
        default="",
        more={"AttributeName": name},
        created=created,
    )


# What an attribute is when the template no longer sets it (API reference, SetQueueAttributes).
_QUEUE_ATTRIBUTES = {
    "DelaySeconds": "0",
    "KmsMasterKeyId": "",
    "MaximumMessageSize": "262144",
    "MessageRetentionPeriod": "345600",
    "ReceiveMessageWaitTimeSeconds": "0",
    "RedrivePolicy": "",
    "SqsManagedSseEnabled": "",
    "VisibilityTimeout": "30",
}


def _queue_attribute(name: str, default: str) -> Setting:
    return Setting(
        name,
        "SetQueueAttributes",
        "Attributes",
        default={name: default},
        read=lambda value: {name: value},
    )


def _policy_attribute(holder: str, document: Any) -> tuple[str, Members]:
    if holder.startswith("arn:"):
        named = {"AttributeName": "Policy", "AttributeValue": document}
        return "SetTopicAttributes", {"TopicArn": holder, **named}
    return "SetQueueAttributes", {"QueueUrl": holder, "Attributes": {"Policy": document}}


_topic_arn = arn("sns", "")
_ALLOWS_NOTHING = json.dumps({"Version": "2008-10-17", "Statement": []})

ROWS: dict[str, Row | OnEach] = {
    "AWS::CloudWatch::Alarm": Row(
        "cloudwatch",
        create="PutMetricAlarm",
        update="PutMetricAlarm",
        delete="DeleteAlarms",
        name="AlarmName",
        longest=255,
        gone=("ResourceNotFound", "ResourceNotFoundException"),
        address=lambda name, properties: {"AlarmName": name, "AlarmNames": [name]},
        attributes=arn_of("cloudwatch", "alarm:"),
        exists=_alarm_exists,
        tagging=by_arn("cloudwatch", "alarm:", "ResourceARN"),
    ),
    "AWS::CloudWatch::Dashboard": Row(
        "cloudwatch",
        create="PutDashboard",
        update="PutDashboard",
        delete="DeleteDashboards",
        name="DashboardName",
        longest=255,
        gone=("ResourceNotFound", "DashboardNotFoundError"),
        address=lambda name, properties: {"DashboardName": name, "DashboardNames": [name]},
        tagging=Tagging(changes=False),
    ),
    "AWS::Logs::LogGroup": Row(
        "logs",
        create="CreateLogGroup",
        delete="DeleteLogGroup",
        name="LogGroupName",
        longest=512,
        takes=frozenset({"KmsKeyId", "LogGroupClass"}),
        fixed=("KmsKeyId", "LogGroupClass"),  # moto cannot change a group's key
        attributes=lambda ctx, name, properties: {"Arn": f"{arn('logs', 'log-group:')(ctx, name)}:*"},
        settings=(
            Setting(
                "RetentionInDays", "PutRetentionPolicy", "retentionInDays", remove="DeleteRetentionPolicy"
            ),
        ),
        tagging=Tagging(
            created="tags", tag="TagLogGroup", untag="UntagLogGroup", keys="tags", tags="tags", form=dict
        ),
    ),
    "AWS::Logs::MetricFilter": Row(
        "logs",
        create="PutMetricFilter",
        update="PutMetricFilter",
        delete="DeleteMetricFilter",
        name="FilterName",
        longest=512,
        request=_metric_filter,
        address=lambda name, properties: {"FilterName": name, "LogGroupName": properties["LogGroupName"]},
    ),
    "AWS::SNS::Topic": Row(
        "sns",
        create="CreateTopic",
        delete="DeleteTopic",
        name="TopicName",
        longest=256,
        gone=("NotFound", "NotFoundException"),
        takes=frozenset(),
        members={"TopicName": "Name"},
        ref=lambda name, answer, properties: str(answer["TopicArn"]),
        address=lambda arn, properties: {"TopicArn": arn},
        attributes=lambda ctx, arn, properties: {"TopicArn": arn, "TopicName": arn.rsplit(":", 1)[-1]},
        exists=answers(
            "sns",
            "GetTopicAttributes",
            lambda ctx, name: {"TopicArn": _topic_arn(ctx, name)},
            "NotFound",
            "NotFoundException",
        ),
        settings=(
            _topic_attribute("DisplayName"),
            _topic_attribute("KmsMasterKeyId"),
            _topic_attribute("SignatureVersion"),
        ),
        tagging=Tagging(of=lambda ctx, arn: {"ResourceArn": arn}),
    ),
    "AWS::SNS::TopicPolicy": OnEach(
        "sns",
        "Topics",
        put=lambda topic, properties: _policy_attribute(topic, properties["PolicyDocument"]),
        remove=lambda topic, properties: _policy_attribute(topic, _ALLOWS_NOTHING),
        takes=frozenset({"PolicyDocument"}),
        gone=("NotFound", "NotFoundException"),
    ),
    "AWS::SNS::Subscription": Row(
        "sns",
        create="Subscribe",
        delete="Unsubscribe",
        gone=("NotFound", "NotFoundException"),
        takes=frozenset({"TopicArn", "Protocol", "Endpoint"}),
        request=lambda properties: {**properties, "ReturnSubscriptionArn": True},
        ref=lambda name, answer, properties: str(answer["SubscriptionArn"]),
        address=lambda arn, properties: {"SubscriptionArn": arn},
        attributes=lambda ctx, arn, properties: {"Arn": arn},
        settings=tuple(
            Setting(
                name,
                "SetSubscriptionAttributes",
                "AttributeValue",
                default="",
                more={"AttributeName": name},
            )
            for name in ("RawMessageDelivery", "FilterPolicy", "FilterPolicyScope")
        ),
    ),
    "AWS::SQS::Queue": Row(
        "sqs",
        create="CreateQueue",
        delete="DeleteQueue",
        name="QueueName",
        longest=75,
        gone=("AWS.SimpleQueueService.NonExistentQueue", "QueueDoesNotExist"),
        takes=frozenset(),
        ref=lambda name, answer, properties: str(answer["QueueUrl"]),
        address=lambda url, properties: {"QueueUrl": url},
        attributes=lambda ctx, url, properties: {
            "Arn": arn("sqs", "")(ctx, url.rsplit("/", 1)[-1]),
            "QueueName": url.rsplit("/", 1)[-1],
            "QueueUrl": url,
        },
        settings=tuple(_queue_attribute(*each) for each in _QUEUE_ATTRIBUTES.items()),
        tagging=Tagging(created="tags", tag="TagQueue", untag="UntagQueue", form=dict),
    ),
    "AWS::SQS::QueuePolicy": OnEach(
        "sqs",
        "Queues",
        put=lambda queue, properties: _policy_attribute(queue, properties["PolicyDocument"]),
        remove=lambda queue, properties: _policy_attribute(queue, ""),
        takes=frozenset({"PolicyDocument"}),
        gone=("AWS.SimpleQueueService.NonExistentQueue", "QueueDoesNotExist"),
    ),
}
