"""Stack PeagleTraining: the role of training jobs.

The role may read and write below one prefix of one bucket, read JumpStart's models, pull one repository's
images, write the log of these jobs, and no more. A key and network interfaces are added only where the
parameters ask for them.
"""

from __future__ import annotations

from typing import Any

from aws_cdk import CfnCondition, CfnOutput, CfnParameter, Fn, Stack, Tags

from peagle_sm.core.guard import (
    TRAINING_LOG_GROUP,
    TRAINING_ROLE_PREFIX,
    TRAINING_STACK,
)
from stacks.guard.functions import role
from stacks.guard.policies import PULL_IMAGE, allow, arn, join_vpc, only_if, sub
from stacks.stack import PeagleStack

STACK = TRAINING_STACK
DESCRIPTION = "peagle-sm: the role of training jobs (one per region)"
HAS_KEY, HAS_VPC = "HasKey", "HasVpc"
_BUCKET = "arn:${AWS::Partition}:s3:::${Bucket}"


class TrainingStack(PeagleStack):
    """Stack with the execution role of training jobs."""

    def __init__(self, scope: Any, construct_id: str = STACK, **more: Any) -> None:
        super().__init__(scope, construct_id, DESCRIPTION, **more)
        add_parameters(self)
        created = role(
            self,
            "TrainingRole",
            TRAINING_ROLE_PREFIX,
            "sagemaker",
            "Permissions of peagle-sm's training jobs.",
            role_statements(),
        )
        CfnOutput(self, "RoleArn", value=created.attr_arn, description="Role for train.execution_role_arn.")
        Tags.of(self).add("peagle-sm:part", "training")


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
    key = CfnParameter(stack, "KeyArn", default="", description="KMS key of bucket and disks; empty: none.")
    vpc = CfnParameter(
        stack,
        "Vpc",
        allowed_values=["yes", "no"],
        default="no",
        description="Whether jobs run in a VPC of yours (train.subnets).",
    )
    given = Fn.condition_not(Fn.condition_equals(key.value_as_string, ""))
    CfnCondition(stack, HAS_KEY, expression=given)
    CfnCondition(stack, HAS_VPC, expression=Fn.condition_equals(vpc.value_as_string, "yes"))


def role_statements() -> list[Any]:
    """Return the role's statements; those on a key and on a VPC only if parameters ask for them."""
    jumpstart = "arn:${AWS::Partition}:s3:::jumpstart-cache-prod-${AWS::Region}"
    return [
        allow(
            "ListPrefix",
            ["s3:ListBucket"],
            [sub(_BUCKET)],
            {"StringLike": {"s3:prefix": [sub("${Prefix}"), sub("${Prefix}/*")]}},
        ),
        allow(
            "UsePrefix",
            ["s3:AbortMultipartUpload", "s3:DeleteObject", "s3:GetObject", "s3:PutObject"],
            [sub(f"{_BUCKET}/${{Prefix}}/*")],
        ),
        allow("ReadJumpStart", ["s3:GetObject", "s3:ListBucket"], [sub(jumpstart), sub(f"{jumpstart}/*")]),
        allow("LogInToRegistry", ["ecr:GetAuthorizationToken"], ["*"]),
        allow("PullImage", PULL_IMAGE, [arn("ecr", "repository/${ImageRepository}")]),
        allow(
            "WriteLog",
            ["logs:CreateLogGroup", "logs:CreateLogStream", "logs:DescribeLogStreams", "logs:PutLogEvents"],
            [
                arn("logs", f"log-group:{TRAINING_LOG_GROUP}"),
                arn("logs", f"log-group:{TRAINING_LOG_GROUP}:*"),
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
        *(only_if(HAS_VPC, statement) for statement in join_vpc()),
    ]
