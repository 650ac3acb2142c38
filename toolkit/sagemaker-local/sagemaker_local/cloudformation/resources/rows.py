"""The table of resource types whose verbs are API calls alone: one row a type.

A new type needs a row here, or a class in `serving`, and then ``scripts/lib/cfn_schemas.py``.
"""

from __future__ import annotations

import io
import json
import re
import zipfile
from collections.abc import Callable, Mapping
from typing import Any

from sagemaker_local.cloudformation.resources.base import Properties, ResourceContext, ResourceFailure
from sagemaker_local.cloudformation.resources.by_table import (
    Items,
    Members,
    OnEach,
    Row,
    Setting,
    Tagging,
)
from sagemaker_local.cloudformation.resources.calls import gone_is_fine, refuse_others, send, tag_list


def _arn(service: str, kind: str) -> Callable[[ResourceContext, str], str]:
    return lambda ctx, name: f"arn:{ctx.partition}:{service}:{ctx.region}:{ctx.account}:{kind}{name}"


def _arn_of(
    service: str, kind: str = "", **more: str
) -> Callable[[ResourceContext, str, Properties], Members]:
    """Return Fn::GetAtt's Arn, and in ``more`` the attributes that are the Ref."""
    arn = _arn(service, kind)
    return lambda ctx, ref, properties: {"Arn": arn(ctx, ref), **dict.fromkeys(more, ref)}


def _by_arn(service: str, kind: str, member: str = "ResourceArn", **calls: Any) -> Tagging:
    arn = _arn(service, kind)
    return Tagging(of=lambda ctx, ref: {member: arn(ctx, ref)}, **calls)


def _answers(
    service: str, operation: str, members: Callable[[ResourceContext, str], Members], *gone: str
) -> Any:
    """Return a check whether a name is taken: the call answers, or fails with a code of ``gone``."""

    def exists(ctx: ResourceContext, name: str) -> bool:
        with gone_is_fine(*gone):
            send(ctx, service, operation, members(ctx, name))
            return True
        return False

    return exists


# --- storage ---------------------------------------------------------------------------------------


def _encryption_rules(value: Mapping[str, Any]) -> Members:
    return {
        "Rules": [
            {
                "ApplyServerSideEncryptionByDefault": rule.get("ServerSideEncryptionByDefault"),
                "BucketKeyEnabled": rule.get("BucketKeyEnabled"),
            }
            for rule in value["ServerSideEncryptionConfiguration"]
        ]
    }


# What a lifecycle rule is called in a template, and in the API.
_RULE_NAMES = {
    "Id": "ID",
    "NoncurrentVersionExpiration": "NoncurrentVersionExpiration",
    "AbortIncompleteMultipartUpload": "AbortIncompleteMultipartUpload",
    "Status": "Status",
    "Prefix": "Prefix",
}
_RULE_KNOWN = {*_RULE_NAMES, "ExpirationInDays", "NoncurrentVersionExpirationInDays"}


def _lifecycle_rule(rule: Mapping[str, Any]) -> dict[str, Any]:
    refuse_others(rule, _RULE_KNOWN, "a lifecycle rule")
    worded = {api: rule[name] for name, api in _RULE_NAMES.items() if name in rule}
    worded["Filter"] = {"Prefix": worded.pop("Prefix", "")}
    if "ExpirationInDays" in rule:
        worded["Expiration"] = {"Days": rule["ExpirationInDays"]}
    if "NoncurrentVersionExpirationInDays" in rule:
        worded["NoncurrentVersionExpiration"] = {"NoncurrentDays": rule["NoncurrentVersionExpirationInDays"]}
    return worded


def _bucket_attributes(ctx: ResourceContext, name: str, properties: Properties) -> Members:
    return {
        "Arn": f"arn:{ctx.partition}:s3:::{name}",
        "DomainName": f"{name}.s3.amazonaws.com",
        "RegionalDomainName": f"{name}.s3.{ctx.region}.amazonaws.com",
    }


def _sse(value: Mapping[str, Any]) -> Members:
    return {"Enabled" if key == "SSEEnabled" else key: item for key, item in value.items()}


STORAGE = {
    "AWS::S3::Bucket": Row(
        "s3",
        create="CreateBucket",
        delete="DeleteBucket",
        name="BucketName",
        longest=63,
        lower=True,
        gone=("NoSuchBucket", "404"),
        takes=frozenset(),
        members={"BucketName": "Bucket"},
        attributes=_bucket_attributes,
        settings=(
            Setting(
                "AccessControl",
                "PutBucketAcl",
                "ACL",
                default="private",
                read=lambda value: re.sub(r"(?<!^)(?=[A-Z])", "-", value).lower(),
                off=("Private",),
            ),
            Setting(
                "BucketEncryption",
                "PutBucketEncryption",
                "ServerSideEncryptionConfiguration",
                remove="DeleteBucketEncryption",
                read=_encryption_rules,
            ),
            Setting(
                "VersioningConfiguration",
                "PutBucketVersioning",
                "VersioningConfiguration",
                default={"Status": "Suspended"},
            ),
            Setting(
                "PublicAccessBlockConfiguration",
                "PutPublicAccessBlock",
                "PublicAccessBlockConfiguration",
                remove="DeletePublicAccessBlock",
            ),
            Setting(
                "LifecycleConfiguration",
                "PutBucketLifecycleConfiguration",
                "LifecycleConfiguration",
                remove="DeleteBucketLifecycle",
                read=lambda value: {"Rules": [_lifecycle_rule(rule) for rule in value["Rules"]]},
            ),
            Setting(
                "OwnershipControls",
                "PutBucketOwnershipControls",
                "OwnershipControls",
                remove="DeleteBucketOwnershipControls",
            ),
        ),
        tagging=Tagging(
            created=None,
            tag="PutBucketTagging",
            untag="DeleteBucketTagging",
            keys=None,
            tags="Tagging",
            form=lambda tags: {"TagSet": tag_list(tags)},
        ),
    ),
    "AWS::S3::BucketPolicy": Row(
        "s3",
        create="PutBucketPolicy",
        update="PutBucketPolicy",
        delete="DeleteBucketPolicy",
        name="Bucket",
        members={"PolicyDocument": "Policy"},
        gone=("NoSuchBucket", "404", "NoSuchBucketPolicy"),
    ),
    "AWS::DynamoDB::Table": Row(
        "dynamodb",
        create="CreateTable",
        delete="DeleteTable",
        name="TableName",
        longest=255,
        takes=frozenset(
            {"AttributeDefinitions", "KeySchema", "ProvisionedThroughput", "GlobalSecondaryIndexes"}
        ),
        fixed=("AttributeDefinitions", "KeySchema", "ProvisionedThroughput", "GlobalSecondaryIndexes"),
        request=lambda properties: {
            **properties,
            **(
                {"SSESpecification": _sse(properties["SSESpecification"])}
                if "SSESpecification" in properties
                else {}
            ),
        },
        attributes=_arn_of("dynamodb", "table/"),
        settings=(
            Setting("BillingMode", "UpdateTable", "BillingMode", default="PROVISIONED", created=True),
            Setting(
                "DeletionProtectionEnabled",
                "UpdateTable",
                "DeletionProtectionEnabled",
                default=False,
                created=True,
            ),
            Setting(
                "SSESpecification",
                "UpdateTable",
                "SSESpecification",
                default={"Enabled": False},
                read=_sse,
                created=True,
            ),
            Setting("TimeToLiveSpecification", "UpdateTimeToLive", "TimeToLiveSpecification"),
            Setting(
                "PointInTimeRecoverySpecification",
                "UpdateContinuousBackups",
                "PointInTimeRecoverySpecification",
                default={"PointInTimeRecoveryEnabled": False},
            ),
        ),
        tagging=_by_arn("dynamodb", "table/"),
    ),
    "AWS::ECR::Repository": Row(
        "ecr",
        create="CreateRepository",
        delete="DeleteRepository",
        name="RepositoryName",
        longest=256,
        lower=True,
        gone=("RepositoryNotFoundException",),
        takes=frozenset({"EncryptionConfiguration", "EmptyOnDelete"}),
        request=lambda properties: {key: item for key, item in properties.items() if key != "EmptyOnDelete"},
        address=lambda name, properties: {
            "repositoryName": name,
            "force": properties.get("EmptyOnDelete", False),
        },
        attributes=lambda ctx, name, properties: {
            "Arn": _arn("ecr", "repository/")(ctx, name),
            "RepositoryUri": f"{ctx.account}.dkr.ecr.{ctx.region}.amazonaws.com/{name}",
        },
        settings=(
            Setting(
                "ImageTagMutability",
                "PutImageTagMutability",
                "imageTagMutability",
                default="MUTABLE",
                created=True,
            ),
            Setting(
                "ImageScanningConfiguration",
                "PutImageScanningConfiguration",
                "imageScanningConfiguration",
                default={"scanOnPush": False},
                created=True,
            ),
            Setting(
                "LifecyclePolicy",
                "PutLifecyclePolicy",
                "lifecyclePolicyText",
                remove="DeleteLifecyclePolicy",
                read=lambda value: value["LifecyclePolicyText"],
            ),
            Setting(
                "RepositoryPolicyText", "SetRepositoryPolicy", "policyText", remove="DeleteRepositoryPolicy"
            ),
        ),
        tagging=_by_arn("ecr", "repository/", "resourceArn"),
    ),
    "AWS::SSM::Parameter": Row(
        "ssm",
        create="PutParameter",
        update="PutParameter",
        defaults={"Overwrite": True},
        delete="DeleteParameter",
        name="Name",
        longest=1000,
        prefix="CFN-",
        gone=("ParameterNotFound",),
        attributes=lambda ctx, name, properties: {
            "Type": properties["Type"],
            "Value": properties["Value"],
            "Arn": _arn("ssm", "parameter/")(ctx, name.removeprefix("/")),
        },
        tagging=Tagging(
            of=lambda ctx, name: {"ResourceType": "Parameter", "ResourceId": name},
            tag="AddTagsToResource",
            untag="RemoveTagsFromResource",
        ),
    ),
}

# --- keys, roles and policies ------------------------------------------------------------------------

_SWITCH_ON, _SWITCH_OFF = (True, "true"), (False, "false")

ACCESS: dict[str, Row | OnEach] = {
    "AWS::KMS::Key": Row(
        "kms",
        create="CreateKey",
        delete="ScheduleKeyDeletion",
        gone=("NotFoundException", "KMSInvalidStateException"),
        takes=frozenset({"KeySpec", "KeyUsage", "MultiRegion", "Origin", "PendingWindowInDays"}),
        fixed=("KeySpec", "KeyUsage", "MultiRegion", "Origin"),
        members={"KeyPolicy": "Policy"},
        request=lambda properties: {
            key: item for key, item in properties.items() if key != "PendingWindowInDays"
        },
        ref=lambda name, answer, properties: str(answer["KeyMetadata"]["KeyId"]),
        address=lambda key, properties: {
            "KeyId": key,
            "PendingWindowInDays": properties.get("PendingWindowInDays", 30),
        },
        attributes=_arn_of("kms", "key/", KeyId=""),
        settings=(
            Setting("Description", "UpdateKeyDescription", "Description", default="", created=True),
            Setting("KeyPolicy", "PutKeyPolicy", "Policy", more={"PolicyName": "default"}, created=True),
            Setting(
                "EnableKeyRotation",
                "EnableKeyRotation",
                remove="DisableKeyRotation",
                read=lambda value: {},
                off=_SWITCH_OFF,
            ),
            Setting("Enabled", "DisableKey", remove="EnableKey", read=lambda value: {}, off=_SWITCH_ON),
        ),
        tagging=Tagging(form=lambda tags: tag_list(tags, "TagKey", "TagValue")),
    ),
    "AWS::KMS::Alias": Row(
        "kms",
        create="CreateAlias",
        update="UpdateAlias",
        delete="DeleteAlias",
        name="AliasName",
        gone=("NotFoundException",),
    ),
    "AWS::IAM::Role": Row(
        "iam",
        create="CreateRole",
        update="UpdateRole",
        defaults={"Description": "", "MaxSessionDuration": 3600},
        delete="DeleteRole",
        name="RoleName",
        longest=64,
        gone=("NoSuchEntity",),
        takes=frozenset({"Path", "Description", "MaxSessionDuration", "PermissionsBoundary"}),
        fixed=("PermissionsBoundary",),
        attributes=lambda ctx, name, properties: {
            "Arn": f"arn:{ctx.partition}:iam::{ctx.account}:role{properties.get('Path', '/')}{name}"
        },
        settings=(
            Setting("AssumeRolePolicyDocument", "UpdateAssumeRolePolicy", "PolicyDocument", created=True),
            Items(
                "Policies",
                "PutRolePolicy",
                "DeleteRolePolicy",
                attached=dict,
                detached=lambda policy: {"PolicyName": policy["PolicyName"]},
            ),
            Items(
                "ManagedPolicyArns",
                "AttachRolePolicy",
                "DetachRolePolicy",
                attached=lambda arn: {"PolicyArn": arn},
                detached=lambda arn: {"PolicyArn": arn},
            ),
        ),
        tagging=Tagging(tag="TagRole", untag="UntagRole"),
    ),
    "AWS::IAM::ManagedPolicy": Row(
        "iam",
        create="CreatePolicy",
        delete="DeletePolicy",
        name="ManagedPolicyName",
        longest=128,
        gone=("NoSuchEntity",),
        takes=frozenset({"PolicyDocument", "Description", "Path"}),
        fixed=("PolicyDocument",),
        members={"ManagedPolicyName": "PolicyName"},
        ref=lambda name, answer, properties: str(answer["Policy"]["Arn"]),
        address=lambda arn, properties: {"PolicyArn": arn},
        attributes=lambda ctx, arn, properties: {"PolicyArn": arn},
        settings=(
            Items(
                "Roles",
                "AttachRolePolicy",
                "DetachRolePolicy",
                attached=lambda role: {"RoleName": role},
                detached=lambda role: {"RoleName": role},
            ),
        ),
    ),
    "AWS::IAM::Policy": OnEach(
        "iam",
        "Roles",
        put=lambda role, properties: (
            "PutRolePolicy",
            {
                "RoleName": role,
                "PolicyName": properties["PolicyName"],
                "PolicyDocument": properties["PolicyDocument"],
            },
        ),
        remove=lambda role, properties: (
            "DeleteRolePolicy",
            {"RoleName": role, "PolicyName": properties["PolicyName"]},
        ),
        takes=frozenset({"PolicyName", "PolicyDocument"}),
        gone=("NoSuchEntity",),
    ),
}

# --- logs, alarms, topics and queues -----------------------------------------------------------------


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


_topic_arn = _arn("sns", "")
_ALLOWS_NOTHING = json.dumps({"Version": "2008-10-17", "Statement": []})

MONITORING: dict[str, Row | OnEach] = {
    "AWS::CloudWatch::Alarm": Row(
        "cloudwatch",
        create="PutMetricAlarm",
        update="PutMetricAlarm",
        delete="DeleteAlarms",
        name="AlarmName",
        longest=255,
        gone=("ResourceNotFound", "ResourceNotFoundException"),
        address=lambda name, properties: {"AlarmName": name, "AlarmNames": [name]},
        attributes=_arn_of("cloudwatch", "alarm:"),
        exists=_alarm_exists,
        tagging=_by_arn("cloudwatch", "alarm:", "ResourceARN"),
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
        attributes=lambda ctx, name, properties: {"Arn": f"{_arn('logs', 'log-group:')(ctx, name)}:*"},
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
        exists=_answers(
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
            "Arn": _arn("sqs", "")(ctx, url.rsplit("/", 1)[-1]),
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

# --- functions and schedules -------------------------------------------------------------------------


def _code(value: Mapping[str, Any]) -> Members:
    """Return a function's package; source code of the template is the file ``index``, as in AWS."""
    refuse_others(value, ("ZipFile", "S3Bucket", "S3Key", "S3ObjectVersion"), "AWS::Lambda::Function's Code")
    if "ZipFile" not in value:
        return value
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:
        archive.writestr(zipfile.ZipInfo("index.py"), str(value["ZipFile"]))
    return {"ZipFile": packed.getvalue()}


def _latest_only(properties: Properties) -> Properties:
    if properties["Qualifier"] != "$LATEST":
        raise ResourceFailure(
            f"the local Lambda has the qualifier $LATEST only, found {properties['Qualifier']}"
        )
    return properties


# Properties of the configuration, with what each goes back to when the template no longer sets it.
_CONFIGURATION: dict[str, Any] = {
    "Role": None,
    "Handler": None,
    "Runtime": None,
    "Description": "",
    "Timeout": 3,
    "MemorySize": 128,
    "Environment": {"Variables": {}},
    "DeadLetterConfig": {},
    "TracingConfig": {"Mode": "PassThrough"},
    "EphemeralStorage": {"Size": 512},
    "LoggingConfig": None,
}

FUNCTIONS = {
    "AWS::Lambda::Function": Row(
        "lambda",
        create="CreateFunction",
        update="UpdateFunctionConfiguration",
        defaults=_CONFIGURATION,
        delete="DeleteFunction",
        name="FunctionName",
        longest=64,
        takes=frozenset({*_CONFIGURATION, "KmsKeyArn", "Architectures", "PackageType"}),
        fixed=("Architectures", "PackageType"),
        members={"KmsKeyArn": "KMSKeyArn"},
        request=lambda properties: {**properties, "Code": _code(properties["Code"])},
        attributes=_arn_of("lambda", "function:", FunctionName=""),
        exists=_answers(
            "lambda", "GetFunction", lambda ctx, name: {"FunctionName": name}, "ResourceNotFoundException"
        ),
        role=lambda properties: properties.get("Role"),
        passed_to="lambda.amazonaws.com",
        settings=(
            Setting("Code", "UpdateFunctionCode", read=_code, created=True),
            Setting(
                "ReservedConcurrentExecutions",
                "PutFunctionConcurrency",
                "ReservedConcurrentExecutions",
                remove="DeleteFunctionConcurrency",
            ),
        ),
        tagging=_by_arn("lambda", "function:", "Resource", form=dict),
    ),
    "AWS::Lambda::EventInvokeConfig": Row(
        "lambda",
        create="PutFunctionEventInvokeConfig",
        update="PutFunctionEventInvokeConfig",
        delete="DeleteFunctionEventInvokeConfig",
        request=_latest_only,
        ref=lambda name, answer, properties: f"{properties['FunctionName']}|{properties['Qualifier']}",
        address=lambda ref, properties: {key: properties[key] for key in ("FunctionName", "Qualifier")},
    ),
    "AWS::Lambda::Permission": Row(  # all of its properties are immutable
        "lambda",
        create="AddPermission",
        delete="RemovePermission",
        name="StatementId",
        longest=100,
        address=lambda name, properties: {"StatementId": name, "FunctionName": properties["FunctionName"]},
        attributes=lambda ctx, name, properties: {"Id": name},
    ),
    "AWS::Scheduler::Schedule": Row(
        "scheduler",
        create="CreateSchedule",
        update="UpdateSchedule",
        delete="DeleteSchedule",
        name="Name",
        longest=64,
        fixed=("GroupName",),
        address=lambda name, properties: {"Name": name, "GroupName": properties.get("GroupName")},
        attributes=lambda ctx, name, properties: {
            "Arn": _arn("scheduler", "schedule/")(ctx, f"{properties.get('GroupName', 'default')}/{name}")
        },
        role=lambda properties: properties["Target"]["RoleArn"],
        passed_to="scheduler.amazonaws.com",
    ),
    "AWS::Scheduler::ScheduleGroup": Row(
        "scheduler",
        create="CreateScheduleGroup",
        delete="DeleteScheduleGroup",
        name="Name",
        longest=64,
        attributes=_arn_of("scheduler", "schedule-group/"),
        tagging=_by_arn("scheduler", "schedule-group/"),
    ),
}

# --- models, configurations and scaling --------------------------------------------------------------

_PLACE = ("ResourceId", "ScalableDimension", "ServiceNamespace")


def _of_sagemaker(kind: str) -> Row:
    """Return the row of a model or an endpoint configuration: only its tags can change."""
    name, arn = f"{kind}Name", f"{kind}Arn"
    return Row(
        "sagemaker",
        create=f"Create{kind}",
        delete=f"Delete{kind}",
        name=name,
        longest=63,
        lower=True,
        gone=("Could not find",),  # words of a ValidationException
        ref=lambda _, answer, properties: str(answer[arn]),
        address=lambda ref, properties: {name: properties.get(name) or ref.rsplit("/", 1)[-1]},
        attributes=lambda ctx, ref, properties: {
            arn: ref,
            name: properties.get(name) or ref.rsplit("/", 1)[-1],
        },
        role=lambda properties: properties.get("ExecutionRoleArn"),
        passed_to="sagemaker.amazonaws.com",
        tagging=SAGEMAKER_TAGS,
    )


SAGEMAKER_TAGS = Tagging(of=lambda ctx, arn: {"ResourceArn": arn}, tag="AddTags", untag="DeleteTags")


def _place(properties: Properties) -> Members:
    """Return a target's identifiers; a policy may give them as the target's Ref."""
    if "ScalingTargetId" in properties:
        return dict(zip(_PLACE, str(properties["ScalingTargetId"]).split("|"), strict=True))
    return {key: properties[key] for key in _PLACE}


def _scaling_policy(properties: Properties) -> Members:
    return {key: item for key, item in properties.items() if key != "ScalingTargetId"} | dict(
        _place(properties)
    )


SERVING = {
    "AWS::SageMaker::Model": _of_sagemaker("Model"),
    "AWS::SageMaker::EndpointConfig": _of_sagemaker("EndpointConfig"),
    "AWS::ApplicationAutoScaling::ScalableTarget": Row(
        "application-autoscaling",
        create="RegisterScalableTarget",
        update="RegisterScalableTarget",
        delete="DeregisterScalableTarget",
        gone=("ObjectNotFoundException",),
        takes=frozenset({*_PLACE, "MinCapacity", "MaxCapacity", "RoleARN", "SuspendedState"}),
        address=lambda ref, properties: _place(properties),
        ref=lambda name, answer, properties: "|".join(str(properties[key]) for key in _PLACE),
        attributes=lambda ctx, ref, properties: {"Id": ref},
        tagging=Tagging(form=dict, changes=False),
    ),
    "AWS::ApplicationAutoScaling::ScalingPolicy": Row(
        "application-autoscaling",
        create="PutScalingPolicy",
        update="PutScalingPolicy",
        delete="DeleteScalingPolicy",
        gone=("ObjectNotFoundException",),
        request=_scaling_policy,
        ref=lambda name, answer, properties: str(answer["PolicyARN"]),
        address=lambda ref, properties: {**_place(properties), "PolicyName": properties["PolicyName"]},
        attributes=lambda ctx, ref, properties: {"Arn": ref, "PolicyName": properties["PolicyName"]},
    ),
}

ROWS: dict[str, Row | OnEach] = {**STORAGE, **ACCESS, **MONITORING, **FUNCTIONS, **SERVING}
