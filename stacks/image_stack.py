"""Stack PeagleImage: builds the serving image with CodeBuild, for users without Docker.

It has a repository, a bucket for build records and a build project. Until a build runs, only the KMS key is
billed. Images and records are encrypted with that key and never overwritten; images are scanned.
`acknowledge` gives the reason for each remaining finding of cdk-nag; tests check that there is no other.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from aws_cdk import (
    Acknowledgment,
    Aws,
    CfnOutput,
    CfnParameter,
    DefaultStackSynthesizer,
    Fn,
    IgnoreMode,
    RemovalPolicy,
    Stack,
    Tags,
    Validations,
)
from aws_cdk import aws_codebuild as codebuild
from aws_cdk import aws_ecr as ecr
from aws_cdk import aws_iam as iam
from aws_cdk import aws_kms as kms
from aws_cdk import aws_logs as logs
from aws_cdk import aws_s3 as s3
from aws_cdk.aws_s3_assets import Asset

_RECORDS_KEPT_DAYS = 365
# Tags are immutable, so only a push that failed leaves an image without a tag.
_EXPIRE_UNTAGGED: dict[str, Any] = {
    "rulePriority": 1,
    "description": "Images of pushes that failed.",
    "selection": {"tagStatus": "untagged", "countType": "imageCountMoreThan", "countNumber": 1},
    "action": {"type": "expire"},
}


def add_key(stack: Stack) -> kms.CfnKey:
    """Add the KMS key of repository, records and log; IAM policies control its use."""
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
    # Endpoints pull the image again when they scale, so its key is kept when the stack is deleted.
    made.apply_removal_policy(RemovalPolicy.RETAIN)
    return made


def add_repository(stack: Stack, name: str, encrypted_by: kms.CfnKey) -> ecr.CfnRepository:
    """Add the repository with immutable tags and scan on push.

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


def add_records(stack: Stack, encrypted_by: kms.CfnKey) -> s3.CfnBucket:
    """Add the bucket for image.json of each build."""
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


PROJECT = "peagle-image"
LOG_GROUP = f"/aws/codebuild/{PROJECT}"
CONTAINER = Path(__file__).parents[1] / "container"
#: AWS keeps this image; its Docker, AWS command line and Python are what buildspec.yml uses.
BUILD_IMAGE = "aws/codebuild/amazonlinux-x86_64-standard:5.0"
COMPUTE = "BUILD_GENERAL1_LARGE"
TIMEOUT_MINUTES = 90
_LOGS_KEPT_DAYS = 90
# Not part of the image, so a change of these files must not change it.
_NOT_SENT = [
    *("**/__pycache__", "engine-cpu*.lock", "plugins/peagle_cpu_fixes", "plugins/vllm_metadata"),
    *("Dockerfile.train*", "train-gpu.lock", "peagle_train", "README.md"),
]


def add_project(
    stack: Stack, repository: ecr.CfnRepository, records: s3.CfnBucket, key: kms.CfnKey, base: CfnParameter
) -> codebuild.CfnProject:
    """Add the project with its source, role and log."""
    source = Asset(stack, "Source", path=str(CONTAINER), exclude=_NOT_SENT, ignore_mode=IgnoreMode.GIT)
    log = logs.CfnLogGroup(
        stack,
        "Log",
        log_group_name=LOG_GROUP,
        retention_in_days=_LOGS_KEPT_DAYS,
        kms_key_id=key.attr_arn,
    )
    log.apply_removal_policy(RemovalPolicy.DESTROY)
    role = _role(stack, _statements(repository, records, key, log, source))
    of = codebuild.CfnProject
    made = of(
        stack,
        "Project",
        name=PROJECT,
        description="Builds the serving image of peagle-sm and pushes it.",
        service_role=role.attr_arn,
        encryption_key=key.attr_arn,
        timeout_in_minutes=TIMEOUT_MINUTES,
        queued_timeout_in_minutes=60,
        concurrent_build_limit=1,
        source=of.SourceProperty(type="S3", location=f"{source.s3_bucket_name}/{source.s3_object_key}"),
        artifacts=of.ArtifactsProperty(
            type="S3",
            location=records.ref,
            path="builds",
            namespace_type="BUILD_ID",
            name="record",
            packaging="NONE",
        ),
        environment=of.EnvironmentProperty(
            type="LINUX_CONTAINER",
            compute_type=COMPUTE,
            image=BUILD_IMAGE,
            # The Docker daemon within the build needs it; reasons.py has the rest.
            privileged_mode=True,
            environment_variables=[
                of.EnvironmentVariableProperty(name=name, value=value)
                for name, value in {
                    "BASE_IMAGE": base.value_as_string,
                    "REGISTRY": f"{Aws.ACCOUNT_ID}.dkr.ecr.{Aws.REGION}.{Aws.URL_SUFFIX}",
                    "REPOSITORY": repository.ref,
                    "REVISION": source.asset_hash,
                }.items()
            ],
        ),
        logs_config=of.LogsConfigProperty(
            cloud_watch_logs=of.CloudWatchLogsConfigProperty(status="ENABLED", group_name=log.ref)
        ),
    )
    return made


def _role(stack: Stack, statements: list[dict[str, Any]]) -> iam.CfnRole:
    return iam.CfnRole(
        stack,
        "BuildRole",
        description="Permissions of the build of peagle-sm's serving image.",
        assume_role_policy_document={
            "Version": "2012-10-17",
            "Statement": [
                {
                    "Effect": "Allow",
                    "Principal": {"Service": "codebuild.amazonaws.com"},
                    "Action": "sts:AssumeRole",
                    "Condition": {
                        "StringEquals": {"aws:SourceAccount": Aws.ACCOUNT_ID},
                        "ArnLike": {"aws:SourceArn": arn("codebuild", f"project/{PROJECT}")},
                    },
                }
            ],
        },
        policies=[
            iam.CfnRole.PolicyProperty(
                policy_name="build", policy_document={"Version": "2012-10-17", "Statement": statements}
            )
        ],
    )


def _statements(
    repository: ecr.CfnRepository,
    records: s3.CfnBucket,
    key: kms.CfnKey,
    log: logs.CfnLogGroup,
    source: Asset,
) -> list[dict[str, Any]]:
    return [
        _allow("LogsIn", ["ecr:GetAuthorizationToken"], "*"),
        _allow(
            "PushesAndLooksUp",
            [
                "ecr:BatchCheckLayerAvailability",
                "ecr:BatchGetImage",
                "ecr:CompleteLayerUpload",
                "ecr:DescribeImages",
                "ecr:InitiateLayerUpload",
                "ecr:PutImage",
                "ecr:UploadLayerPart",
            ],
            repository.attr_arn,
        ),
        _allow("WritesRecords", ["s3:PutObject"], f"{records.attr_arn}/builds/*"),
        _allow(
            "ReadsTheSource",
            ["s3:GetObject", "s3:GetObjectVersion"],
            f"{source.bucket.bucket_arn}/{source.s3_object_key}",
        ),
        _allow("UsesTheKey", ["kms:Decrypt", "kms:GenerateDataKey"], key.attr_arn),
        _allow("WritesTheLog", ["logs:CreateLogStream", "logs:PutLogEvents"], log.attr_arn),
    ]


def _allow(sid: str, actions: list[str], resource: str) -> dict[str, Any]:
    return {"Sid": sid, "Effect": "Allow", "Action": actions, "Resource": resource}


def arn(service: str, resource: str) -> str:
    """Return the ARN of a resource in the stack's own account and region."""
    return f"arn:{Aws.PARTITION}:{service}:{Aws.REGION}:{Aws.ACCOUNT_ID}:{resource}"


REASONS: dict[str, dict[str, str]] = {
    "BuildRole": {
        "AwsSolutions::AwsSolutions-IAM5[Resource::*]": "AWS supports no resource-level permissions for "
        "ecr:GetAuthorizationToken, the only call on *.",
        "AwsSolutions::AwsSolutions-IAM5[Resource::<Records.Arn>/builds/*]": "CodeBuild chooses the name "
        "of each build's folder; it may write under builds/ but neither read nor delete there.",
    },
    "Records": {
        "AwsSolutions::AwsSolutions-S1": "It has lists of packages and digests, written by one role. Access "
        "logs would need a second bucket; CloudTrail's data events can record reads if needed.",
    },
}


def acknowledge(stack: Stack) -> None:
    """Attach each reason to its resource."""
    for construct_id, findings in REASONS.items():
        resource = stack.node.find_child(construct_id)
        for finding, reason in findings.items():
            Validations.of(resource).acknowledge(Acknowledgment(id=finding, reason=reason))


STACK = "PeagleImage"
REPOSITORY = "peagle-sm/vllm"
#: With a tag or a digest; the build resolves and records the digest, and refuses `latest`.
BASE_PATTERN = r"^[a-z0-9][\w.:/-]*(:[\w][\w.-]{0,127}|@sha256:[0-9a-f]{64})$"
DESCRIPTION = "peagle-sm: builds the serving image and keeps it (one per region)"


class ImageStack(Stack):
    """Stack with the repository, the bucket of build records, their key, and the build project."""

    def __init__(self, scope: Any, construct_id: str = STACK, **more: Any) -> None:
        options: dict[str, Any] = {
            "analytics_reporting": False,
            "description": DESCRIPTION,
            "synthesizer": DefaultStackSynthesizer(generate_bootstrap_version_rule=False),
        }
        super().__init__(scope, construct_id, **{**options, **more})
        base = CfnParameter(
            self,
            "BaseImage",
            allowed_pattern=BASE_PATTERN,
            constraint_description="REPOSITORY:TAG or REPOSITORY@sha256:DIGEST of a public image with vLLM",
            description="The image to build on, by tag or digest; the build records the digest.",
        )
        key = add_key(self)
        repository = add_repository(self, REPOSITORY, key)
        records = add_records(self, key)
        add_project(self, repository, records, key, base)
        self._outputs(repository, records)
        Tags.of(self).add("peagle-sm:part", "image")
        acknowledge(self)

    def _outputs(self, repository: Any, records: Any) -> None:
        start = f"aws codebuild start-build --project-name {PROJECT} --region ${{AWS::Region}}"
        told = {
            "RepositoryUri": (repository.attr_repository_uri, "Repository of the images."),
            "RecordsBucket": (records.ref, "The bucket with image.json of each build."),
            "BuildCommand": (Fn.sub(start), "Starts a build; its cost: docs/explanation/container.md."),
        }
        for name, (value, description) in told.items():
            CfnOutput(self, name, value=value, description=description)
