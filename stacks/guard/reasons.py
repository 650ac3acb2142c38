"""Reasons for the remaining findings of cdk-nag; a finding without a reason fails the tests.

cdk-nag identifies a wildcard by its resource, so the reasons do too. Conditions on tags limit what a wildcard
over names allows (see policies.py); tests check this.
"""

from __future__ import annotations

from aws_cdk import Acknowledgment, Stack, Validations

from peagle_sm.core.plan.tags_and_schedules import alarm_names, from_zero_alarm

_NO_RESOURCE_LEVEL = "AWS supports no resource-level permissions for these read-only calls: "
_ANY_NAME = "Users choose the names of their endpoints, so the name cannot be restricted. "
_JOB_NAME = "The name of a training or processing job begins as its user chose. "
_ONLY_TAGGED = "Deletion requires the tag peagle-sm:managed-by = peagle-sm."
_OWN_LOG = "Lambda chooses the names of the streams in the function's own log group."
_OUR_SCHEDULES = (
    "Lifetime schedules are named after their endpoint and end in -lifetime, -hard or -hard-<number>; "
    "the name of the guard's own sweep does not. "
)
_NETWORK = (
    "The VPC is set in a spec, which the guard does not know, and AWS chooses the ids. "
    "The container itself has no access to it."
)

_SAGEMAKER = "arn:<AWS::Partition>:sagemaker:<AWS::Region>:<AWS::AccountId>:"
_LOGS = "arn:<AWS::Partition>:logs:<AWS::Region>:<AWS::AccountId>:log-group:"
_EC2 = "arn:<AWS::Partition>:ec2:<AWS::Region>:<AWS::AccountId>:"
_STACKS = "arn:<AWS::Partition>:cloudformation:<AWS::Region>:<AWS::AccountId>:stack/Peagle-*/*"
_SCHEDULES = tuple(
    f"arn:<AWS::Partition>:scheduler:<AWS::Region>:<AWS::AccountId>:schedule/default/peagle-{end}"
    for end in ("*-lifetime", "*-hard", "*-hard-*")
)
_ALARMS = tuple(
    f"arn:<AWS::Partition>:cloudwatch:<AWS::Region>:<AWS::AccountId>:alarm:{name}"
    for name in (*alarm_names("*"), from_zero_alarm("*"))
)
_SCALING = "arn:<AWS::Partition>:application-autoscaling:<AWS::Region>:<AWS::AccountId>:scalable-target/*"
_SCALING_IDS = "AWS chooses the ids of scalable targets; the condition allows only those of SageMaker."

_DELETED = {
    f"{_SAGEMAKER}endpoint/*": _ANY_NAME + _ONLY_TAGGED,
    f"{_SAGEMAKER}inference-component/*": _ANY_NAME + _ONLY_TAGGED,
}

WILDCARDS: dict[str, dict[str, str]] = {
    "SweeperRole": {
        f"{_SAGEMAKER}endpoint/*": _ANY_NAME + "These calls only read.",
        "*": _NO_RESOURCE_LEVEL
        + "sagemaker:ListEndpoints, sagemaker:ListInferenceComponents, sagemaker:ListProcessingJobs, "
        + "sagemaker:ListTrainingJobs, "
        "tag:GetResources, cloudwatch:GetMetricData.",
        f"{_SAGEMAKER}training-job/*": _JOB_NAME + "These calls only read.",
        f"{_SAGEMAKER}processing-job/*": _JOB_NAME + "These calls only read.",
        f"{_LOGS}/aws/lambda/peagle-guard-sweeper:*": _OWN_LOG,
        _STACKS: "Stacks are named Peagle-<endpoint>, followed by an id from CloudFormation. It only reads.",
    },
    "SwitchRole": {
        **_DELETED,
        f"{_SAGEMAKER}training-job/*": _JOB_NAME + "A stop requires peagle-sm's tag.",
        f"{_SAGEMAKER}processing-job/*": _JOB_NAME + "A stop requires peagle-sm's tag.",
        "*": _NO_RESOURCE_LEVEL
        + "sagemaker:ListInferenceComponents, application-autoscaling:DescribeScalableTargets.",
        f"{_LOGS}/aws/lambda/peagle-guard-switch:*": _OWN_LOG,
        _STACKS: "Stacks are named Peagle-<endpoint>, followed by an id from CloudFormation. "
        "Only the switch may update them, and only without another role or template URL.",
        **dict.fromkeys(_SCHEDULES, _OUR_SCHEDULES + "It deletes those of endpoints that no longer exist."),
        **dict.fromkeys(
            _ALARMS,
            "Alarms of updates and of scaling from zero are named after their endpoint. "
            "It deletes them once the endpoint is gone.",
        ),
        _SCALING: _SCALING_IDS,
    },
    "ModelProviderRole": {
        f"{_LOGS}/aws/lambda/peagle-guard-model:*": _OWN_LOG,
        f"{_SAGEMAKER}model/*": "Model names contain the endpoint's name and a hash. "
        "Creation must set peagle-sm's tag, deletion requires it.",
    },
    "LifetimeProviderRole": {
        f"{_SAGEMAKER}endpoint/*": _ANY_NAME + "Creation must set peagle-sm's tag; it deletes no endpoint.",
        f"{_SAGEMAKER}endpoint-config/*": _ANY_NAME
        + "An endpoint may be created only from a config with peagle-sm's tag.",
        f"{_LOGS}/aws/lambda/peagle-guard-lifetime:*": _OWN_LOG,
        **dict.fromkeys(_SCHEDULES, _OUR_SCHEDULES + "It creates and deletes them."),
    },
    "SchedulerRole": {**_DELETED, _SCALING: _SCALING_IDS},
    "ExecutionRole": {
        "*": "AWS supports no resource-level permissions for ecr:GetAuthorizationToken, ec2:Describe* and "
        "cloudwatch:PutMetricData, which a condition limits to SageMaker's namespaces.",
        "arn:<AWS::Partition>:cloudwatch:<AWS::Region>:<AWS::AccountId>:alarm:*": "Alarms that undo an "
        "update, also the user's own, by any name. It reads their state.",
        f"{_LOGS}/aws/sagemaker/Endpoints/*": "SageMaker names the log group after the endpoint.",
        f"{_LOGS}/aws/sagemaker/InferenceComponents/*": "SageMaker names the log group after the component.",
        "arn:<AWS::Partition>:s3:::jumpstart-cache-prod-<AWS::Region>/*": "Public models of AWS, read only.",
        "arn:<AWS::Partition>:s3:::sagemaker-sd-models-prod-<AWS::Region>/*": "AWS's draft heads, read only.",
        "arn:<AWS::Partition>:s3:::jumpstart-private-cache-prod-<AWS::Region>/*": "Gated models of AWS, read "
        "only; AWS checks the accepted EULA at CreateModel.",
        f"{_EC2}network-interface/*": _NETWORK,
        f"{_EC2}security-group/*": _NETWORK,
        f"{_EC2}subnet/*": _NETWORK,
    },
}

_FUNCTIONS = ("Sweeper", "Switch", "ModelProvider", "LifetimeProvider")
_RUNTIME = (
    "The tests run the package on Python 3.13, which AWS supports until mid 2029. "
    "The version is raised together with the tests."
)
_EMPTY_DEFAULT = (
    "The check uses the parameter's empty default, for which the condition HasEncryptionKey omits it."
)

OTHERS: dict[str, dict[str, str]] = {
    **{function: {"AwsSolutions::AwsSolutions-L1": _RUNTIME} for function in _FUNCTIONS},
    **{f"{function}Log": {"CloudFormation-Validate::F3031": _EMPTY_DEFAULT} for function in _FUNCTIONS},
}


def acknowledge(stack: Stack) -> None:
    """Attach each reason to its resource."""
    by_rule = {
        construct_id: {
            f"AwsSolutions::AwsSolutions-IAM5[Resource::{name}]": why for name, why in found.items()
        }
        for construct_id, found in WILDCARDS.items()
    }
    for construct_id, findings in (*by_rule.items(), *OTHERS.items()):
        for finding, reason in findings.items():
            resource = stack.node.find_child(construct_id)
            Validations.of(resource).acknowledge(Acknowledgment(id=finding, reason=reason))
