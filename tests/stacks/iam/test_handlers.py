"""The policies for `cdk bootstrap` allow what CloudFormation's resource handlers call for our templates.

The permissions of each resource type's handlers come from its schema, as cfn-lint ships it. `_callers` says
on which resource, and with which condition keys, a handler calls. `_NEVER` has the permissions of properties
that our templates do not set.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from fnmatch import fnmatchcase
from importlib.resources import files
from pathlib import Path
from typing import Any

import pytest
from aws_cdk import App
from cfnlint.schema import PROVIDER_SCHEMA_MANAGER

from stacks.image_stack import ImageStack
from stacks.training_stack import TrainingStack
from tests.stacks.iam.calls import (
    ACCOUNT,
    COMPONENT,
    CONFIG,
    ENDPOINT,
    ENDPOINT_KEY,
    MODEL,
    OWN_KEY,
    REGION,
    REQUEST_TAG,
    RESOURCE_TAG,
    Call,
    arn,
    role,
    via,
)
from tests.stacks.iam.decisions import denied, unused
from tests.stacks.support import specs, template

FOLDER = Path(__file__).parents[3] / "stacks" / "guard" / "execution-policies"
_VERBS = ("create", "read", "update", "delete")
_Place = tuple[tuple[str, ...], Mapping[str, str]]

_GROUPS = {
    "guard": ("/aws/lambda/peagle-guard-sweeper",),
    "endpoint": ("/aws/sagemaker/Endpoints/demo", "/aws/sagemaker/InferenceComponents/demo"),
    "image": ("/aws/codebuild/peagle-image",),
    "training": (),
}
_ROLES = {
    "guard": tuple(f"peagle-{name}-{REGION}" for name in ("guard-switch", "execution", "scheduler")),
    "endpoint": (),
    "image": ("PeagleImage-BuildRole-0A1B2C",),
    "training": (f"peagle-training-{REGION}",),
}
_BUCKETS = {"image": "arn:aws:s3:::peagleimage-records0a1b-2c3d"}
_PART = {"aws:RequestTag/peagle-sm:part": "image"}, {"aws:ResourceTag/peagle-sm:part": "image"}
_REPOSITORY = arn("ecr", "repository/peagle-sm/vllm")
_TOPICS = {"guard": "peagle-guard-notices"}
_SCALABLE = arn("application-autoscaling", "scalable-target/0a1b")
_TO_SCALING = {"application-autoscaling:service-namespace": "sagemaker"}
_TO_SAGEMAKER = {"iam:PassedToService": "sagemaker.amazonaws.com"}
_ALARMS_KEY = arn("kms", "key/55555555-8888-7777-6666-555555555555")


def _alarm(policy: str) -> str:
    return arn(
        "cloudwatch", f"alarm:{'peagle-guard-no-sweep' if policy == 'guard' else 'Peagle-demo-latency'}"
    )


def _groups(policy: str) -> tuple[str, ...]:
    """Return the log groups' ARNs: tags are for the plain one, all else for the one that ends in a star."""
    return tuple(arn("logs", f"log-group:{name}{end}") for name in _GROUPS[policy] for end in ("", ":*"))


def _callers(policy: str, type_name: str) -> dict[str, list[_Place]]:
    """Return, by a pattern of an action, where a handler of a type calls it; the first that fits counts."""
    topic = arn("sns", _TOPICS.get(policy, "Peagle-demo-Alarms-1A2B3C"))
    function = arn("lambda", "function:peagle-guard-sweeper")
    new_tags, own_tags = _PART if policy == "image" else (REQUEST_TAG, RESOURCE_TAG)
    bucket = _BUCKETS.get(policy, "")
    # AWS's pages disagree on whether a subscription is a resource in policies, so both must be allowed
    subscription: list[_Place] = [(("*",), {}), ((f"{topic}:0a1b-2c3d",), {})]
    by_type: dict[str, dict[str, list[_Place]]] = {
        "AWS::Lambda::Function": {
            "lambda:*": [((function,), {})],
            "iam:PassRole": [
                ((role("peagle-guard-sweeper-us-east-1"),), {"iam:PassedToService": "lambda.amazonaws.com"})
            ],
            "s3:GetObject*": [
                (
                    (
                        f"arn:aws:s3:::cdk-peagle-assets-{ACCOUNT}-{REGION}/0a1b.zip",
                        f"arn:aws:s3:::peagle-guard-{ACCOUNT}-{REGION}/guard/0a1b.zip",
                    ),
                    {},
                )
            ],
        },
        "AWS::Lambda::EventInvokeConfig": {"lambda:*": [((function,), {})]},
        "AWS::IAM::Role": {
            "iam:*": [(tuple(role(name) for name in _ROLES[policy]), {})],
        },
        "AWS::ECR::Repository": {
            "ecr:*": [((_REPOSITORY,), {})],
            "kms:*": [((_ALARMS_KEY,), {**own_tags, **via("ecr")})],
        },
        "AWS::S3::Bucket": {"s3:*": [((bucket,), {})]},
        "AWS::S3::BucketPolicy": {"s3:*": [((bucket,), {})]},
        "AWS::DynamoDB::Table": {
            "dynamodb:*": [((arn("dynamodb", "table/peagle-guard"),), {})],
            "kms:*": [((OWN_KEY,), via("dynamodb"))],
        },
        "AWS::SNS::Topic": {"sns:Unsubscribe": subscription, "sns:*": [((topic,), {})]},
        "AWS::SNS::TopicPolicy": {"sns:*": [((topic,), {})]},
        "AWS::SNS::Subscription": {
            "sns:Subscribe": [((topic,), {"sns:Protocol": "email", "sns:Endpoint": "team@example.com"})],
            "sns:*": subscription,
        },
        "AWS::SQS::Queue": {"sqs:*": [((arn("sqs", "peagle-guard-dead-letters"),), {})]},
        "AWS::SQS::QueuePolicy": {"sqs:*": [((arn("sqs", "peagle-guard-dead-letters"),), {})]},
        "AWS::Scheduler::Schedule": {
            "scheduler:*": [((arn("scheduler", "schedule/default/peagle-guard-sweep"),), {})],
            "iam:PassRole": [
                ((role("peagle-guard-sweep-us-east-1"),), {"iam:PassedToService": "scheduler.amazonaws.com"})
            ],
        },
        "AWS::Logs::LogGroup": {
            # these take no resource
            "logs:DescribeLogGroups": [(("*",), {})],
            "logs:DescribeIndexPolicies": [(("*",), {})],
            "logs:*": [(_groups(policy), {})],
        },
        "AWS::Logs::MetricFilter": {"logs:*": [(_groups(policy), {})]},
        "AWS::CloudWatch::Alarm": {"cloudwatch:*": [((_alarm(policy),), {})]},
        "AWS::CloudWatch::Dashboard": {
            "cloudwatch:*": [((f"arn:aws:cloudwatch::{ACCOUNT}:dashboard/Peagle-demo",), {})]
        },
        "AWS::KMS::Key": {
            "kms:CreateKey": [(("*",), new_tags)],
            # CreateKey with tags needs it too, before the key carries them
            "kms:TagResource": [((_ALARMS_KEY,), new_tags), ((_ALARMS_KEY,), own_tags)],
            "kms:*": [((_ALARMS_KEY,), own_tags)],
        },
        "AWS::SageMaker::Model": {
            "sagemaker:CreateModel": [((MODEL,), new_tags)],
            "sagemaker:AddTags": [
                ((MODEL,), {**new_tags, "sagemaker:TaggingAction": "CreateModel"}),
                ((MODEL,), own_tags),
            ],
            "sagemaker:*": [((MODEL,), own_tags)],
            "iam:PassRole": [((role(f"peagle-execution-{REGION}"),), _TO_SAGEMAKER)],
        },
        "AWS::SageMaker::EndpointConfig": {
            "sagemaker:CreateEndpointConfig": [((CONFIG,), new_tags)],
            "sagemaker:AddTags": [
                ((CONFIG,), {**new_tags, "sagemaker:TaggingAction": "CreateEndpointConfig"}),
                ((CONFIG,), own_tags),
            ],
            "sagemaker:*": [((CONFIG,), own_tags)],
            "iam:PassRole": [((role(f"peagle-execution-{REGION}"),), _TO_SAGEMAKER)],
            # by CloudFormation itself, and by SageMaker for it
            "kms:DescribeKey": [((ENDPOINT_KEY,), {}), ((ENDPOINT_KEY,), via("sagemaker"))],
        },
        "AWS::SageMaker::Endpoint": {
            "sagemaker:CreateEndpoint": [((ENDPOINT,), new_tags), ((CONFIG,), {**new_tags, **own_tags})],
            "sagemaker:UpdateEndpoint": [((ENDPOINT, CONFIG), own_tags)],
            "sagemaker:AddTags": [
                ((ENDPOINT,), {**new_tags, "sagemaker:TaggingAction": "CreateEndpoint"}),
                ((ENDPOINT,), own_tags),
            ],
            "sagemaker:*": [((ENDPOINT,), own_tags)],
        },
        "AWS::SageMaker::InferenceComponent": {
            "sagemaker:CreateInferenceComponent": [
                ((COMPONENT,), new_tags),
                ((ENDPOINT,), {**new_tags, **own_tags}),
            ],
            "sagemaker:AddTags": [
                ((COMPONENT,), {**new_tags, "sagemaker:TaggingAction": "CreateInferenceComponent"}),
                ((COMPONENT,), own_tags),
            ],
            "sagemaker:*": [((COMPONENT,), own_tags)],
        },
        "AWS::ApplicationAutoScaling::ScalableTarget": {
            "application-autoscaling:Describe*": [(("*",), {})],
            "application-autoscaling:*Tag*": [((_SCALABLE,), {})],
            "application-autoscaling:*": [((_SCALABLE,), _TO_SCALING)],
            "cloudwatch:DescribeAlarms": [((arn("cloudwatch", "alarm:*"),), {})],
            # the alarms that follow a target; their names are Application Auto Scaling's own
            "cloudwatch:*": [
                ((arn("cloudwatch", "alarm:TargetTracking-endpoint/demo/variant/AllTraffic-AlarmHigh"),), {})
            ],
            "iam:CreateServiceLinkedRole": [
                (
                    (
                        role(
                            "aws-service-role/sagemaker.application-autoscaling.amazonaws.com/"
                            "AWSServiceRoleForApplicationAutoScaling_SageMakerEndpoint"
                        ),
                    ),
                    {"iam:AWSServiceName": "sagemaker.application-autoscaling.amazonaws.com"},
                )
            ],
        },
        "AWS::ApplicationAutoScaling::ScalingPolicy": {
            "application-autoscaling:Describe*": [(("*",), {})],
            "application-autoscaling:*": [((_SCALABLE,), _TO_SCALING)],
            "cloudwatch:GetMetricData": [(("*",), {})],
        },
    }
    return by_type.get(type_name, {})


_S3 = "AWS::S3::Bucket"
_UNSET_OF_BUCKETS = (
    "DeleteBucketAnalyticsConfiguration",
    "DeleteBucketCors",
    "DeleteBucketEncryption",
    "DeleteBucketLifecycle",
    "DeleteBucketMetadataTableConfiguration",
    "DeleteBucketMetricsConfiguration",
    "DeleteBucketReplication",
    "DeleteBucketWebsite",
    "DeleteObject",
    "CreateBucketMetadataTableConfiguration",
    "PutAccelerateConfiguration",
    "PutAnalyticsConfiguration",
    "PutBucketAbac",
    "PutBucketAcl",
    "PutBucketCORS",
    "PutBucketLogging",
    "PutBucketNotification",
    "PutBucketObjectLockConfiguration",
    "PutBucketOwnershipControls",
    "PutBucketReplication",
    "PutBucketWebsite",
    "PutIntelligentTieringConfiguration",
    "PutInventoryConfiguration",
    "PutMetricsConfiguration",
    "PutObjectAcl",
    "PutObjectLockConfiguration",
    "PutReplicationConfiguration",
    "UpdateBucketMetadata*",
)
# Permissions that only a property asks for that our templates do not set.
_NEVER: dict[tuple[str, str], str] = {
    ("AWS::ApplicationAutoScaling::ScalableTarget", "*:*ScheduledAction"): "ScheduledActions is not set",
    ("AWS::ApplicationAutoScaling::ScalableTarget", "lambda:*"): "only for targets of Lambda",
    ("AWS::ApplicationAutoScaling::ScalableTarget", "iam:PassRole"): "RoleARN is not set",
    ("AWS::DynamoDB::Table", "dynamodb:*Replica"): "Replicas is not set",
    ("AWS::DynamoDB::Table", "dynamodb:*Item"): "ImportSourceSpecification is not set",
    ("AWS::DynamoDB::Table", "dynamodb:Query"): "ImportSourceSpecification is not set",
    ("AWS::DynamoDB::Table", "dynamodb:Scan"): "ImportSourceSpecification is not set",
    ("AWS::DynamoDB::Table", "dynamodb:*Import*"): "ImportSourceSpecification is not set",
    ("AWS::DynamoDB::Table", "s3:*"): "ImportSourceSpecification is not set",
    ("AWS::DynamoDB::Table", "logs:*"): "ImportSourceSpecification is not set",
    ("AWS::DynamoDB::Table", "dynamodb:PutResourcePolicy"): "ResourcePolicy is not set",
    ("AWS::DynamoDB::Table", "dynamodb:DeleteResourcePolicy"): "ResourcePolicy is not set",
    (
        "AWS::DynamoDB::Table",
        "dynamodb:UpdateContributorInsights",
    ): "its property is not set",
    ("AWS::DynamoDB::Table", "dynamodb:*ableKinesis*"): "KinesisStreamSpecification is not set",
    ("AWS::DynamoDB::Table", "dynamodb:UpdateKinesis*"): "KinesisStreamSpecification is not set",
    ("AWS::DynamoDB::Table", "kinesis:*"): "KinesisStreamSpecification is not set",
    ("AWS::DynamoDB::Table", "iam:CreateServiceLinkedRole"): "for replicas and insights alone",
    ("AWS::DynamoDB::Table", "kms:ListAliases"): "the key is named by its ARN",
    ("AWS::ECR::Repository", "ecr:SetRepositoryPolicy"): "RepositoryPolicyText is not set",
    ("AWS::ECR::Repository", "ecr:DeleteRepositoryPolicy"): "RepositoryPolicyText is not set",
    (_S3, "iam:PassRole"): "ReplicationConfiguration is not set",
    (_S3, "s3tables:*"): "MetadataTableConfiguration is not set",
    **{(_S3, f"s3:{name}"): "its property is not set" for name in _UNSET_OF_BUCKETS},
    ("AWS::IAM::Role", "iam:*PermissionsBoundary"): "PermissionsBoundary is not set",
    (
        "AWS::IAM::Role",
        "iam:*tachRolePolicy",
    ): "ManagedPolicyArns is not set",
    ("AWS::KMS::Key", "kms:DisableKey"): "Enabled is not set",
    ("AWS::KMS::Key", "kms:EnableKey"): "Enabled is not set",
    ("AWS::Lambda::Function", "ec2:*"): "VpcConfig is not set",
    ("AWS::Lambda::Function", "elasticfilesystem:*"): "FileSystemConfigs is not set",
    ("AWS::Lambda::Function", "s3files:*"): "FileSystemConfigs is not set",
    ("AWS::Lambda::Function", "kms:*"): "KmsKeyArn is not set",
    ("AWS::Lambda::Function", "lambda:AssociateRuntimeAlias"): "no runtime alias",
    ("AWS::Lambda::Function", "lambda:GetCodeSigningConfig"): "CodeSigningConfigArn is not set",
    ("AWS::Lambda::Function", "lambda:[DP]*CodeSigningConfig"): "CodeSigningConfigArn is not set",
    ("AWS::Lambda::Function", "lambda:GetLayerVersion"): "Layers is not set",
    ("AWS::Lambda::Function", "lambda:PassCapacityProvider"): "CapacityProviderConfig is not set",
    ("AWS::Lambda::Function", "lambda:PublishVersion"): "PublishToLatestPublished is not set",
    ("AWS::Lambda::Function", "lambda:PutFunctionRecursionConfig"): "RecursiveLoop is not set",
    ("AWS::Lambda::Function", "lambda:PutFunctionScalingConfig"): "FunctionScalingConfig is not set",
    ("AWS::Lambda::Function", "lambda:PutRuntimeManagementConfig"): "RuntimeManagementConfig is not set",
    ("AWS::Logs::LogGroup", "firehose:*"): "no delivery of logs",
    ("AWS::Logs::LogGroup", "s3:*"): "no delivery of logs",
    ("AWS::Logs::LogGroup", "logs:CreateLogDelivery"): "no delivery of logs",
    ("AWS::Logs::LogGroup", "logs:*tIndexPolicy"): "FieldIndexPolicies is not set",
    ("AWS::Logs::LogGroup", "logs:DeleteIndexPolicy"): "FieldIndexPolicies is not set",
    ("AWS::Logs::LogGroup", "logs:*ResourcePolic*"): "ResourcePolicyDocument is not set",
    ("AWS::Logs::LogGroup", "logs:PutBearerTokenAuthentication"): "not set",
    ("AWS::Logs::LogGroup", "logs:PutDataProtectionPolicy"): "DataProtectionPolicy is not set",
    ("AWS::Logs::LogGroup", "logs:DeleteDataProtectionPolicy"): "DataProtectionPolicy is not set",
    ("AWS::Logs::LogGroup", "logs:PutLogGroupDeletionProtection"): "DeletionProtectionEnabled is not set",
    ("AWS::SNS::Subscription", "iam:*"): "SubscriptionRoleArn is for Firehose alone",
    ("AWS::SNS::Topic", "iam:*"): "DeliveryStatusLogging is not set",
    ("AWS::SNS::Topic", "sns:PutDataProtectionPolicy"): "DataProtectionPolicy is not set",
}
# Not in the handlers' schemas: what AWS's services ask of whoever calls them.
_FURTHER: dict[str, list[Call]] = {
    "guard": [
        # a table with a key of one's own (DynamoDB guide: authorising use of a customer managed key)
        *(
            Call(f"kms:{action}", (OWN_KEY,), via("dynamodb"))
            for action in ("GenerateDataKey", "ReEncryptFrom", "ReEncryptTo")
        ),
    ],
    "endpoint": [
        # custom resources
        Call("lambda:InvokeFunction", (arn("lambda", "function:peagle-guard-model"),)),
        Call("lambda:InvokeFunction", (arn("lambda", "function:peagle-guard-lifetime"),)),
        # CreateEndpoint with an encrypted volume (SageMaker guide: API permissions reference)
        Call("kms:CreateGrant", (ENDPOINT_KEY,), {**via("sagemaker"), "kms:GrantIsForAWSResource": "true"}),
        # RegisterScalableTarget and PutScalingPolicy (Application Auto Scaling guide)
        Call("sagemaker:DescribeEndpoint", (ENDPOINT,)),
        Call("sagemaker:DescribeEndpointConfig", (CONFIG,)),
        Call("sagemaker:DescribeInferenceComponent", (COMPONENT,)),
        Call("sagemaker:UpdateEndpointWeightsAndCapacities", (ENDPOINT,), RESOURCE_TAG),
        Call("sagemaker:UpdateInferenceComponentRuntimeConfig", (COMPONENT,), RESOURCE_TAG),
    ],
    "image": [
        # AWS::CodeBuild::Project has no handlers in its schema (CodeBuild's user guide: permissions)
        *(
            Call(f"codebuild:{action}", (arn("codebuild", "project/peagle-image"),))
            for action in ("BatchGetProjects", "CreateProject", "DeleteProject", "UpdateProject")
        ),
        Call(
            "iam:PassRole",
            (role("PeagleImage-BuildRole-0A1B2C"),),
            {"iam:PassedToService": "codebuild.amazonaws.com"},
        ),
    ],
    "training": [],
}
POLICIES = ("endpoint", "guard", "image", "training")


def _types(policy: str) -> list[str]:
    if policy == "guard":
        bodies = [json.loads((files("peagle_sm") / "guard_assets" / "template.json").read_text())]
    elif policy == "endpoint":
        bodies = [template(name) for name in specs()]
    else:
        app = App(analytics_reporting=False)
        stack = ImageStack(app) if policy == "image" else TrainingStack(app)
        bodies = [app.synth().get_stack_artifact(stack.artifact_id).template]
    names = {resource["Type"] for body in bodies for resource in body["Resources"].values()}
    return sorted(name for name in names if not name.startswith("Custom::"))


def _permissions(type_name: str) -> list[str]:
    schema = PROVIDER_SCHEMA_MANAGER.get_resource_schema(REGION, type_name).schema
    handlers = schema.get("handlers", {})
    return sorted({name for verb in _VERBS for name in handlers.get(verb, {}).get("permissions", ())})


def _exception(type_name: str, permission: str) -> str | None:
    """Return the pattern of the exception that covers a permission."""
    fitting = (pattern for name, pattern in _NEVER if name == type_name and fnmatchcase(permission, pattern))
    return next(fitting, None)


def _calls(policy: str, type_name: str) -> Iterator[Call]:
    callers = _callers(policy, type_name)
    for permission in _permissions(type_name):
        if _exception(type_name, permission):
            continue
        places = next((each for pattern, each in callers.items() if fnmatchcase(permission, pattern)), None)
        assert places is not None, f"{type_name}: {permission}: on which resource?"
        yield from (Call(permission, resources, keys) for resources, keys in places)


def _every_call(policy: str) -> list[Call]:
    return [call for name in _types(policy) for call in _calls(policy, name)] + _FURTHER[policy]


def _policy(name: str) -> dict[str, Any]:
    document: dict[str, Any] = json.loads((FOLDER / f"{name}.json").read_text())
    return document


@pytest.mark.parametrize("policy", POLICIES)
def test_each_permission_of_a_handler_is_allowed_or_has_a_reason(policy: str) -> None:
    assert denied([_policy(policy)], _every_call(policy)) == []


@pytest.mark.parametrize("policy", POLICIES)
def test_each_permission_of_a_policy_is_used(policy: str) -> None:
    assert unused([_policy(policy)], _every_call(policy)) == []


def test_no_exception_is_left_that_no_handler_needs() -> None:
    types = {name for policy in POLICIES for name in _types(policy)}
    needed = {
        (name, pattern)
        for name in types
        for permission in _permissions(name)
        if (pattern := _exception(name, permission))
    }
    assert _NEVER.keys() - needed == set()
