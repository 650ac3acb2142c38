"""Buckets, repositories, parameters, keys, tables: made, changed and deleted by their services' APIs."""

from __future__ import annotations

import json
from typing import Any

import pytest
from botocore.exceptions import ClientError

from sagemaker_local.cloudformation.resources.base import ResourceFailure
from tests.local.cloudformation.resources.conftest import Stack

# As `cdk bootstrap` makes its staging bucket.
STAGING: dict[str, Any] = {
    "BucketEncryption": {
        "ServerSideEncryptionConfiguration": [{"ServerSideEncryptionByDefault": {"SSEAlgorithm": "AES256"}}]
    },
    "PublicAccessBlockConfiguration": {
        "BlockPublicAcls": True,
        "BlockPublicPolicy": True,
        "IgnorePublicAcls": True,
        "RestrictPublicBuckets": True,
    },
    "VersioningConfiguration": {"Status": "Enabled"},
    "LifecycleConfiguration": {
        "Rules": [
            {"Id": "CleanupOldVersions", "Status": "Enabled", "NoncurrentVersionExpirationInDays": 30},
            {
                "Id": "AbortIncompleteMultipartUploads",
                "Status": "Enabled",
                "AbortIncompleteMultipartUpload": {"DaysAfterInitiation": 1},
            },
        ]
    },
}


def test_the_staging_bucket_of_bootstrap(stack: Stack) -> None:
    created = stack.with_tags(team="a").create("AWS::S3::Bucket", BucketName="staging", **STAGING)
    assert created.physical_id == "staging"
    assert created.attributes["Arn"] == "arn:aws:s3:::staging"
    assert created.attributes["RegionalDomainName"] == "staging.s3.us-east-1.amazonaws.com"
    s3 = stack.client("s3")
    rules = s3.get_bucket_lifecycle_configuration(Bucket="staging")["Rules"]
    assert [rule["ID"] for rule in rules] == ["CleanupOldVersions", "AbortIncompleteMultipartUploads"]
    assert rules[0]["NoncurrentVersionExpiration"] == {"NoncurrentDays": 30}
    assert s3.get_bucket_versioning(Bucket="staging")["Status"] == "Enabled"
    assert s3.get_bucket_tagging(Bucket="staging")["TagSet"] == [{"Key": "team", "Value": "a"}]
    old = {"BucketName": "staging", **STAGING}
    new = {"BucketName": "staging", "VersioningConfiguration": {"Status": "Suspended"}}
    stack.update("AWS::S3::Bucket", created, old, new)
    assert s3.get_bucket_versioning(Bucket="staging")["Status"] == "Suspended"
    with pytest.raises(ClientError, match="NoSuchLifecycleConfiguration"):
        s3.get_bucket_lifecycle_configuration(Bucket="staging")
    stack.delete("AWS::S3::Bucket", created, **new)
    stack.delete("AWS::S3::Bucket", created, **new)


def test_a_bucket_with_objects_is_not_deleted(stack: Stack) -> None:
    created = stack.create("AWS::S3::Bucket", BucketName="full")
    stack.client("s3").put_object(Bucket="full", Key="k", Body=b"v")
    with pytest.raises(ResourceFailure, match="The bucket you tried to delete is not empty"):
        stack.delete("AWS::S3::Bucket", created)


def test_a_property_that_is_not_set_is_refused_and_not_passed_over(stack: Stack) -> None:
    with pytest.raises(ResourceFailure, match="does not set WebsiteConfiguration of AWS::S3::Bucket"):
        stack.create("AWS::S3::Bucket", BucketName="web", WebsiteConfiguration={"IndexDocument": "i"})


def test_a_bucket_s_policy_comes_and_goes(stack: Stack) -> None:
    stack.create("AWS::S3::Bucket", BucketName="policed")
    policy = {"Version": "2012-10-17", "Statement": [{"Effect": "Deny", "Action": "*", "Principal": "*"}]}
    created = stack.create("AWS::S3::BucketPolicy", Bucket="policed", PolicyDocument=policy)
    s3 = stack.client("s3")
    assert json.loads(s3.get_bucket_policy(Bucket="policed")["Policy"]) == policy
    stack.delete("AWS::S3::BucketPolicy", created, Bucket="policed")
    with pytest.raises(ClientError, match="NoSuchBucketPolicy"):
        s3.get_bucket_policy(Bucket="policed")


def test_a_repository_as_bootstrap_makes_it(stack: Stack) -> None:
    rule = {
        "rulePriority": 1,
        "selection": {
            "tagStatus": "untagged",
            "countType": "sinceImagePushed",
            "countUnit": "days",
            "countNumber": 365,
        },
        "action": {"type": "expire"},
    }
    lifecycle = {"LifecyclePolicyText": json.dumps({"rules": [rule]})}
    statement = {
        "Sid": "LambdaECRImageRetrievalPolicy",
        "Effect": "Allow",
        "Principal": {"Service": "lambda.amazonaws.com"},
        "Action": ["ecr:BatchGetImage", "ecr:GetDownloadUrlForLayer"],
    }
    policy = {"Version": "2012-10-17", "Statement": [statement]}
    properties: dict[str, Any] = {
        "RepositoryName": "cdk-assets",
        "ImageTagMutability": "IMMUTABLE",
        "LifecyclePolicy": lifecycle,
        "RepositoryPolicyText": policy,
    }
    created = stack.create("AWS::ECR::Repository", **properties)
    assert created.physical_id == "cdk-assets"
    assert created.attributes["Arn"] == "arn:aws:ecr:us-east-1:123456789012:repository/cdk-assets"
    ecr = stack.client("ecr")
    kept = ecr.get_repository_policy(repositoryName="cdk-assets")["policyText"]
    assert json.loads(kept) == policy
    stack.update("AWS::ECR::Repository", created, properties, {"RepositoryName": "cdk-assets"})
    (found,) = ecr.describe_repositories(repositoryNames=["cdk-assets"])["repositories"]
    assert found["imageTagMutability"] == "MUTABLE"
    with pytest.raises(ClientError, match="RepositoryPolicyNotFound"):
        ecr.get_repository_policy(repositoryName="cdk-assets")
    stack.delete("AWS::ECR::Repository", created)
    stack.delete("AWS::ECR::Repository", created)


def test_the_register_s_table(stack: Stack) -> None:
    properties: dict[str, Any] = {
        "TableName": "guard-1",
        "AttributeDefinitions": [{"AttributeName": "pk", "AttributeType": "S"}],
        "KeySchema": [{"AttributeName": "pk", "KeyType": "HASH"}],
        "BillingMode": "PAY_PER_REQUEST",
        "TimeToLiveSpecification": {"AttributeName": "ttl", "Enabled": "true"},
        "PointInTimeRecoverySpecification": {"PointInTimeRecoveryEnabled": True},
        "SSESpecification": {"SSEEnabled": True},
        "Tags": [{"Key": "a", "Value": "1"}],
    }
    created = stack.create("AWS::DynamoDB::Table", **properties)
    assert created.attributes["Arn"] == "arn:aws:dynamodb:us-east-1:123456789012:table/guard-1"
    dynamodb = stack.client("dynamodb")
    expiry = dynamodb.describe_time_to_live(TableName="guard-1")["TimeToLiveDescription"]
    assert expiry == {"TimeToLiveStatus": "ENABLED", "AttributeName": "ttl"}
    changed = {**properties, "DeletionProtectionEnabled": True, "Tags": [{"Key": "b", "Value": "2"}]}
    stack.update("AWS::DynamoDB::Table", created, properties, changed)
    tags = dynamodb.list_tags_of_resource(ResourceArn=created.attributes["Arn"])["Tags"]
    assert tags == [{"Key": "b", "Value": "2"}]
    with pytest.raises(ResourceFailure, match="can't be deleted while DeletionProtectionEnabled"):
        stack.delete("AWS::DynamoDB::Table", created)
    stack.update("AWS::DynamoDB::Table", created, changed, {**changed, "DeletionProtectionEnabled": False})
    stack.delete("AWS::DynamoDB::Table", created)
    stack.delete("AWS::DynamoDB::Table", created)
