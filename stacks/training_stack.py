"""Stack PeagleTraining: the role of training and processing jobs, and on wish their bucket.

The role may read and write below one prefix of one bucket, read JumpStart's models, pull one repository's
images, write the log of these jobs, and no more. Reading recorded traffic elsewhere, a key and network
interfaces are added only where the parameters ask for them.
"""

from __future__ import annotations

from typing import Any

from aws_cdk import (
    Acknowledgment,
    CfnCondition,
    CfnOutput,
    CfnParameter,
    DefaultStackSynthesizer,
    Fn,
    RemovalPolicy,
    Stack,
    Tags,
    Validations,
)
from aws_cdk import aws_iam as iam
from aws_cdk import aws_s3 as s3

from peagle_sm.core.guard import (
    PROCESSING_LOG_GROUP,
    TRAINING_LOG_GROUP,
    TRAINING_ROLE_PREFIX,
    TRAINING_STACK,
)
from stacks.guard.policies import Statement, allow, arn, only_if, sub, trust

STACK = TRAINING_STACK
DESCRIPTION = "peagle-sm: the role of training and processing jobs, and on wish their bucket (one per region)"
HAS_KEY, HAS_VPC, MAKES_BUCKET, HAS_PROMPTS = "HasKey", "HasVpc", "MakesBucket", "HasPrompts"
_BUCKET = "arn:${AWS::Partition}:s3:::${Bucket}"
_PROMPTS = "arn:${AWS::Partition}:s3:::${PromptsBucket}"


class TrainingStack(Stack):
    """Stack with the execution role of training jobs, and an optional bucket."""

    def __init__(self, scope: Any, construct_id: str = STACK, **more: Any) -> None:
        options: dict[str, Any] = {
            "analytics_reporting": False,
            "description": DESCRIPTION,
            "synthesizer": DefaultStackSynthesizer(generate_bootstrap_version_rule=False),
        }
        super().__init__(scope, construct_id, **{**options, **more})
        add_parameters(self)
        add_bucket(self)
        role = add_role(self)
        CfnOutput(self, "RoleArn", value=role.attr_arn, description="Role for train.execution_role_arn.")
        Tags.of(self).add("peagle-sm:part", "training")
        acknowledge(self)


def add_parameters(stack: Stack) -> None:
    """Add the parameters, and the conditions that depend on them."""
    CfnParameter(
        stack,
        "Bucket",
        allowed_pattern=r"[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]",
        description="Bucket of training data, checkpoints and heads.",
    )
    CfnParameter(
        stack,
        "Prefix",
        default="peagle-learn",
        allowed_pattern=r"[A-Za-z0-9!_.'()-][A-Za-z0-9!_.'()/-]*[A-Za-z0-9!_.'()-]",
        description="Prefix in the bucket that jobs may use: the rest of `bucket` in learn.yaml.",
    )
    CfnParameter(
        stack,
        "ImageRepository",
        default="peagle-*",
        allowed_pattern=r"[a-z0-9][a-z0-9._/-]*\*?",
        description="ECR repository of the training image in this account; the name may end in *.",
    )
    prompts = CfnParameter(
        stack,
        "PromptsBucket",
        default="",
        allowed_pattern=r"([a-z0-9][a-z0-9.-]{1,61}[a-z0-9])?",
        description="Bucket of recorded traffic that processing jobs read; empty: only Bucket's prefix.",
    )
    CfnParameter(
        stack,
        "PromptsPrefix",
        default="",
        allowed_pattern=r"([A-Za-z0-9!_.'()=/-]*/)?",
        description="Prefix of the traffic, with a slash at its end; empty: the whole bucket.",
    )
    key = CfnParameter(stack, "KeyArn", default="", description="KMS key of bucket and disks; empty: none.")
    vpc = CfnParameter(
        stack,
        "Vpc",
        allowed_values=["yes", "no"],
        default="no",
        description="Whether jobs run in a VPC of yours (train.subnets).",
    )
    make = CfnParameter(
        stack,
        "MakeBucket",
        allowed_values=["yes", "no"],
        default="no",
        description="Create the bucket. It is kept when the stack is deleted.",
    )
    given = Fn.condition_not(Fn.condition_equals(key.value_as_string, ""))
    CfnCondition(stack, HAS_KEY, expression=given)
    named = Fn.condition_not(Fn.condition_equals(prompts.value_as_string, ""))
    CfnCondition(stack, HAS_PROMPTS, expression=named)
    CfnCondition(stack, HAS_VPC, expression=Fn.condition_equals(vpc.value_as_string, "yes"))
    CfnCondition(stack, MAKES_BUCKET, expression=Fn.condition_equals(make.value_as_string, "yes"))


def add_bucket(stack: Stack) -> None:
    """Add the bucket: encrypted, versioned, closed to the public, by TLS only. Old versions expire."""
    default = {"SSEAlgorithm": "AES256"}
    keyed = {"SSEAlgorithm": "aws:kms", "KMSMasterKeyID": {"Ref": "KeyArn"}}
    made = s3.CfnBucket(
        stack,
        "Data",
        bucket_name=Fn.ref("Bucket"),
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
                    abort_incomplete_multipart_upload=s3.CfnBucket.AbortIncompleteMultipartUploadProperty(
                        days_after_initiation=7
                    ),
                    noncurrent_version_expiration=s3.CfnBucket.NoncurrentVersionExpirationProperty(
                        noncurrent_days=30
                    ),
                )
            ]
        ),
    )
    rule = {"BucketKeyEnabled": True, "ServerSideEncryptionByDefault": {"Fn::If": [HAS_KEY, keyed, default]}}
    made.add_property_override("BucketEncryption.ServerSideEncryptionConfiguration", [rule])
    made.apply_removal_policy(RemovalPolicy.RETAIN)
    closed = s3.CfnBucketPolicy(
        stack,
        "DataPolicy",
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
    condition = stack.node.find_child(MAKES_BUCKET)
    assert isinstance(condition, CfnCondition)
    made.cfn_options.condition = closed.cfn_options.condition = condition


def add_role(stack: Stack) -> iam.CfnRole:
    """Add the role that SageMaker assumes for a job."""
    return iam.CfnRole(
        stack,
        "TrainingRole",
        role_name=Fn.sub(f"{TRAINING_ROLE_PREFIX}${{AWS::Region}}"),
        description="Permissions of peagle-sm's training and processing jobs.",
        assume_role_policy_document=trust("sagemaker"),
        policies=[
            iam.CfnRole.PolicyProperty(
                policy_name="least-privilege",
                policy_document={"Version": "2012-10-17", "Statement": role_statements()},
            )
        ],
    )


def role_statements() -> list[Any]:
    """Return the role's statements; those on a key and on a VPC only if parameters ask for them."""
    below = sub(f"{_BUCKET}/${{Prefix}}/*")
    jumpstart = "arn:${AWS::Partition}:s3:::jumpstart-cache-prod-${AWS::Region}"
    pull = ["ecr:BatchCheckLayerAvailability", "ecr:BatchGetImage", "ecr:GetDownloadUrlForLayer"]
    listed: Statement = allow(
        "ListPrefix",
        ["s3:ListBucket"],
        [sub(_BUCKET)],
        {"StringLike": {"s3:prefix": [sub("${Prefix}"), sub("${Prefix}/*")]}},
    )
    return [
        listed,
        allow(
            "UsePrefix",
            ["s3:AbortMultipartUpload", "s3:DeleteObject", "s3:GetObject", "s3:PutObject"],
            [below],
        ),
        only_if(HAS_PROMPTS, _list_prompts()),
        only_if(
            HAS_PROMPTS,
            allow("ReadPrompts", ["s3:GetObject"], [sub(f"{_PROMPTS}/${{PromptsPrefix}}*")]),
        ),
        allow("ReadJumpStart", ["s3:GetObject", "s3:ListBucket"], [sub(jumpstart), sub(f"{jumpstart}/*")]),
        allow("LogInToRegistry", ["ecr:GetAuthorizationToken"], ["*"]),
        allow("PullImage", pull, [arn("ecr", "repository/${ImageRepository}")]),
        allow(
            "WriteLog",
            ["logs:CreateLogGroup", "logs:CreateLogStream", "logs:DescribeLogStreams", "logs:PutLogEvents"],
            [
                arn("logs", f"log-group:{group}{end}")
                for group in (TRAINING_LOG_GROUP, PROCESSING_LOG_GROUP)
                for end in ("", ":*")
            ],
        ),
        allow(
            "WriteMetrics",
            ["cloudwatch:PutMetricData"],
            ["*"],
            {"StringLike": {"cloudwatch:namespace": "/aws/sagemaker/*"}},
        ),
        only_if(
            HAS_KEY,
            allow("UseKey", ["kms:Decrypt", "kms:Encrypt", "kms:GenerateDataKey"], [{"Ref": "KeyArn"}]),
        ),
        only_if(
            HAS_KEY,
            allow(
                "GrantDiskKey",
                ["kms:CreateGrant"],
                [{"Ref": "KeyArn"}],
                {"Bool": {"kms:GrantIsForAWSResource": "true"}},
            ),
        ),
        *(only_if(HAS_VPC, statement) for statement in _network()),
    ]


def _list_prompts() -> Statement:
    return allow(
        "ListPrompts",
        ["s3:ListBucket"],
        [sub(_PROMPTS)],
        {"StringLike": {"s3:prefix": [sub("${PromptsPrefix}*")]}},
    )


def _network() -> list[Statement]:
    interfaces, groups, subnets = (
        arn("ec2", f"{kind}/*") for kind in ("network-interface", "security-group", "subnet")
    )
    change = (
        "CreateNetworkInterfacePermission",
        "DeleteNetworkInterface",
        "DeleteNetworkInterfacePermission",
    )
    see = ("DhcpOptions", "NetworkInterfaces", "SecurityGroups", "Subnets", "Vpcs")
    return [
        allow("JoinVpc", ["ec2:CreateNetworkInterface"], [interfaces, groups, subnets]),
        allow("LendAndLeaveVpc", [f"ec2:{action}" for action in change], [interfaces]),
        allow("SeeVpc", [f"ec2:Describe{what}" for what in see], ["*"]),
    ]


_EC2 = "arn:<AWS::Partition>:ec2:<AWS::Region>:<AWS::AccountId>:"
_LOGS = "arn:<AWS::Partition>:logs:<AWS::Region>:<AWS::AccountId>:log-group:"
_NETWORK = "AWS chooses the ids of network interfaces; the user's own subnets and groups are not known here."
REASONS: dict[str, dict[str, str]] = {
    "TrainingRole": {
        "*": "AWS supports no resource-level permissions for ecr:GetAuthorizationToken, ec2:Describe* and "
        "cloudwatch:PutMetricData, which a condition limits to SageMaker's namespaces.",
        "arn:<AWS::Partition>:s3:::<Bucket>/<Prefix>/*": "A job reads its data and writes its "
        "checkpoints and its head below this prefix alone.",
        "arn:<AWS::Partition>:s3:::jumpstart-cache-prod-<AWS::Region>/*": "Public models of AWS, read only.",
        "arn:<AWS::Partition>:s3:::<PromptsBucket>/<PromptsPrefix>*": "The recorded traffic that processing "
        "jobs read: the prefix is the user's own, and read only.",
        f"{_LOGS}{TRAINING_LOG_GROUP}:*": "SageMaker names the streams after the job and its host.",
        f"{_LOGS}{PROCESSING_LOG_GROUP}:*": "SageMaker names the streams after the job and its host.",
        f"{_EC2}network-interface/*": _NETWORK,
        f"{_EC2}security-group/*": _NETWORK,
        f"{_EC2}subnet/*": _NETWORK,
    },
}


def acknowledge(stack: Stack) -> None:
    """Attach each reason to its resource."""
    for construct_id, found in REASONS.items():
        resource = stack.node.find_child(construct_id)
        for name, reason in found.items():
            finding = f"AwsSolutions::AwsSolutions-IAM5[Resource::{name}]"
            Validations.of(resource).acknowledge(Acknowledgment(id=finding, reason=reason))
    bucket = stack.node.find_child("Data")
    Validations.of(bucket).acknowledge(
        Acknowledgment(
            id="AwsSolutions::AwsSolutions-S1",
            reason="One role reads and writes it. Access logs would need a second bucket; CloudTrail's data "
            "events can record them if needed.",
        )
    )
    Validations.of(bucket).acknowledge(
        Acknowledgment(
            id="CloudFormation-Validate::F3017",
            reason="The key is a parameter that may be empty; then the condition takes AES256 in its place.",
        )
    )
