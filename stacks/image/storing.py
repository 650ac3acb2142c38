"""Where images and their records lie: encrypted with a key of their own, scanned, never overwritten."""

from __future__ import annotations

import json
from typing import Any

from aws_cdk import Aws, RemovalPolicy, Stack
from aws_cdk import aws_ecr as ecr
from aws_cdk import aws_kms as kms
from aws_cdk import aws_s3 as s3

from stacks.image.building import LOG_GROUP, arn

_RECORDS_KEPT_DAYS = 365
# Tags are immutable, so only a push that failed leaves an image without a tag.
_EXPIRE_UNTAGGED: dict[str, Any] = {
    "rulePriority": 1,
    "description": "Images of pushes that failed.",
    "selection": {"tagStatus": "untagged", "countType": "imageCountMoreThan", "countNumber": 1},
    "action": {"type": "expire"},
}


def key(stack: Stack) -> kms.CfnKey:
    """The key of repository, records and log: the account's IAM decides who uses it; the log service may."""
    logs = arn("logs", f"log-group:{LOG_GROUP}")
    made = kms.CfnKey(
        stack,
        "Key",
        description="peagle-sm: the serving image, its records and the log of its builds",
        enable_key_rotation=True,
        pending_window_in_days=7,
        key_policy={
            "Version": "2012-10-17",
            "Statement": [
                {
                    "Sid": "TheAccountRules",
                    "Effect": "Allow",
                    "Principal": {"AWS": f"arn:{Aws.PARTITION}:iam::{Aws.ACCOUNT_ID}:root"},
                    "Action": "kms:*",
                    "Resource": "*",
                },
                {
                    "Sid": "TheLogIsEncrypted",
                    "Effect": "Allow",
                    "Principal": {"Service": f"logs.{Aws.REGION}.{Aws.URL_SUFFIX}"},
                    "Action": [
                        "kms:Encrypt",
                        "kms:Decrypt",
                        "kms:ReEncrypt*",
                        "kms:GenerateDataKey*",
                        "kms:Describe*",
                    ],
                    "Resource": "*",
                    "Condition": {"ArnEquals": {"kms:EncryptionContext:aws:logs:arn": logs}},
                },
            ],
        },
    )
    # Endpoints pull an image again when they scale, so its key outlives the stack.
    made.apply_removal_policy(RemovalPolicy.RETAIN)
    return made


def repository(stack: Stack, name: str, encrypted_by: kms.CfnKey) -> ecr.CfnRepository:
    """The repository: a tag names one image for ever, and each image is scanned when it is pushed.

    Only untagged images expire. ECR does not know which images SageMaker's models name, and a paused endpoint
    pulls nothing: a rule on count or on the last pull would delete the image that it needs to resume.
    """
    made = ecr.CfnRepository(
        stack,
        "Repository",
        repository_name=name,
        image_tag_mutability="IMMUTABLE",
        image_scanning_configuration=ecr.CfnRepository.ImageScanningConfigurationProperty(scan_on_push=True),
        encryption_configuration=ecr.CfnRepository.EncryptionConfigurationProperty(
            encryption_type="KMS", kms_key=encrypted_by.attr_arn
        ),
        lifecycle_policy=ecr.CfnRepository.LifecyclePolicyProperty(
            lifecycle_policy_text=json.dumps({"rules": [_EXPIRE_UNTAGGED]})
        ),
    )
    made.apply_removal_policy(RemovalPolicy.RETAIN)
    return made


def records(stack: Stack, encrypted_by: kms.CfnKey) -> s3.CfnBucket:
    """The bucket of what each build wrote down: image.json and sbom.json."""
    made = s3.CfnBucket(
        stack,
        "Records",
        bucket_encryption=s3.CfnBucket.BucketEncryptionProperty(
            server_side_encryption_configuration=[
                s3.CfnBucket.ServerSideEncryptionRuleProperty(
                    bucket_key_enabled=True,
                    server_side_encryption_by_default=s3.CfnBucket.ServerSideEncryptionByDefaultProperty(
                        sse_algorithm="aws:kms", kms_master_key_id=encrypted_by.attr_arn
                    ),
                )
            ]
        ),
        public_access_block_configuration=s3.CfnBucket.PublicAccessBlockConfigurationProperty(
            block_public_acls=True,
            block_public_policy=True,
            ignore_public_acls=True,
            restrict_public_buckets=True,
        ),
        versioning_configuration=s3.CfnBucket.VersioningConfigurationProperty(status="Enabled"),
        lifecycle_configuration=s3.CfnBucket.LifecycleConfigurationProperty(
            rules=[
                s3.CfnBucket.RuleProperty(
                    id="old",
                    status="Enabled",
                    expiration_in_days=_RECORDS_KEPT_DAYS,
                    noncurrent_version_expiration=s3.CfnBucket.NoncurrentVersionExpirationProperty(
                        noncurrent_days=30
                    ),
                )
            ]
        ),
    )
    made.apply_removal_policy(RemovalPolicy.RETAIN)
    s3.CfnBucketPolicy(
        stack,
        "RecordsPolicy",
        bucket=made.ref,
        policy_document={
            "Version": "2012-10-17",
            "Statement": [
                {
                    "Sid": "OnlyByTls",
                    "Effect": "Deny",
                    "Principal": "*",
                    "Action": "s3:*",
                    "Resource": [made.attr_arn, f"{made.attr_arn}/*"],
                    "Condition": {"Bool": {"aws:SecureTransport": "false"}},
                }
            ],
        },
    )
    return made
