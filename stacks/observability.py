"""Alarms with their topic, and dashboard; all of them stay while the endpoint is off.

`dashboard_body` is pure: the widgets, the most important first, from left to right and from top to
bottom.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from aws_cdk import Aws, CfnCondition, CfnResource, Fn, RemovalPolicy
from aws_cdk import aws_kms as kms
from aws_cdk import aws_sns as sns
from constructs import Construct

from stacks.alarms import AlarmRule
from stacks.endpoint import add_checked
from stacks.guard.policies import alarms_publish, document, only_by_tls
from stacks.metrics import (
    ACCEPTED,
    DRAFTED,
    DRIFTING_SLICES,
    INSTANCES,
    INVOCATIONS,
    LARGEST_FALL,
    SLICE,
    SLICE_ACCEPTED,
    SLICE_DRAFTS,
    UNCOUNTED,
    Watched,
)

_REGION = "${AWS::Region}"
_ALARMS = "arn:${AWS::Partition}:cloudwatch:${AWS::Region}:${AWS::AccountId}:alarm:"
_WIDTH = 24
_HEIGHT = 6
_TEXT_HEIGHT = 5


def dashboard_body(endpoint: Watched, alarm_keys: Sequence[str], advice: str) -> dict[str, Any]:
    """Return the dashboard's body; ``advice`` is its text with the most important commands."""
    rows = [
        [{"type": "text", "properties": {"markdown": advice}}, _alarms(endpoint, alarm_keys)],
        [_spend(endpoint), _traffic(endpoint), _errors(endpoint)],
        [_latency(endpoint), *_drafting(endpoint), _hardware(endpoint)],
        _slices(endpoint),
    ]
    return {"widgets": list(_placed([row for row in rows if row]))}


def _placed(rows: Sequence[Sequence[dict[str, Any]]]) -> Sequence[dict[str, Any]]:
    placed, y = [], 0
    for row in rows:
        width, height = _WIDTH // len(row), _TEXT_HEIGHT if row is rows[0] else _HEIGHT
        for index, widget in enumerate(row):
            placed.append({"x": index * width, "y": y, "width": width, "height": height, **widget})
        y += height
    return placed


def _alarms(endpoint: Watched, keys: Sequence[str]) -> dict[str, Any]:
    names = [_ALARMS + alarm_name(endpoint.name, key) for key in keys]
    return {"type": "alarm", "properties": {"title": "Alarms", "alarms": names}}


def _graph(title: str, metrics: Sequence[Any], **more: Any) -> dict[str, Any]:
    shown = {"title": title, "region": _REGION, "view": "timeSeries", "period": 60, "metrics": list(metrics)}
    return {"type": "metric", "properties": {**shown, **more}}


def _metric(namespace: str, name: str, dimensions: Mapping[str, str], **shown: Any) -> list[Any]:
    flat = [part for pair in dimensions.items() for part in pair]
    return [namespace, name, *flat, shown]


def _spend(endpoint: Watched) -> dict[str, Any]:
    price = endpoint.usd_per_instance_hour
    hours = f"reports * {endpoint.publish_s} / 3600"
    unit, label = (hours, "instance hours") if price is None else (f"{hours} * {price:g}", "USD")
    reports = _metric(
        INSTANCES, "CPUUtilization", endpoint.instances, stat="SampleCount", id="reports", visible=False
    )
    return _graph(
        f"Spent in the selected time range ({label})",
        [[{"expression": unit, "label": label, "id": "spent"}], reports],
        view="singleValue",
        setPeriodToTimeRange=True,
        stat="SampleCount",
    )


def _traffic(endpoint: Watched) -> dict[str, Any]:
    return _graph(
        "Invocations a minute, and requests in flight",
        [
            _metric(INVOCATIONS, "Invocations", endpoint.invocations, stat="Sum", label="invocations"),
            _metric(
                INVOCATIONS,
                "ConcurrentRequestsPerCopy" if endpoint.component else "ConcurrentRequestsPerModel",
                endpoint.invocations,
                stat="Maximum",
                label="in flight",
                yAxis="right",
            ),
        ],
    )


def _errors(endpoint: Watched) -> dict[str, Any]:
    names = ("Invocation4XXErrors", "Invocation5XXErrors", "InvocationModelErrors")
    return _graph(
        "Errors a minute",
        [_metric(INVOCATIONS, name, endpoint.invocations, stat="Sum", label=name) for name in names],
    )


def _latency(endpoint: Watched) -> dict[str, Any]:
    pairs = []
    for number, percentile in enumerate(("p50", "p90", "p99")):
        raw = f"m{number}"
        pairs.append([{"expression": f"{raw} / 1000", "label": percentile, "id": f"e{number}"}])
        pairs.append(
            _metric(INVOCATIONS, "ModelLatency", endpoint.invocations, stat=percentile, id=raw, visible=False)
        )
    axis = {"left": {"label": "ms", "showUnits": False, "min": 0}}
    return _graph("Model latency (ms)", pairs, yAxis=axis)


def _drafting(endpoint: Watched) -> list[dict[str, Any]]:
    if endpoint.tokens is None:
        return []
    space = endpoint.acceptance_namespace
    counts = [
        _metric(space, ACCEPTED, {}, stat="Sum", id="accepted", visible=False),
        _metric(space, DRAFTED, {}, stat="Sum", id="drafted", visible=False),
    ]
    rate = {"expression": "100 * accepted / drafted", "label": "accepted %", "id": "rate", "yAxis": "right"}
    percent = {"min": 0, "max": 100, "showUnits": False}
    if endpoint.ks != {endpoint.tokens}:
        # The log has drafted tokens, not steps: with several K it does not give the tokens of a step.
        title, lines = "Acceptance with several K: per cent of drafts", [[{**rate, "yAxis": "left"}]]
        axis = {"left": percent}
    else:
        steps = f"1 + {endpoint.tokens} * accepted / drafted"
        title = f"Acceptance at K = {endpoint.tokens}: tokens a step, and per cent of drafts"
        lines = [[{"expression": steps, "label": "length", "id": "length"}], [rate]]
        axis = {"left": {"min": 1, "max": endpoint.tokens + 1, "showUnits": False}, "right": percent}
    return [_graph(title, [*lines, *counts], yAxis=axis)]


def _slices(endpoint: Watched) -> list[dict[str, Any]]:
    """Acceptance by slice; only images with the gate report it, and only if slices were chosen."""
    if not endpoint.slices:
        return []
    space = endpoint.acceptance_namespace
    fell = _graph(
        "Slices that the drift detector reports, and the largest fall (%)",
        [
            _metric(space, DRIFTING_SLICES, {}, stat="Maximum", label="slices that fell"),
            _metric(space, LARGEST_FALL, {}, stat="Maximum", label="largest fall %", yAxis="right"),
            _metric(space, UNCOUNTED, {}, stat="Sum", label="uncounted requests", yAxis="right"),
        ],
        yAxis={"left": {"min": 0, "showUnits": False}, "right": {"min": 0, "showUnits": False}},
    )
    lines: list[Any] = []
    for number, name in enumerate(name for chosen in endpoint.slices for name in chosen.slices):
        lines.append([{"expression": f"1 + a{number} / d{number}", "label": name, "id": f"length{number}"}])
        for letter, metric in (("a", SLICE_ACCEPTED), ("d", SLICE_DRAFTS)):
            lines.append(
                _metric(space, metric, {SLICE: name}, stat="Sum", id=f"{letter}{number}", visible=False)
            )
    if not lines:
        return [fell]
    left = {"left": {"min": 1, "showUnits": False}}
    return [_graph("Acceptance length by slice: tokens a step", lines, yAxis=left), fell]


def _hardware(endpoint: Watched) -> dict[str, Any]:
    names = ("GPUMemoryUtilization", "GPUUtilization") if endpoint.gpus else ("MemoryUtilization",)
    times = max(1, endpoint.gpus)
    title = (
        f"Use of the hardware (%; {times} GPUs count {times * 100})"
        if times > 1
        else "Use of the hardware (%)"
    )
    return _graph(
        title,
        [
            _metric(INSTANCES, name, endpoint.instances, stat="Average", label=name)
            for name in (*names, "CPUUtilization", "DiskUtilization")
        ],
    )


def alarm_name(endpoint: str, key: str) -> str:
    """Return the name of an alarm."""
    return f"Peagle-{endpoint}-{key}"


def add_topic(scope: Construct, endpoint: Watched, email: str | None) -> sns.CfnTopic:
    """Add the alarms' topic, encrypted with a key that CloudWatch may use, and its first subscriber.

    With AWS's own key (alias/aws/sns) CloudWatch could not publish: that key's policy cannot be changed.
    """
    key = kms.CfnKey(
        scope,
        "AlarmKey",
        description=f"peagle-sm: the alarms of endpoint {endpoint.name}",
        enable_key_rotation=True,
        pending_window_in_days=7,
        key_policy=document(
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
                # the topic's policy limits the publishers; a condition here that CloudWatch does not meet
                # would block all notifications without any error
                "Resource": "*",
            },
        ),
    )
    key.apply_removal_policy(RemovalPolicy.DESTROY)
    topic = sns.CfnTopic(
        scope, "Alarms", display_name=f"peagle-sm {endpoint.name}", kms_master_key_id=key.attr_arn
    )
    alarms = f"{_ALARMS}{alarm_name(endpoint.name, '*')}"
    from_our_alarms = {
        "StringEquals": {"aws:SourceAccount": Aws.ACCOUNT_ID},
        "ArnLike": {"aws:SourceArn": Fn.sub(alarms)},
    }
    sns.CfnTopicPolicy(
        scope,
        "AlarmsPolicy",
        topics=[topic.ref],
        policy_document=document(
            alarms_publish(topic.ref, from_our_alarms), only_by_tls("sns:Publish", topic.ref)
        ),
    )
    if email is not None:
        sns.CfnSubscription(scope, "Email", topic_arn=topic.ref, protocol="email", endpoint=email)
    return topic


def add_alarms(
    scope: Construct,
    endpoint: Watched,
    watches: Sequence[AlarmRule],
    topic: sns.CfnTopic,
    while_on: tuple[CfnCondition, CfnResource],
    tags: Mapping[str, str],
) -> None:
    """Add the alarms; ``while_on`` is the condition that the endpoint is on, and the endpoint."""
    is_on, created = while_on
    actions = {"AlarmActions": [topic.ref], "OKActions": [topic.ref]}
    for watch in watches:
        logical_id = "".join(part.capitalize() for part in watch.key.split("-")) + "Alarm"
        properties = {**_payload(endpoint, watch), **actions}
        alarm = add_checked(scope, logical_id, "AWS::CloudWatch::Alarm", properties, tags)
        if watch.only_on:
            alarm.cfn_options.condition = is_on
            # so that missing data counts from the first minute in service, not from the start
            alarm.add_resource_dependency(created)


def _payload(endpoint: Watched, watch: AlarmRule) -> dict[str, Any]:
    result = {"Id": "result", "Expression": watch.expression, "Label": watch.key, "ReturnData": True}
    return {
        "AlarmName": alarm_name(endpoint.name, watch.key),
        "AlarmDescription": f"{watch.text} {watch.silence}",
        "Metrics": [*watch.queries, result],
        "ComparisonOperator": watch.compare,
        "Threshold": watch.threshold,
        "EvaluationPeriods": watch.periods,
        "DatapointsToAlarm": watch.breaching,
        "TreatMissingData": watch.missing,
    }
