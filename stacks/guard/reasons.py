"""Reasons for the remaining findings of cdk-nag; a finding without a reason fails the tests.

A wildcard in a role is a finding. Its reason depends on the resource, or, for ``*``, on the actions.
Conditions on tags limit what a wildcard over names allows (see policies.py); tests check this.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from aws_cdk import Acknowledgment, Stack, Validations
from aws_cdk import aws_iam as iam

_BY_TAG = "Users choose the names. What deletes, stops or creates requires the tag peagle-sm:managed-by."
_SCHEDULES = "Schedules are named after their endpoint; the guard's own sweep has none of these suffixes."
_ALARMS = "Alarms of updates and of scaling from zero are named after their endpoint."
_PUBLIC = "Public or gated models of AWS, read only; AWS checks the accepted EULA at CreateModel."
_NETWORK = "AWS chooses the ids, and the VPC is set by the user; the container has no access to EC2."

# By the part of the ARN after the account, or after s3:::; a key that ends in : matches what begins with it.
RESOURCES: Mapping[str, str] = {
    "endpoint/*": _BY_TAG,
    "endpoint-config/*": _BY_TAG,
    "inference-component/*": _BY_TAG,
    "model/*": _BY_TAG,
    "training-job/*": _BY_TAG,
    "stack/Peagle-*/*": "Stacks are named Peagle-<endpoint>, followed by an id from CloudFormation. "
    "Only the switch may update them, and only without another role or template URL.",
    "schedule/default/peagle-*-lifetime": _SCHEDULES,
    "schedule/default/peagle-*-hard": _SCHEDULES,
    "schedule/default/peagle-*-hard-*": _SCHEDULES,
    "alarm:peagle-*-update": _ALARMS,
    "alarm:peagle-*-acceptance": _ALARMS,
    "alarm:Peagle-*-from-zero": _ALARMS,
    "alarm:*": "Alarms that undo an update, also the user's own, by any name. Only their state is read.",
    "scalable-target/*": "AWS chooses the ids; the condition allows only targets of SageMaker.",
    "log-group:": "Lambda and SageMaker choose the names of log streams, and SageMaker those of its groups.",
    "network-interface/*": _NETWORK,
    "security-group/*": _NETWORK,
    "subnet/*": _NETWORK,
    "jumpstart-cache-prod-${AWS::Region}/*": _PUBLIC,
    "jumpstart-private-cache-prod-${AWS::Region}/*": _PUBLIC,
    "sagemaker-sd-models-prod-${AWS::Region}/*": _PUBLIC,
    "${Bucket}/${Prefix}/*": "A job reads its data and writes checkpoints and its head below this prefix.",
}
# AWS supports no resource-level permissions for these. PutMetricData has a condition on the namespace.
WITHOUT_RESOURCE = re.compile(
    r"sagemaker:List\w+|tag:GetResources|cloudwatch:(GetMetricData|PutMetricData)|ec2:Describe\w+"
    r"|ecr:GetAuthorizationToken|application-autoscaling:DescribeScalableTargets"
)


def acknowledge(stack: Stack, reasons: Mapping[str, Mapping[str, str]]) -> None:
    """Attach reasons, by construct and finding."""
    for construct_id, findings in reasons.items():
        for finding, reason in findings.items():
            construct = stack.node.find_child(construct_id)
            Validations.of(construct).acknowledge(Acknowledgment(id=finding, reason=reason))


def acknowledge_wildcards(role: iam.CfnRole, statements: Sequence[Mapping[str, Any]]) -> None:
    """Attach the reason for each wildcard among a role's statements that has one."""
    for resource, reason in dict(_wildcards(statements)).items():
        shown = re.sub(r"\$\{([^}]+)\}", r"<\1>", resource)
        finding = f"AwsSolutions::AwsSolutions-IAM5[Resource::{shown}]"
        Validations.of(role).acknowledge(Acknowledgment(id=finding, reason=reason))


def _wildcards(statements: Sequence[Mapping[str, Any]]) -> Iterator[tuple[str, str]]:
    for conditional in statements:
        statement = conditional["Fn::If"][1] if "Fn::If" in conditional else conditional
        resources = statement["Resource"]
        for resource in resources if isinstance(resources, list) else [resources]:
            text = resource.get("Fn::Sub") if isinstance(resource, dict) else resource
            if text == "*" and all(map(WITHOUT_RESOURCE.fullmatch, statement["Action"])):
                yield text, "AWS supports no resource-level permissions for these calls."
            elif isinstance(text, str):
                part = re.split(r"\$\{AWS::AccountId\}:|s3:::", text)[-1]
                key = "log-group:" if part.startswith("log-group:") else part
                if "*" in part and key in RESOURCES:
                    yield text, RESOURCES[key]
