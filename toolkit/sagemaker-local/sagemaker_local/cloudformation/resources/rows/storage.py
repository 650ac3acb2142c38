"""S3 buckets and their policies, ECR repositories, DynamoDB tables, SSM parameters."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from sagemaker_local.cloudformation.resources.base import Properties, ResourceContext
from sagemaker_local.cloudformation.resources.by_table import (
    Members,
    OnEach,
    Row,
    Setting,
    Tagging,
)
from sagemaker_local.cloudformation.resources.calls import refuse_others, tag_list
from sagemaker_local.cloudformation.resources.rows.addresses import arn, arn_of, by_arn


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


ROWS: dict[str, Row | OnEach] = {
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
        attributes=arn_of("dynamodb", "table/"),
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
        tagging=by_arn("dynamodb", "table/"),
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
            "Arn": arn("ecr", "repository/")(ctx, name),
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
        tagging=by_arn("ecr", "repository/", "resourceArn"),
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
            "Arn": arn("ssm", "parameter/")(ctx, name.removeprefix("/")),
        },
        tagging=Tagging(
            of=lambda ctx, name: {"ResourceType": "Parameter", "ResourceId": name},
            tag="AddTagsToResource",
            untag="RemoveTagsFromResource",
        ),
    ),
}
