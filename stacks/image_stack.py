"""Stack PeagleImage: builds the serving image with CodeBuild, for users without Docker.

It has a repository, a bucket for build records and a build project. Until a build runs, only the KMS key is
billed. Images and records are encrypted with that key and never overwritten; images are scanned.
`REASONS` gives the reason for each remaining finding of cdk-nag; tests check that there is no other.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from aws_cdk import (
    Aws,
    CfnOutput,
    CfnParameter,
    CfnResource,
    Duration,
    Fn,
    IgnoreMode,
    RemovalPolicy,
    Tags,
)
from aws_cdk import aws_codebuild as codebuild
from aws_cdk import aws_ecr as ecr
from aws_cdk import aws_iam as iam
from aws_cdk import aws_kms as kms
from aws_cdk import aws_logs as logs
from aws_cdk import aws_s3 as s3
from aws_cdk.aws_s3_assets import Asset

from stacks.guard.policies import allow, arn
from stacks.guard.reasons import acknowledge
from stacks.stack import PeagleStack

STACK = "PeagleImage"
REPOSITORY = "peagle-sm/vllm"
PROJECT = "peagle-image"
LOG_GROUP = f"/aws/codebuild/{PROJECT}"
CONTAINER = Path(__file__).parents[1] / "container"
#: With a tag or a digest; the build resolves and records the digest, and refuses `latest`.
BASE_PATTERN = r"^[a-z0-9][\w.:/-]*(:[\w][\w.-]{0,127}|@sha256:[0-9a-f]{64})$"
#: AWS keeps this image; its Docker, AWS command line and Python are what buildspec.yml uses.
BUILD_IMAGE = "aws/codebuild/amazonlinux-x86_64-standard:5.0"
# Not part of the image, so a change of these files must not change it.
_NOT_SENT = [
    *("**/__pycache__", "engine-cpu*.lock", "plugins/peagle_cpu_fixes", "plugins/vllm_metadata"),
    *("Dockerfile.train*", "train-gpu.lock", "peagle_train", "README.md"),
]
REASONS = {
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


class ImageStack(PeagleStack):
    """Stack with the repository, the bucket of build records, their key, and the build project.

    Key, repository and records are kept when the stack is deleted: endpoints pull the image again when they
    scale.
    """

    def __init__(self, scope: Any, construct_id: str = STACK, **more: Any) -> None:
        super().__init__(
            scope,
            construct_id,
            "peagle-sm: builds the serving image and keeps it (one per region)",
            **more,
        )
        base = CfnParameter(
            self,
            "BaseImage",
            allowed_pattern=BASE_PATTERN,
            constraint_description="REPOSITORY:TAG or REPOSITORY@sha256:DIGEST of a public image with vLLM",
            description="The image to build on, by tag or digest; the build records the digest.",
        )
        key = self._key()
        # Only untagged images expire. ECR does not know which images SageMaker's models name, and a paused
        # endpoint pulls nothing: a rule on count or on the last pull would delete the image that it needs.
        repository = ecr.Repository(
            self,
            "Repository",
            repository_name=REPOSITORY,
            image_tag_mutability=ecr.TagMutability.IMMUTABLE,
            image_scan_on_push=True,
            encryption=ecr.RepositoryEncryption.KMS,
            encryption_key=key,
            lifecycle_rules=[
                ecr.LifecycleRule(
                    description="Images of pushes that failed.",
                    tag_status=ecr.TagStatus.UNTAGGED,
                    max_image_count=1,
                )
            ],
        )
        records = s3.Bucket(
            self,
            "Records",
            encryption=s3.BucketEncryption.KMS,
            encryption_key=key,
            bucket_key_enabled=True,
            block_public_access=s3.BlockPublicAccess.BLOCK_ALL,
            enforce_ssl=True,
            versioned=True,
            lifecycle_rules=[
                s3.LifecycleRule(
                    id="old",
                    expiration=Duration.days(365),
                    noncurrent_version_expiration=Duration.days(30),
                )
            ],
        )
        self._project(key, repository, records, base.value_as_string)
        for name, value, description in (
            ("RepositoryUri", repository.repository_uri, "Repository of the images."),
            ("RecordsBucket", records.bucket_name, "The bucket with image.json and sbom.json of each build."),
            (
                "BuildCommand",
                Fn.sub(f"aws codebuild start-build --project-name {PROJECT} --region ${{AWS::Region}}"),
                "Starts a build; its cost: docs/explanation/container.md.",
            ),
        ):
            CfnOutput(self, name, value=value, description=description)
        for construct in self.node.children:
            resource = construct.node.try_find_child("Resource")
            if isinstance(resource, CfnResource):
                # Without the CDK's hash: names in the template that people can read.
                resource.override_logical_id(construct.node.id)
        Tags.of(self).add("peagle-sm:part", "image")
        acknowledge(self, REASONS)

    def _key(self) -> kms.Key:
        """Add the KMS key of repository, records and log; IAM policies control its use."""
        key = kms.Key(
            self,
            "Key",
            description="peagle-sm: the serving image, its records and the log of its builds",
            enable_key_rotation=True,
            pending_window=Duration.days(7),
        )
        key.add_to_resource_policy(
            iam.PolicyStatement(
                sid="TheLogIsEncrypted",
                principals=[iam.ServicePrincipal(f"logs.{Aws.REGION}.{Aws.URL_SUFFIX}")],
                actions=[
                    *("kms:Encrypt", "kms:Decrypt", "kms:ReEncrypt*", "kms:GenerateDataKey*", "kms:Describe*")
                ],
                resources=["*"],
                conditions={
                    "ArnEquals": {"kms:EncryptionContext:aws:logs:arn": arn("logs", f"log-group:{LOG_GROUP}")}
                },
            )
        )
        return key

    def _project(self, key: kms.Key, repository: ecr.Repository, records: s3.Bucket, base: str) -> None:
        """Add the build project with its source, role and log."""
        source = Asset(self, "Source", path=str(CONTAINER), exclude=_NOT_SENT, ignore_mode=IgnoreMode.GIT)
        log = logs.LogGroup(
            self,
            "Log",
            log_group_name=LOG_GROUP,
            retention=logs.RetentionDays.THREE_MONTHS,
            encryption_key=key,
            removal_policy=RemovalPolicy.DESTROY,
        )
        variables = {
            "BASE_IMAGE": base,
            "REGISTRY": f"{Aws.ACCOUNT_ID}.dkr.ecr.{Aws.REGION}.{Aws.URL_SUFFIX}",
            "REPOSITORY": repository.repository_name,
            "REVISION": source.asset_hash,
        }
        codebuild.Project(
            self,
            "Project",
            project_name=PROJECT,
            description="Builds the serving image of peagle-sm and pushes it.",
            # Its statements are complete: the CDK's own grants would be wider.
            role=self._role(key, repository, records, log, source).without_policy_updates(),
            grant_report_group_permissions=False,
            encryption_key=key,
            timeout=Duration.minutes(90),
            queued_timeout=Duration.minutes(60),
            concurrent_build_limit=1,
            source=codebuild.Source.s3(bucket=source.bucket, path=source.s3_object_key),
            artifacts=codebuild.Artifacts.s3(
                bucket=records, path="builds", include_build_id=True, name="record", package_zip=False
            ),
            environment=codebuild.BuildEnvironment(
                build_image=codebuild.LinuxBuildImage.from_code_build_image_id(BUILD_IMAGE),
                compute_type=codebuild.ComputeType.LARGE,
                privileged=True,  # the Docker daemon within the build needs it
            ),
            environment_variables={
                name: codebuild.BuildEnvironmentVariable(value=value) for name, value in variables.items()
            },
            logging=codebuild.LoggingOptions(cloud_watch=codebuild.CloudWatchLoggingOptions(log_group=log)),
        )

    def _role(
        self, key: kms.Key, repository: ecr.Repository, records: s3.Bucket, log: logs.LogGroup, source: Asset
    ) -> iam.Role:
        actions = ("BatchCheckLayerAvailability", "BatchGetImage", "CompleteLayerUpload", "DescribeImages")
        uploads = ("InitiateLayerUpload", "PutImage", "UploadLayerPart")
        statements = [
            allow("LogsIn", ["ecr:GetAuthorizationToken"], ["*"]),
            allow(
                "PushesAndLooksUp",
                [f"ecr:{name}" for name in (*actions, *uploads)],
                [repository.repository_arn],
            ),
            allow("WritesRecords", ["s3:PutObject"], [f"{records.bucket_arn}/builds/*"]),
            allow(
                "ReadsTheSource",
                ["s3:GetObject", "s3:GetObjectVersion"],
                [f"{source.bucket.bucket_arn}/{source.s3_object_key}"],
            ),
            allow("UsesTheKey", ["kms:Decrypt", "kms:GenerateDataKey"], [key.key_arn]),
            allow("WritesTheLog", ["logs:CreateLogStream", "logs:PutLogEvents"], [log.log_group_arn]),
        ]
        only_this_project = {
            "StringEquals": {"aws:SourceAccount": Aws.ACCOUNT_ID},
            "ArnLike": {"aws:SourceArn": arn("codebuild", f"project/{PROJECT}")},
        }
        return iam.Role(
            self,
            "BuildRole",
            description="Permissions of the build of peagle-sm's serving image.",
            assumed_by=iam.ServicePrincipal("codebuild.amazonaws.com", conditions=only_this_project),
            inline_policies={"build": iam.PolicyDocument.from_json({"Statement": statements})},
        )
