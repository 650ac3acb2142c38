"""Where the guard keeps what it knows and leaves what it has to say: register, notices, dead letters."""

from __future__ import annotations

from typing import Any

from aws_cdk import CfnCondition, CfnResource, RemovalPolicy, Stack
from aws_cdk import aws_dynamodb as dynamodb
from aws_cdk import aws_sns as sns
from aws_cdk import aws_sqs as sqs

from peagle_sm.core.guard import names
from stacks.guard.inputs import HAS_EMAIL, Inputs

_DEAD_LETTERS_LAST_S = 14 * 24 * 3600
"""The longest that SQS keeps a message."""


def register(stack: Stack, inputs: Inputs) -> dynamodb.CfnTable:
    """Marks, leases and owners of the endpoints, written under conditions."""
    table = dynamodb.CfnTable(
        stack,
        "Register",
        table_name=names.TABLE,
        attribute_definitions=[_attribute("pk", "S")],
        key_schema=[dynamodb.CfnTable.KeySchemaProperty(attribute_name="pk", key_type="HASH")],
        billing_mode="PAY_PER_REQUEST",
        time_to_live_specification=dynamodb.CfnTable.TimeToLiveSpecificationProperty(
            attribute_name="ttl", enabled=True
        ),
        point_in_time_recovery_specification=dynamodb.CfnTable.PointInTimeRecoverySpecificationProperty(
            point_in_time_recovery_enabled=True
        ),
    )
    # Without it AWS encrypts with a key of its own.
    key = {"SSEEnabled": True, "SSEType": "KMS", "KMSMasterKeyId": inputs.key.value_as_string}
    table.add_property_override("SSESpecification", inputs.if_key(key))
    # What it holds is found again by the next sweeps, and its name is needed for the next installation.
    table.apply_removal_policy(RemovalPolicy.DESTROY)
    return table


def notices(stack: Stack, inputs: Inputs) -> sns.CfnTopic:
    """The topic that people subscribe to, and its first subscriber when one was named."""
    topic = sns.CfnTopic(stack, "Notices", topic_name=names.TOPIC, display_name="peagle-sm guard")
    topic.add_property_override("KmsMasterKeyId", inputs.if_key(inputs.key.value_as_string))
    sns.CfnTopicPolicy(
        stack,
        "NoticesPolicy",
        topics=[topic.ref],
        policy_document=_policy(
            _only_by_tls("sns:Publish", topic.ref),
            {
                "Sid": "AlarmsSpeak",
                "Effect": "Allow",
                "Principal": {"Service": "cloudwatch.amazonaws.com"},
                "Action": "sns:Publish",
                "Resource": topic.ref,
                "Condition": {"StringEquals": {"aws:SourceAccount": {"Ref": "AWS::AccountId"}}},
            },
        ),
    )
    mail = sns.CfnSubscription(
        stack, "NoticesMail", topic_arn=topic.ref, protocol="email", endpoint=inputs.email.value_as_string
    )
    _under(stack, mail, HAS_EMAIL)
    return topic


def dead_letters(stack: Stack, inputs: Inputs) -> sqs.CfnQueue:
    """Events that neither a schedule nor a function could deliver or handle."""
    queue = sqs.CfnQueue(
        stack,
        "DeadLetters",
        queue_name=names.DEAD_LETTERS,
        message_retention_period=_DEAD_LETTERS_LAST_S,
    )
    queue.add_property_override("KmsMasterKeyId", inputs.if_key(inputs.key.value_as_string))
    queue.add_property_override("SqsManagedSseEnabled", inputs.if_key(False, True))
    queue.apply_removal_policy(RemovalPolicy.DESTROY)
    sqs.CfnQueuePolicy(
        stack,
        "DeadLettersPolicy",
        queues=[queue.ref],
        policy_document=_policy(_only_by_tls("sqs:*", queue.attr_arn)),
    )
    return queue


def _attribute(name: str, kind: str) -> dynamodb.CfnTable.AttributeDefinitionProperty:
    return dynamodb.CfnTable.AttributeDefinitionProperty(attribute_name=name, attribute_type=kind)


def _policy(*statements: dict[str, Any]) -> dict[str, Any]:
    return {"Version": "2012-10-17", "Statement": list(statements)}


def _only_by_tls(action: str, resource: str) -> dict[str, Any]:
    return {
        "Sid": "OnlyByTls",
        "Effect": "Deny",
        "Principal": {"AWS": "*"},
        "Action": action,
        "Resource": resource,
        "Condition": {"Bool": {"aws:SecureTransport": "false"}},
    }


def _under(stack: Stack, resource: CfnResource, condition: str) -> None:
    found = stack.node.find_child(condition)
    assert isinstance(found, CfnCondition)
    resource.cfn_options.condition = found
