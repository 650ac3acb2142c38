"""IAM statements of the guard's roles, and of the execution role that all endpoints share.

Plain data, so that tests can read it. Tests check these rules: no ``*`` resource for actions that delete or
pass a role; each role is passed to one service, by name; SageMaker resources are deleted only with the tag of
peagle-sm; only the switch has UpdateStack.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from peagle_sm.core import guard
from peagle_sm.core.plan import tags_and_schedules as tags

Statement = dict[str, Any]
HAS_ENDPOINT_KEYS = "HasEndpointKeys"
HAS_ENCRYPTION_KEY = "HasEncryptionKey"

PULL_IMAGE = ("ecr:BatchCheckLayerAvailability", "ecr:BatchGetImage", "ecr:GetDownloadUrlForLayer")
_OURS = {f"aws:ResourceTag/{tags.MANAGED_BY}": tags.MANAGER}
_MADE_OURS = {f"aws:RequestTag/{tags.MANAGED_BY}": tags.MANAGER}


def sub(text: str) -> dict[str, str]:
    """Return a Fn::Sub of ``${...}`` in a text."""
    return {"Fn::Sub": text}


def arn(service: str, resource: str) -> dict[str, str]:
    """Return the ARN of a resource in the stack's own account and region."""
    return sub(f"arn:${{AWS::Partition}}:{service}:${{AWS::Region}}:${{AWS::AccountId}}:{resource}")


def allow(
    sid: str, actions: Sequence[str], resources: Sequence[Any], conditions: dict[str, Any] | None = None
) -> Statement:
    """Return one Allow statement."""
    statement: Statement = {
        "Sid": sid,
        "Effect": "Allow",
        "Action": list(actions),
        "Resource": list(resources),
    }
    return {**statement, "Condition": conditions} if conditions else statement


def document(*statements: Any) -> dict[str, Any]:
    """Return a policy of these statements."""
    return {"Version": "2012-10-17", "Statement": list(statements)}


def only_by_tls(action: str, resource: Any) -> Statement:
    """Return the statement of a resource's policy that denies everybody an action without TLS."""
    return {
        "Sid": "OnlyByTls",
        "Effect": "Deny",
        "Principal": {"AWS": "*"},
        "Action": action,
        "Resource": resource,
        "Condition": {"Bool": {"aws:SecureTransport": "false"}},
    }


def alarms_publish(topic: Any, conditions: dict[str, Any]) -> Statement:
    """Return the statement of a topic's policy that lets CloudWatch's alarms publish."""
    return {
        "Sid": "AlarmsSpeak",
        "Effect": "Allow",
        "Principal": {"Service": "cloudwatch.amazonaws.com"},
        "Action": "sns:Publish",
        "Resource": topic,
        "Condition": conditions,
    }


def only_if(condition: str, statement: Statement) -> dict[str, Any]:
    """Return a statement that the policy contains only under a condition of the template."""
    return {"Fn::If": [condition, statement, {"Ref": "AWS::NoValue"}]}


def pass_role(sid: str, name: str, service: str) -> Statement:
    """Return the permission to pass one role to one service."""
    to_service = {"StringEquals": {"iam:PassedToService": f"{service}.amazonaws.com"}}
    role = sub(f"arn:${{AWS::Partition}}:iam::${{AWS::AccountId}}:role/{name}")
    return allow(sid, ["iam:PassRole"], [role], to_service)


def trust(service: str) -> dict[str, Any]:
    """Return a trust policy: one service may assume the role, only on behalf of this account."""
    statement: Statement = {
        "Effect": "Allow",
        "Principal": {"Service": f"{service}.amazonaws.com"},
        "Action": "sts:AssumeRole",
    }
    # Lambda does not send the account when it assumes a function's role.
    if service != "lambda":
        statement["Condition"] = {"StringEquals": {"aws:SourceAccount": {"Ref": "AWS::AccountId"}}}
    return document(statement)


# --- parts that several functions share ---------------------------------------------------------------

_SCHEDULER_ROLE = guard.scheduler_role("${AWS::Region}")
_EXECUTION_ROLE = guard.execution_role("${AWS::Region}")
_ENDPOINTS = arn("sagemaker", "endpoint/*")
_CONFIGS = arn("sagemaker", "endpoint-config/*")
_MODELS = arn("sagemaker", "model/*")
_COMPONENTS = arn("sagemaker", "inference-component/*")
_JOBS = [arn("sagemaker", "training-job/*")]
_STACKS = arn("cloudformation", f"stack/{guard.ENDPOINT_STACK_PREFIX}*/*")
# Not the guard's own sweep, whose name has none of these suffixes.
_SCHEDULES = [
    arn("scheduler", f"schedule/default/peagle-{end}") for end in ("*-lifetime", "*-hard", "*-hard-*")
]
_ALARMS = [arn("cloudwatch", f"alarm:{name}") for name in (*tags.alarm_names("*"), tags.from_zero_alarm("*"))]


def function_arn(name: str) -> dict[str, str]:
    """Return the ARN of one of the guard's functions."""
    return arn("lambda", f"function:{name}")


def log_group(function: str) -> str:
    """Return the name of a function's log group."""
    return f"/aws/lambda/{function}"


def _leave_dead_letters() -> list[Statement]:
    """Return the permissions for the queue, and for register, topic and queue if the user gave a KMS key."""
    use_key = allow("UseOwnKey", ["kms:Decrypt", "kms:GenerateDataKey"], [{"Ref": "EncryptionKeyArn"}])
    return [
        allow("LeaveDeadLetters", ["sqs:SendMessage"], [arn("sqs", guard.DEAD_LETTERS)]),
        only_if(HAS_ENCRYPTION_KEY, use_key),
    ]


def basics(function: str) -> list[Statement]:
    """Return what every function needs: to write its log, and to send failed events to the queue."""
    group = log_group(function)
    return [
        allow(
            "WriteLog", ["logs:CreateLogStream", "logs:PutLogEvents"], [arn("logs", f"log-group:{group}:*")]
        ),
        *_leave_dead_letters(),
    ]


def _use_register(*actions: str) -> Statement:
    table = arn("dynamodb", f"table/{guard.TABLE}")
    return allow("UseRegister", [f"dynamodb:{name}" for name in actions], [table])


def _delete_ours() -> Statement:
    return allow(
        "DeleteOurs",
        ["sagemaker:DeleteEndpoint", "sagemaker:DeleteInferenceComponent"],
        [_ENDPOINTS, _COMPONENTS],
        {"StringEquals": _OURS},
    )


def _use_volume_key() -> list[dict[str, Any]]:
    """Let SageMaker use the key of an encrypted volume, with the permissions of CreateEndpoint's caller.

    Each action has its own condition: DescribeKey has no `kms:GrantIsForAWSResource`.
    """
    grant = allow("GrantVolumeKey", ["kms:CreateGrant"], [], {"Bool": {"kms:GrantIsForAWSResource": "true"}})
    by_sagemaker = sub("sagemaker.${AWS::Region}.${AWS::URLSuffix}")
    see = allow("SeeVolumeKey", ["kms:DescribeKey"], [], {"StringEquals": {"kms:ViaService": by_sagemaker}})
    keys = {"Resource": {"Ref": "EndpointKeyArns"}}
    return [only_if(HAS_ENDPOINT_KEYS, {**statement, **keys}) for statement in (grant, see)]


def _forget_scaling() -> Statement:
    """Return the permission to deregister: AWS deregisters a deleted endpoint's variants as the caller."""
    return allow(
        "ForgetScaling",
        ["application-autoscaling:DeregisterScalableTarget"],
        [arn("application-autoscaling", "scalable-target/*")],
        {"StringEquals": {"application-autoscaling:service-namespace": "sagemaker"}},
    )


# --- one role after the other -------------------------------------------------------------------------


def sweeper() -> list[Statement]:
    """Return the sweeper's statements: it reads, and invokes the switch; it deletes nothing."""
    return [
        *basics(guard.SWEEPER),
        allow(
            "ListEndpoints",
            [
                "sagemaker:ListEndpoints",
                "sagemaker:ListInferenceComponents",
                "sagemaker:ListTrainingJobs",
            ],
            ["*"],
        ),
        allow("SeeEndpoints", ["sagemaker:DescribeEndpoint", "sagemaker:ListTags"], [_ENDPOINTS]),
        allow(
            "SeeJobs",
            ["sagemaker:DescribeTrainingJob", "sagemaker:ListTags"],
            _JOBS,
        ),
        allow("FindOurs", ["tag:GetResources"], ["*"]),
        allow("ReadMetrics", ["cloudwatch:GetMetricData"], ["*"]),
        _use_register("DeleteItem", "GetItem", "Scan", "UpdateItem"),
        allow("SeeStacks", ["cloudformation:DescribeStacks"], [_STACKS]),
        allow("TellPeople", ["sns:Publish"], [arn("sns", guard.TOPIC)]),
        allow(
            "AskToAct",
            ["lambda:InvokeFunction"],
            [function_arn(guard.SWITCH), function_arn(guard.LIFETIME_PROVIDER)],
        ),
    ]


def switch() -> list[Statement]:
    """Return the switch's statements: it updates stacks and deletes endpoints without a stack.

    UpdateStack with a template URL or a role is not allowed: both must be absent from the request.
    CloudFormation uses the role that the stack was created with, so no PassRole is needed.
    """
    unchanged = {"Null": {"cloudformation:TemplateUrl": "true", "cloudformation:RoleArn": "true"}}
    return [
        *basics(guard.SWITCH),
        allow("SeeStack", ["cloudformation:DescribeStacks"], [_STACKS]),
        allow("TurnStack", ["cloudformation:UpdateStack"], [_STACKS], unchanged),
        allow(
            "ListWhatBlocks",
            ["sagemaker:ListInferenceComponents", "application-autoscaling:DescribeScalableTargets"],
            ["*"],
        ),
        allow(
            "SeeEndpoints",
            [
                "sagemaker:DescribeEndpoint",
                "sagemaker:DescribeInferenceComponent",
                "sagemaker:ListTags",
            ],
            [_ENDPOINTS, _COMPONENTS],
        ),
        _delete_ours(),
        allow("SeeJobs", ["sagemaker:ListTags"], _JOBS),
        allow(
            "StopOurJobs",
            ["sagemaker:StopTrainingJob"],
            _JOBS,
            {"StringEquals": _OURS},
        ),
        _forget_scaling(),
        allow("EndLifetimes", ["scheduler:GetSchedule", "scheduler:DeleteSchedule"], _SCHEDULES),
        allow("EndAlarms", ["cloudwatch:DeleteAlarms"], _ALARMS),
        _use_register("GetItem", "UpdateItem"),
    ]


def model_provider() -> list[Statement]:
    """Return the model provider's statements: it creates tagged models with the shared role."""
    tagging = {"sagemaker:TaggingAction": "CreateModel"}
    return [
        *basics(guard.MODEL_PROVIDER),
        allow("MakeModel", ["sagemaker:CreateModel"], [_MODELS], {"StringEquals": _MADE_OURS}),
        allow("TagNewModel", ["sagemaker:AddTags"], [_MODELS], {"StringEquals": {**tagging, **_MADE_OURS}}),
        allow("SeeModel", ["sagemaker:DescribeModel"], [_MODELS]),
        allow("DeleteOurModel", ["sagemaker:DeleteModel"], [_MODELS], {"StringEquals": _OURS}),
        pass_role("PassExecutionRole", _EXECUTION_ROLE, "sagemaker"),
    ]


def lifetime_provider() -> list[Statement]:
    """Return the lifetime provider's statements: lifetime schedules, and waking endpoints without a stack."""
    tagging = {"sagemaker:TaggingAction": "CreateEndpoint"}
    return [
        *basics(guard.LIFETIME_PROVIDER),
        allow(
            "ArmLifetimes",
            [
                "scheduler:CreateSchedule",
                "scheduler:GetSchedule",
                "scheduler:UpdateSchedule",
                "scheduler:DeleteSchedule",
            ],
            _SCHEDULES,
        ),
        pass_role("PassSchedulerRole", _SCHEDULER_ROLE, "scheduler"),
        allow("SeeEndpoint", ["sagemaker:DescribeEndpoint"], [_ENDPOINTS]),
        allow("WakeEndpoint", ["sagemaker:CreateEndpoint"], [_ENDPOINTS], {"StringEquals": _MADE_OURS}),
        allow("WakeFromOurConfig", ["sagemaker:CreateEndpoint"], [_CONFIGS], {"StringEquals": _OURS}),
        allow(
            "TagNewEndpoint", ["sagemaker:AddTags"], [_ENDPOINTS], {"StringEquals": {**tagging, **_MADE_OURS}}
        ),
        *_use_volume_key(),
        _use_register("GetItem", "UpdateItem"),
    ]


def schedule_role() -> list[Statement]:
    """Return the statements of the lifetime schedules' role; it works even if every Lambda fails."""
    return [
        _delete_ours(),
        _forget_scaling(),
        allow("AskSwitch", ["lambda:InvokeFunction"], [function_arn(guard.SWITCH)]),
        *_leave_dead_letters(),
    ]


def sweep_role() -> list[Statement]:
    """Return the statements of the sweep schedule's role."""
    return [
        allow("Sweep", ["lambda:InvokeFunction"], [function_arn(guard.SWEEPER)]),
        *_leave_dead_letters(),
    ]


REGISTRIES = "AwsRegistries"
"""The mapping of the template that knows, for each region, the account of AWS's container images."""
HAS_BUCKETS = "HasModelBuckets"


def execution_statements() -> list[Any]:
    """Return the execution role's statements; those on buckets and keys only if parameters name some."""
    read_encrypted = allow("ReadEncryptedModels", ["kms:Decrypt"], [])
    return [
        *_images(),
        *_telemetry(),
        # SageMaker reads the alarms of an update's auto-rollback, also the user's own, by any name.
        allow("WatchUpdates", ["cloudwatch:DescribeAlarms"], [arn("cloudwatch", "alarm:*")]),
        _jumpstart(),
        *_buckets(),
        *join_vpc(),
        only_if(HAS_ENDPOINT_KEYS, {**read_encrypted, "Resource": {"Ref": "EndpointKeyArns"}}),
    ]


def _images() -> list[Statement]:
    account = {"Fn::FindInMap": [REGISTRIES, {"Ref": "AWS::Region"}, "Account"]}
    theirs = "arn:${AWS::Partition}:ecr:${AWS::Region}:${Account}:repository/"
    return [
        allow("LogInToRegistries", ["ecr:GetAuthorizationToken"], ["*"]),
        allow(
            "PullAwsImages",
            PULL_IMAGE,
            [
                {"Fn::Sub": [f"{theirs}{repository}", {"Account": account}]}
                for repository in ("vllm", "djl-inference")
            ],
        ),
        allow("PullOwnImages", PULL_IMAGE, [arn("ecr", "repository/${ImageRepository}")]),
    ]


def _telemetry() -> list[Statement]:
    """Return the statements for logs and metrics, without the permission to create log groups.

    The stack or `peagle-sm deploy` creates them. With that permission a late line would recreate a deleted
    group, and the next stack of that name would fail.
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


def _jumpstart() -> Statement:
    """Return the statements for JumpStart's buckets in the region."""
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


def join_vpc() -> list[Statement]:
    """Return what SageMaker needs to put an endpoint or a job into a VPC; the container has no access."""
    interfaces, groups, subnets = (
        arn("ec2", f"{kind}/*") for kind in ("network-interface", "security-group", "subnet")
    )
    see = ("DhcpOptions", "NetworkInterfaces", "SecurityGroups", "Subnets", "Vpcs")
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
        allow("SeeVpc", [f"ec2:Describe{what}" for what in see], ["*"]),
    ]
