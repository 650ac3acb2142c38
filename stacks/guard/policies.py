"""What each of the guard's roles may do, statement by statement. Plain data, so that tests can read it.

The rules that hold here and that tests check: no ``*`` resource on anything that deletes or passes a role;
a role is passed to one service, by name; what is deleted in SageMaker must carry our tag; UpdateStack
belongs to the switch alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from peagle_sm.core.guard import names
from peagle_sm.core.plan import tags

Statement = dict[str, Any]
HAS_ENDPOINT_KEYS = "HasEndpointKeys"
HAS_ENCRYPTION_KEY = "HasEncryptionKey"

_OURS = {f"aws:ResourceTag/{tags.MANAGED_BY}": tags.MANAGER}
_MADE_OURS = {f"aws:RequestTag/{tags.MANAGED_BY}": tags.MANAGER}


def sub(text: str) -> dict[str, str]:
    """Return CloudFormation's substitution of ``${...}`` in a text."""
    return {"Fn::Sub": text}


def arn(service: str, resource: str) -> dict[str, str]:
    """Return the ARN of a resource in the stack's own account and region."""
    return sub(f"arn:${{AWS::Partition}}:{service}:${{AWS::Region}}:${{AWS::AccountId}}:{resource}")


def role_arn(name: str) -> dict[str, str]:
    """Return the ARN of a role in the stack's own account."""
    return sub(f"arn:${{AWS::Partition}}:iam::${{AWS::AccountId}}:role/{name}")


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


def only_if(condition: str, statement: Statement) -> dict[str, Any]:
    """Return a statement that stands in the policy only under a condition of the template."""
    return {"Fn::If": [condition, statement, {"Ref": "AWS::NoValue"}]}


def pass_role(sid: str, name: str, service: str) -> Statement:
    """Return the right to hand exactly one role to exactly one service."""
    to_service = {"StringEquals": {"iam:PassedToService": f"{service}.amazonaws.com"}}
    return allow(sid, ["iam:PassRole"], [role_arn(name)], to_service)


def trust(service: str) -> dict[str, Any]:
    """Return who may take a role: one service, and only on behalf of this account."""
    statement: Statement = {
        "Effect": "Allow",
        "Principal": {"Service": f"{service}.amazonaws.com"},
        "Action": "sts:AssumeRole",
    }
    # Lambda does not send the account when it takes a function's role.
    if service != "lambda":
        statement["Condition"] = {"StringEquals": {"aws:SourceAccount": {"Ref": "AWS::AccountId"}}}
    return {"Version": "2012-10-17", "Statement": [statement]}


# --- parts that several functions share ---------------------------------------------------------------

_SCHEDULER_ROLE = names.scheduler_role("${AWS::Region}")
_EXECUTION_ROLE = names.execution_role("${AWS::Region}")
_ENDPOINTS = arn("sagemaker", "endpoint/*")
_CONFIGS = arn("sagemaker", "endpoint-config/*")
_MODELS = arn("sagemaker", "model/*")
_COMPONENTS = arn("sagemaker", "inference-component/*")
_STACKS = arn("cloudformation", f"stack/{names.ENDPOINT_STACK_PREFIX}*/*")
# Not the guard's own sweep, whose name has none of these ends.
_SCHEDULES = [
    arn("scheduler", f"schedule/default/peagle-{end}") for end in ("*-lifetime", "*-hard", "*-hard-*")
]
_DEAD_LETTERS = arn("sqs", names.DEAD_LETTERS)


def function_arn(name: str) -> dict[str, str]:
    """Return the ARN of one of the guard's functions."""
    return arn("lambda", f"function:{name}")


def log_group(function: str) -> str:
    """Return the name of a function's log group."""
    return f"/aws/lambda/{function}"


def _own_key() -> dict[str, Any]:
    """What register, topic and queue need where the user gave a key of their own."""
    use = allow("UseOwnKey", ["kms:Decrypt", "kms:GenerateDataKey"], [{"Ref": "EncryptionKeyArn"}])
    return only_if(HAS_ENCRYPTION_KEY, use)


def basics(function: str) -> list[Statement]:
    """What every function needs: to write its log, and to leave an event that it could not handle."""
    group = log_group(function)
    return [
        allow(
            "WriteLog", ["logs:CreateLogStream", "logs:PutLogEvents"], [arn("logs", f"log-group:{group}:*")]
        ),
        allow("LeaveDeadLetters", ["sqs:SendMessage"], [_DEAD_LETTERS]),
        _own_key(),
    ]


def _use_register(*actions: str) -> Statement:
    table = arn("dynamodb", f"table/{names.TABLE}")
    return allow("UseRegister", [f"dynamodb:{name}" for name in actions], [table])


def _delete_ours() -> list[Statement]:
    return [
        allow(
            "DeleteOurs",
            ["sagemaker:DeleteEndpoint", "sagemaker:DeleteInferenceComponent"],
            [_ENDPOINTS, _COMPONENTS],
            {"StringEquals": _OURS},
        )
    ]


def _use_volume_key() -> list[dict[str, Any]]:
    """Let SageMaker use the key of an encrypted volume, which CreateEndpoint asks for in the caller's name.

    Each action has its own condition: DescribeKey carries no `kms:GrantIsForAWSResource`.
    """
    grant = allow("GrantVolumeKey", ["kms:CreateGrant"], [], {"Bool": {"kms:GrantIsForAWSResource": "true"}})
    by_sagemaker = sub("sagemaker.${AWS::Region}.${AWS::URLSuffix}")
    see = allow("SeeVolumeKey", ["kms:DescribeKey"], [], {"StringEquals": {"kms:ViaService": by_sagemaker}})
    keys = {"Resource": {"Ref": "EndpointKeyArns"}}
    return [only_if(HAS_ENDPOINT_KEYS, {**statement, **keys}) for statement in (grant, see)]


def _forget_scaling() -> Statement:
    """The right to deregister: AWS deregisters a deleted endpoint's variants by the rights of the caller."""
    return allow(
        "ForgetScaling",
        ["application-autoscaling:DeregisterScalableTarget"],
        [arn("application-autoscaling", "scalable-target/*")],
        {"StringEquals": {"application-autoscaling:service-namespace": "sagemaker"}},
    )


# --- one role after the other -------------------------------------------------------------------------


def sweeper() -> list[Statement]:
    """It looks and decides. It deletes nothing: it asks the switch."""
    return [
        *basics(names.SWEEPER),
        allow("ListEndpoints", ["sagemaker:ListEndpoints", "sagemaker:ListInferenceComponents"], ["*"]),
        allow("SeeEndpoints", ["sagemaker:DescribeEndpoint", "sagemaker:ListTags"], [_ENDPOINTS]),
        allow("FindOurs", ["tag:GetResources"], ["*"]),
        allow("ReadMetrics", ["cloudwatch:GetMetricData"], ["*"]),
        _use_register("DeleteItem", "GetItem", "Scan", "UpdateItem"),
        allow("SeeStacks", ["cloudformation:DescribeStacks"], [_STACKS]),
        allow("TellPeople", ["sns:Publish"], [arn("sns", names.TOPIC)]),
        allow(
            "AskToAct",
            ["lambda:InvokeFunction"],
            [function_arn(names.SWITCH), function_arn(names.LIFETIME_PROVIDER)],
        ),
    ]


def switch() -> list[Statement]:
    """It turns off and on: a stack by its parameter, an endpoint without a stack by deleting it.

    UpdateStack with another template address or another role is not covered: both must be absent from the
    request. CloudFormation acts with the role that the stack was made with, so no PassRole is needed.
    """
    unchanged = {"Null": {"cloudformation:TemplateUrl": "true", "cloudformation:RoleArn": "true"}}
    return [
        *basics(names.SWITCH),
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
        *_delete_ours(),
        _forget_scaling(),
        allow("EndLifetimes", ["scheduler:GetSchedule", "scheduler:DeleteSchedule"], _SCHEDULES),
        _use_register("GetItem", "UpdateItem"),
    ]


def model_provider() -> list[Statement]:
    """It makes the models that CloudFormation cannot describe, tagged as ours, with the one shared role."""
    tagging = {"sagemaker:TaggingAction": "CreateModel"}
    return [
        *basics(names.MODEL_PROVIDER),
        allow("MakeModel", ["sagemaker:CreateModel"], [_MODELS], {"StringEquals": _MADE_OURS}),
        allow("TagNewModel", ["sagemaker:AddTags"], [_MODELS], {"StringEquals": {**tagging, **_MADE_OURS}}),
        allow("SeeModel", ["sagemaker:DescribeModel"], [_MODELS]),
        allow("DeleteOurModel", ["sagemaker:DeleteModel"], [_MODELS], {"StringEquals": _OURS}),
        pass_role("PassExecutionRole", _EXECUTION_ROLE, "sagemaker"),
    ]


def lifetime_provider() -> list[Statement]:
    """It arms and removes dead-man's switches, and wakes an endpoint that has no stack."""
    tagging = {"sagemaker:TaggingAction": "CreateEndpoint"}
    return [
        *basics(names.LIFETIME_PROVIDER),
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
    """The dead-man's switch: it works when every function of ours fails."""
    return [
        *_delete_ours(),
        _forget_scaling(),
        allow("AskSwitch", ["lambda:InvokeFunction"], [function_arn(names.SWITCH)]),
        allow("LeaveDeadLetters", ["sqs:SendMessage"], [_DEAD_LETTERS]),
        _own_key(),
    ]


def sweep_role() -> list[Statement]:
    """What the sweep's own schedule may do."""
    return [
        allow("Sweep", ["lambda:InvokeFunction"], [function_arn(names.SWEEPER)]),
        allow("LeaveDeadLetters", ["sqs:SendMessage"], [_DEAD_LETTERS]),
        _own_key(),
    ]
