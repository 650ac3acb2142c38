"""Every AWS call of the guard's roles and of the image build, with the condition keys that AWS sends.

Written from the code (boto3's calls, the plan's payloads) and AWS's documentation, not from the policies:
the service authorization reference (`reference.json`), SageMaker's pages on roles and on API permissions,
CodeBuild's on its service role, and DynamoDB's, SNS's and SQS's on customer managed keys.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from peagle_sm.core.plan.tags_and_schedules import (
    alarm_names,
    from_zero_alarm,
    hard_schedule_name,
    schedule_name,
)

REGION = "us-east-1"
ACCOUNT = "123456789012"
AWS_IMAGES = "763104351884"
BUCKET = "arn:aws:s3:::team-models"
ENDPOINT_KEY = f"arn:aws:kms:{REGION}:{ACCOUNT}:key/11111111-2222-3333-4444-555555555555"
OWN_KEY = f"arn:aws:kms:{REGION}:{ACCOUNT}:key/99999999-8888-7777-6666-555555555555"

_OURS = "peagle-sm:managed-by"
REQUEST_TAG = {f"aws:RequestTag/{_OURS}": "peagle-sm"}
RESOURCE_TAG = {f"aws:ResourceTag/{_OURS}": "peagle-sm"}


@dataclass(frozen=True)
class Call:
    """One call: AWS authorises it on each of the resources, with these condition keys."""

    action: str
    resources: tuple[str, ...] = ("*",)
    keys: Mapping[str, str] = field(default_factory=dict)


def arn(service: str, resource: str) -> str:
    """Return the ARN of a resource in the tests' account and region."""
    return f"arn:aws:{service}:{REGION}:{ACCOUNT}:{resource}"


def role(name: str) -> str:
    """Return a role's ARN."""
    return f"arn:aws:iam::{ACCOUNT}:role/{name}"


def via(service: str) -> dict[str, str]:
    """Return the key that says which service uses a KMS key for the caller."""
    return {"kms:ViaService": f"{service}.{REGION}.amazonaws.com"}


ENDPOINT = arn("sagemaker", "endpoint/demo")
CONFIG = arn("sagemaker", "endpoint-config/demo-1a2b3c4d")
MODEL = arn("sagemaker", "model/demo-1a2b3c4d")
JOB = arn("sagemaker", "training-job/team-a-0123456789")
COMPONENT = arn("sagemaker", "inference-component/demo-component")
TABLE = arn("dynamodb", "table/peagle-guard")
DEAD_LETTERS = arn("sqs", "peagle-guard-dead-letters")
# DescribeStacks of a stack that does not exist is authorised on its name and a star.
STACKS = (
    arn("cloudformation", "stack/Peagle-demo/11112222-3333"),
    arn("cloudformation", "stack/Peagle-demo/*"),
)
SCHEDULES = tuple(
    arn("scheduler", f"schedule/default/{name}")
    for name in (schedule_name("demo"), hard_schedule_name("demo"), hard_schedule_name("e" * 63, 12))
)
ALARMS = tuple(arn("cloudwatch", f"alarm:{name}") for name in (*alarm_names("demo"), from_zero_alarm("demo")))


def _function(name: str) -> str:
    return arn("lambda", f"function:{name}")


def _dead_letters() -> list[Call]:
    return [
        Call("sqs:SendMessage", (DEAD_LETTERS,)),
        Call("kms:Decrypt", (OWN_KEY,), via("sqs")),
        Call("kms:GenerateDataKey", (OWN_KEY,), via("sqs")),
    ]


def _of_function(name: str) -> list[Call]:
    """What Lambda does by a function's role: write its log, and send what it could not handle."""
    stream = arn("logs", f"log-group:/aws/lambda/{name}:log-stream:2026/11/22/[$LATEST]0a1b")
    return [Call("logs:CreateLogStream", (stream,)), Call("logs:PutLogEvents", (stream,)), *_dead_letters()]


def _register(*actions: str) -> list[Call]:
    return [
        *(Call(f"dynamodb:{action}", (TABLE,)) for action in actions),
        Call("kms:Decrypt", (OWN_KEY,), via("dynamodb")),
    ]


SWEEPER = [
    *_of_function("peagle-guard-sweeper"),
    Call("sagemaker:ListEndpoints"),
    Call("sagemaker:ListInferenceComponents"),
    Call("sagemaker:DescribeEndpoint", (ENDPOINT,)),
    Call("sagemaker:ListTags", (ENDPOINT, JOB)),
    Call("sagemaker:ListTrainingJobs"),
    Call("sagemaker:DescribeTrainingJob", (JOB,)),
    Call("tag:GetResources"),
    Call("cloudwatch:GetMetricData"),
    Call("cloudformation:DescribeStacks", STACKS),
    *_register("DeleteItem", "GetItem", "Scan", "UpdateItem"),
    Call("sns:Publish", (arn("sns", "peagle-guard-notices"),)),
    Call("kms:GenerateDataKey", (OWN_KEY,), via("sns")),
    Call("lambda:InvokeFunction", (_function("peagle-guard-switch"),)),
    Call("lambda:InvokeFunction", (_function("peagle-guard-lifetime"),)),
]

DEREGISTER = Call(
    "application-autoscaling:DeregisterScalableTarget",
    (arn("application-autoscaling", "scalable-target/0a1b"),),
    {
        "application-autoscaling:service-namespace": "sagemaker",
        "application-autoscaling:scalable-dimension": "sagemaker:variant:DesiredInstanceCount",
    },
)

SWITCH = [
    *_of_function("peagle-guard-switch"),
    Call("cloudformation:DescribeStacks", STACKS),
    # with the previous template and without a role, so neither key is sent
    Call("cloudformation:UpdateStack", STACKS[:1]),
    Call("sagemaker:ListInferenceComponents"),
    Call("sagemaker:DescribeEndpoint", (ENDPOINT,)),
    Call("sagemaker:DescribeInferenceComponent", (COMPONENT,)),
    Call("sagemaker:ListTags", (ENDPOINT, JOB)),
    Call("sagemaker:StopTrainingJob", (JOB,), RESOURCE_TAG),
    Call("sagemaker:DeleteEndpoint", (ENDPOINT,), RESOURCE_TAG),
    Call("sagemaker:DeleteInferenceComponent", (COMPONENT,), RESOURCE_TAG),
    Call("application-autoscaling:DescribeScalableTargets"),
    DEREGISTER,
    Call("scheduler:GetSchedule", SCHEDULES),
    Call("scheduler:DeleteSchedule", SCHEDULES),
    Call("cloudwatch:DeleteAlarms", ALARMS),
    *_register("GetItem", "UpdateItem"),
]

MODEL_PROVIDER = [
    *_of_function("peagle-guard-model"),
    Call("sagemaker:CreateModel", (MODEL,), {**REQUEST_TAG, "sagemaker:NetworkIsolation": "true"}),
    Call("sagemaker:AddTags", (MODEL,), {**REQUEST_TAG, "sagemaker:TaggingAction": "CreateModel"}),
    Call(
        "iam:PassRole",
        (role(f"peagle-execution-{REGION}"),),
        {"iam:PassedToService": "sagemaker.amazonaws.com"},
    ),
    Call("sagemaker:DescribeModel", (MODEL,)),
    Call("sagemaker:DeleteModel", (MODEL,), RESOURCE_TAG),
]

LIFETIME_PROVIDER = [
    *_of_function("peagle-guard-lifetime"),
    *(Call(f"scheduler:{verb}Schedule", SCHEDULES) for verb in ("Create", "Get", "Update", "Delete")),
    Call(
        "iam:PassRole",
        (role(f"peagle-scheduler-{REGION}"),),
        {"iam:PassedToService": "scheduler.amazonaws.com"},
    ),
    Call("sagemaker:DescribeEndpoint", (ENDPOINT,)),
    # waking an endpoint without a stack
    Call("sagemaker:CreateEndpoint", (ENDPOINT,), REQUEST_TAG),
    Call("sagemaker:CreateEndpoint", (CONFIG,), {**REQUEST_TAG, **RESOURCE_TAG}),
    Call("sagemaker:AddTags", (ENDPOINT,), {**REQUEST_TAG, "sagemaker:TaggingAction": "CreateEndpoint"}),
    Call("kms:CreateGrant", (ENDPOINT_KEY,), {**via("sagemaker"), "kms:GrantIsForAWSResource": "true"}),
    Call("kms:DescribeKey", (ENDPOINT_KEY,), via("sagemaker")),
    *_register("GetItem", "UpdateItem"),
]

SCHEDULER_ROLE = [
    Call("sagemaker:DeleteEndpoint", (ENDPOINT,), RESOURCE_TAG),
    DEREGISTER,  # "Delete endpoints configured for auto scaling": AWS uses the caller's rights
    Call("sagemaker:DeleteInferenceComponent", (COMPONENT,), RESOURCE_TAG),
    Call("lambda:InvokeFunction", (_function("peagle-guard-switch"),)),
    *_dead_letters(),
]

SWEEP_ROLE = [Call("lambda:InvokeFunction", (_function("peagle-guard-sweeper"),)), *_dead_letters()]

_PULL = ("ecr:BatchCheckLayerAvailability", "ecr:BatchGetImage", "ecr:GetDownloadUrlForLayer")
_REPOSITORIES = (
    f"arn:aws:ecr:{REGION}:{AWS_IMAGES}:repository/vllm",
    f"arn:aws:ecr:{REGION}:{AWS_IMAGES}:repository/djl-inference",
    arn("ecr", "repository/peagle-sm/vllm"),
)
_LOG_GROUPS = ("/aws/sagemaker/Endpoints/demo", "/aws/sagemaker/InferenceComponents/demo-component")
_STREAMS = tuple(arn("logs", f"log-group:{group}:log-stream:AllTraffic/i-0a1b") for group in _LOG_GROUPS)
_INTERFACE, _GROUP, _SUBNET = (
    arn("ec2", f"{kind}-0a1b") for kind in ("network-interface/eni", "security-group/sg", "subnet/subnet")
)

EXECUTION_ROLE = [
    Call("ecr:GetAuthorizationToken"),
    *(Call(action, _REPOSITORIES) for action in _PULL),
    Call("logs:CreateLogStream", _STREAMS),
    Call("logs:DescribeLogStreams", tuple(arn("logs", f"log-group:{group}:*") for group in _LOG_GROUPS)),
    Call("logs:PutLogEvents", _STREAMS),
    *(
        Call("cloudwatch:PutMetricData", keys={"cloudwatch:namespace": namespace})
        for namespace in ("/aws/sagemaker/Endpoints", "AWS/SageMaker", "aws/sagemaker/Endpoints")
    ),
    # `peagle-sm update` names its own alarm, and those of --alarm, whatever they are called
    Call("cloudwatch:DescribeAlarms", (arn("cloudwatch", "alarm:peagle-demo-update"),)),
    Call("cloudwatch:DescribeAlarms", (arn("cloudwatch", "alarm:our own alarm"),)),
    *(
        call
        for bucket in (
            f"arn:aws:s3:::jumpstart-cache-prod-{REGION}",
            f"arn:aws:s3:::jumpstart-private-cache-prod-{REGION}",
            f"arn:aws:s3:::sagemaker-sd-models-prod-{REGION}",
            BUCKET,
        )
        for call in (
            Call("s3:ListBucket", (bucket,)),
            Call("s3:GetObject", (f"{bucket}/head/model.safetensors",)),
        )
    ),
    Call("kms:Decrypt", (ENDPOINT_KEY,), via("s3")),
    Call("ec2:CreateNetworkInterface", (_INTERFACE, _GROUP, _SUBNET)),
    *(
        Call(f"ec2:{action}", (_INTERFACE,))
        for action in (
            "CreateNetworkInterfacePermission",
            "DeleteNetworkInterface",
            "DeleteNetworkInterfacePermission",
        )
    ),
    *(
        Call(f"ec2:Describe{what}")
        for what in ("DhcpOptions", "NetworkInterfaces", "SecurityGroups", "Subnets", "Vpcs")
    ),
]

BUILD_KEY = arn("kms", "key/77777777-8888-7777-6666-555555555555")
SOURCE = f"arn:aws:s3:::cdk-hnb659fds-assets-{ACCOUNT}-{REGION}/0a1b.zip"
_OWN_REPOSITORY = arn("ecr", "repository/peagle-sm/vllm")
_RECORDS = "arn:aws:s3:::peagleimage-records-1a2b"
BUILD_ARNS = {
    "Key": BUILD_KEY,
    "Log": arn("logs", "log-group:/aws/codebuild/peagle-image:*"),
    "Records": _RECORDS,
    "Repository": _OWN_REPOSITORY,
}
"""What Fn::GetAtt gives for the resources of the image stack."""
_BUILD_STREAM = arn("logs", "log-group:/aws/codebuild/peagle-image:log-stream:0a1b")
BUILD = [
    Call("ecr:GetAuthorizationToken"),
    *(
        Call(f"ecr:{action}", (_OWN_REPOSITORY,))
        for action in (
            # docker push; BatchGetImage and the layers' check come with it
            "BatchCheckLayerAvailability",
            "BatchGetImage",
            "InitiateLayerUpload",
            "UploadLayerPart",
            "CompleteLayerUpload",
            "PutImage",
            "DescribeImages",  # buildspec.yml looks up the digest
        )
    ),
    Call("s3:GetObject", (SOURCE,)),
    Call("s3:GetObjectVersion", (SOURCE,)),
    Call("s3:PutObject", (f"{_RECORDS}/builds/0a1b/record/image.json",)),
    Call("kms:Decrypt", (BUILD_KEY,), via("s3")),
    Call("kms:GenerateDataKey", (BUILD_KEY,), via("s3")),
    Call("logs:CreateLogStream", (_BUILD_STREAM,)),
    Call("logs:PutLogEvents", (_BUILD_STREAM,)),
]

GUARD = {
    "SweeperRole": SWEEPER,
    "SwitchRole": SWITCH,
    "ModelProviderRole": MODEL_PROVIDER,
    "LifetimeProviderRole": LIFETIME_PROVIDER,
    "SchedulerRole": SCHEDULER_ROLE,
    "SweepRole": SWEEP_ROLE,
    "ExecutionRole": EXECUTION_ROLE,
}
