"""What the endpoints' containers, and SageMaker on their behalf, may do: the shared execution role."""

from __future__ import annotations

from typing import Any

from stacks.guard.policies import HAS_ENDPOINT_KEYS, Statement, allow, arn, only_if, sub

REGISTRIES = "AwsRegistries"
"""The mapping of the template that knows, for each region, the account of AWS's container images."""
HAS_BUCKETS = "HasModelBuckets"


def execution_statements() -> list[Any]:
    """Return the statements; those about buckets and keys stand only where the parameters name some."""
    return [*_images(), *_telemetry(), _updates(), _jumpstart(), *_buckets(), *_network(), *_keys()]


def _images() -> list[Statement]:
    pull = ["ecr:BatchCheckLayerAvailability", "ecr:BatchGetImage", "ecr:GetDownloadUrlForLayer"]
    account = {"Fn::FindInMap": [REGISTRIES, {"Ref": "AWS::Region"}, "Account"]}
    theirs = "arn:${AWS::Partition}:ecr:${AWS::Region}:${Account}:repository/"
    return [
        allow("LogInToRegistries", ["ecr:GetAuthorizationToken"], ["*"]),
        allow(
            "PullAwsImages",
            pull,
            [
                {"Fn::Sub": [f"{theirs}{repository}", {"Account": account}]}
                for repository in ("vllm", "djl-inference")
            ],
        ),
        allow("PullOwnImages", pull, [arn("ecr", "repository/${ImageRepository}")]),
    ]


def _telemetry() -> list[Statement]:
    """Write logs and metrics. Stack or `peagle-sm deploy` create the log groups: a role that may do so would
    bring a deleted group back with a late line, and the next stack of that name would fail.
    """
    groups = ("/aws/sagemaker/Endpoints/*", "/aws/sagemaker/InferenceComponents/*")
    return [
        allow(
            "WriteLogs",
            ["logs:CreateLogStream", "logs:DescribeLogStreams", "logs:PutLogEvents"],
            [arn("logs", f"log-group:{group}") for group in groups],
        ),
        allow(
            "WriteMetrics",
            ["cloudwatch:PutMetricData"],
            ["*"],
            {
                "StringLike": {
                    "cloudwatch:namespace": ["/aws/sagemaker/*", "AWS/SageMaker*", "aws/sagemaker/*"]
                }
            },
        ),
    ]


def _updates() -> Statement:
    """SageMaker reads the alarms that roll an update back by this role (guide: auto-rollback).

    Some are the user's own (`peagle-sm update --alarm`), by any name.
    """
    return allow("WatchUpdates", ["cloudwatch:DescribeAlarms"], [arn("cloudwatch", "alarm:*")])


def _jumpstart() -> Statement:
    """The region's buckets by the names that the toolkit resolves heads and targets to."""
    buckets = (
        "jumpstart-cache-prod-${AWS::Region}",
        "jumpstart-private-cache-prod-${AWS::Region}",
        # draft heads of other providers; 17 regions have it
        "sagemaker-sd-models-prod-${AWS::Region}",
    )
    whole = [sub(f"arn:${{AWS::Partition}}:s3:::{bucket}") for bucket in buckets]
    inside = [sub(f"arn:${{AWS::Partition}}:s3:::{bucket}/*") for bucket in buckets]
    return allow("ReadJumpStart", ["s3:GetObject", "s3:ListBucket"], [*whole, *inside])


def _buckets() -> list[Any]:
    listed = {"Ref": "ModelBucketArns"}
    # Every ARN of the list with /* behind it; CloudFormation takes only literal delimiters here.
    inside = {"Fn::Split": [",", {"Fn::Join": ["", [{"Fn::Join": ["/*,", listed]}, "/*"]]}]}
    return [
        only_if(HAS_BUCKETS, {**allow("ListModels", ["s3:ListBucket"], []), "Resource": listed}),
        only_if(HAS_BUCKETS, {**allow("ReadModels", ["s3:GetObject"], []), "Resource": inside}),
    ]


def _keys() -> list[Any]:
    read = allow("ReadEncryptedModels", ["kms:Decrypt"], [])
    return [only_if(HAS_ENDPOINT_KEYS, {**read, "Resource": {"Ref": "EndpointKeyArns"}})]


def _network() -> list[Statement]:
    """What SageMaker needs to put an endpoint into a VPC; the container itself is isolated from it."""
    interfaces, groups, subnets = (
        arn("ec2", f"{kind}/*") for kind in ("network-interface", "security-group", "subnet")
    )
    return [
        allow("JoinVpc", ["ec2:CreateNetworkInterface"], [interfaces, groups, subnets]),
        allow(
            "LendAndLeaveVpc",
            [
                "ec2:CreateNetworkInterfacePermission",
                "ec2:DeleteNetworkInterface",
                "ec2:DeleteNetworkInterfacePermission",
            ],
            [interfaces],
        ),
        allow(
            "SeeVpc",
            [
                "ec2:DescribeDhcpOptions",
                "ec2:DescribeNetworkInterfaces",
                "ec2:DescribeSecurityGroups",
                "ec2:DescribeSubnets",
                "ec2:DescribeVpcs",
            ],
            ["*"],
        ),
    ]
