"""Log group, alarms with their topic, and the dashboard. All of it stays while the endpoint is off."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from aws_cdk import Aws, CfnCondition, CfnResource, Fn, RemovalPolicy
from aws_cdk import aws_cloudwatch as cloudwatch
from aws_cdk import aws_kms as kms
from aws_cdk import aws_logs as logs
from aws_cdk import aws_sns as sns
from constructs import Construct

from stacks.alarms import Watch
from stacks.properties import properties
from stacks.watched import Watched

LOGS_KEPT_DAYS = 30
_DESCRIPTION_LIMIT = 1024


def alarm_name(endpoint: str, key: str) -> str:
    """Return the name of an alarm, as the console lists it."""
    return f"Peagle-{endpoint}-{key}"


def add_log_group(scope: Construct, endpoint: Watched) -> logs.CfnLogGroup:
    """Add the log group that SageMaker would make itself, without end and outside of the stack."""
    group = logs.CfnLogGroup(
        scope, "Logs", log_group_name=endpoint.log_group, retention_in_days=LOGS_KEPT_DAYS
    )
    group.apply_removal_policy(RemovalPolicy.DESTROY)
    return group


def add_topic(scope: Construct, endpoint: Watched, email: str | None) -> sns.CfnTopic:
    """Add the topic of the alarms, encrypted with a key that CloudWatch may use, and its first reader.

    With AWS's own key (alias/aws/sns) CloudWatch could not publish: that key's policy cannot be changed.
    """
    key = kms.CfnKey(
        scope,
        "AlarmKey",
        description=f"peagle-sm: the alarms of endpoint {endpoint.name}",
        enable_key_rotation=True,
        pending_window_in_days=7,
        key_policy=_policy(
            {
                "Sid": "TheAccountRules",
                "Effect": "Allow",
                "Principal": {"AWS": f"arn:{Aws.PARTITION}:iam::{Aws.ACCOUNT_ID}:root"},
                "Action": "kms:*",
                "Resource": "*",
            },
            {
                "Sid": "AlarmsEncrypt",
                "Effect": "Allow",
                "Principal": {"Service": "cloudwatch.amazonaws.com"},
                "Action": ["kms:Decrypt", "kms:GenerateDataKey"],
                # whose alarms speak is decided at the topic; a condition that CloudWatch does not meet here
                # would silence them, and nobody would hear of it
                "Resource": "*",
            },
        ),
    )
    key.apply_removal_policy(RemovalPolicy.DESTROY)
    topic = sns.CfnTopic(
        scope, "Alarms", display_name=f"peagle-sm {endpoint.name}", kms_master_key_id=key.attr_arn
    )
    sns.CfnTopicPolicy(
        scope,
        "AlarmsPolicy",
        topics=[topic.ref],
        policy_document=_policy(
            {
                "Sid": "AlarmsSpeak",
                "Effect": "Allow",
                "Principal": {"Service": "cloudwatch.amazonaws.com"},
                "Action": "sns:Publish",
                "Resource": topic.ref,
                "Condition": _from_our_alarms(endpoint),
            },
            {
                "Sid": "OnlyByTls",
                "Effect": "Deny",
                "Principal": {"AWS": "*"},
                "Action": "sns:Publish",
                "Resource": topic.ref,
                "Condition": {"Bool": {"aws:SecureTransport": "false"}},
            },
        ),
    )
    if email is not None:
        sns.CfnSubscription(scope, "Email", topic_arn=topic.ref, protocol="email", endpoint=email)
    return topic


def add_alarms(
    scope: Construct,
    endpoint: Watched,
    watches: Sequence[Watch],
    topic: sns.CfnTopic,
    while_on: tuple[CfnCondition, CfnResource],
) -> list[cloudwatch.CfnAlarm]:
    """Add the alarms; ``while_on`` is the switch's condition and the endpoint that stands under it."""
    return [_alarm(scope, endpoint, watch, topic, while_on) for watch in watches]


def _alarm(
    scope: Construct,
    endpoint: Watched,
    watch: Watch,
    topic: sns.CfnTopic,
    while_on: tuple[CfnCondition, CfnResource],
) -> cloudwatch.CfnAlarm:
    alarm = cloudwatch.CfnAlarm(
        scope,
        "".join(part.capitalize() for part in watch.key.split("-")) + "Alarm",
        **properties(cloudwatch.CfnAlarm, _payload(endpoint, watch)),
        alarm_actions=[topic.ref],
        ok_actions=[topic.ref],
    )
    if watch.only_on:
        is_on, created = while_on
        alarm.cfn_options.condition = is_on
        # so that its silence counts from the first minute in service, not from the first of the start
        alarm.add_resource_dependency(created)
    return alarm


def _payload(endpoint: Watched, watch: Watch) -> dict[str, Any]:
    result = {"Id": "result", "Expression": watch.expression, "Label": watch.key, "ReturnData": True}
    return {
        "AlarmName": alarm_name(endpoint.name, watch.key),
        "AlarmDescription": f"{watch.says} {watch.silence}"[:_DESCRIPTION_LIMIT],
        "Metrics": [*watch.queries, result],
        "ComparisonOperator": watch.compare,
        "Threshold": watch.threshold,
        "EvaluationPeriods": watch.periods,
        "DatapointsToAlarm": watch.breaching,
        "TreatMissingData": watch.missing,
    }


def add_dashboard(scope: Construct, endpoint: Watched, body: dict[str, Any]) -> cloudwatch.CfnDashboard:
    """Add the dashboard; ``${AWS::…}`` in its body becomes the account's and region's own."""
    return cloudwatch.CfnDashboard(
        scope, "Dashboard", dashboard_name=f"Peagle-{endpoint.name}", dashboard_body=Fn.sub(json.dumps(body))
    )


def _from_our_alarms(endpoint: Watched) -> dict[str, Any]:
    alarms = (
        f"arn:{Aws.PARTITION}:cloudwatch:{Aws.REGION}:{Aws.ACCOUNT_ID}:alarm:{alarm_name(endpoint.name, '*')}"
    )
    return {
        "StringEquals": {"aws:SourceAccount": Aws.ACCOUNT_ID},
        "ArnLike": {"aws:SourceArn": alarms},
    }


def _policy(*statements: dict[str, Any]) -> dict[str, Any]:
    return {"Version": "2012-10-17", "Statement": list(statements)}
