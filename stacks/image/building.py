"""The build project: what it builds, where it may write, and nothing else."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from aws_cdk import Aws, CfnParameter, IgnoreMode, RemovalPolicy, Stack
from aws_cdk import aws_codebuild as codebuild
from aws_cdk import aws_ecr as ecr
from aws_cdk import aws_iam as iam
from aws_cdk import aws_kms as kms
from aws_cdk import aws_logs as logs
from aws_cdk import aws_s3 as s3
from aws_cdk.aws_s3_assets import Asset

PROJECT = "peagle-image"
LOG_GROUP = f"/aws/codebuild/{PROJECT}"
CONTAINER = Path(__file__).parents[2] / "container"
#: AWS keeps this image; its Docker, AWS command line and Python are what buildspec.yml uses.
BUILD_IMAGE = "aws/codebuild/amazonlinux-x86_64-standard:5.0"
COMPUTE = "BUILD_GENERAL1_LARGE"
TIMEOUT_MINUTES = 90
_LOGS_KEPT_DAYS = 90
# Not part of any image, and a change of it must not make another one.
_NOT_SENT = ["**/__pycache__", "engine-cpu.lock", "plugins/peagle_cpu_fixes", "plugins/vllm_metadata"]


def project(
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
        description="What the build of peagle-sm's serving image may do.",
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
