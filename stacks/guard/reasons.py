"""Why each finding of cdk-nag that remains is right; a finding without a reason here fails the tests.

cdk-nag names a wildcard by the resource it stands in, so the reasons do too. What a wildcard over names
leaves open, conditions on tags close (see policies.py); tests hold that.
"""

from __future__ import annotations

from aws_cdk import Acknowledgment, Stack, Validations

_NO_RESOURCE_LEVEL = "AWS knows no resource for these calls, which only read: "
_ANY_NAME = "Users choose the names of their endpoints, so the name cannot be narrowed. "
_ONLY_TAGGED = "Deletion is conditioned on the tag peagle-sm:managed-by = peagle-sm."
_OWN_LOG = "Lambda names the streams inside the function's own log group."
_OUR_SCHEDULES = (
    "Lifetime schedules are named after their endpoint and end in -lifetime, -hard or -hard-<number>; "
    "the guard's own sweep does not. "
)
_NETWORK = (
    "A VPC belongs to a spec, which the guard does not know; ids are AWS's own. "
    "The container itself is isolated from it."
)

_SAGEMAKER = "arn:<AWS::Partition>:sagemaker:<AWS::Region>:<AWS::AccountId>:"
_LOGS = "arn:<AWS::Partition>:logs:<AWS::Region>:<AWS::AccountId>:log-group:"
_EC2 = "arn:<AWS::Partition>:ec2:<AWS::Region>:<AWS::AccountId>:"
_STACKS = "arn:<AWS::Partition>:cloudformation:<AWS::Region>:<AWS::AccountId>:stack/Peagle-*/*"
_SCHEDULES = tuple(
    f"arn:<AWS::Partition>:scheduler:<AWS::Region>:<AWS::AccountId>:schedule/default/peagle-{end}"
    for end in ("*-lifetime", "*-hard", "*-hard-*")
)
_SCALING = "arn:<AWS::Partition>:application-autoscaling:<AWS::Region>:<AWS::AccountId>:scalable-target/*"
_SCALING_IDS = "AWS gives scalable targets ids of its own; the condition allows those of SageMaker only."

_DELETED = {
    f"{_SAGEMAKER}endpoint/*": _ANY_NAME + _ONLY_TAGGED,
    f"{_SAGEMAKER}inference-component/*": _ANY_NAME + _ONLY_TAGGED,
}

WILDCARDS: dict[str, dict[str, str]] = {
    "SweeperRole": {
        f"{_SAGEMAKER}endpoint/*": _ANY_NAME + "These calls only read.",
        "*": _NO_RESOURCE_LEVEL
        + "sagemaker:ListEndpoints, sagemaker:ListInferenceComponents, tag:GetResources, "
        "cloudwatch:GetMetricData.",
        f"{_LOGS}/aws/lambda/peagle-guard-sweeper:*": _OWN_LOG,
        _STACKS: "Stacks are named Peagle-<endpoint>; after it stands the id that CloudFormation adds. It "
        "only reads.",
    },
    "SwitchRole": {
        **_DELETED,
        "*": _NO_RESOURCE_LEVEL
        + "sagemaker:ListInferenceComponents, application-autoscaling:DescribeScalableTargets.",
        f"{_LOGS}/aws/lambda/peagle-guard-switch:*": _OWN_LOG,
        _STACKS: "Stacks are named Peagle-<endpoint>; after it stands the id that CloudFormation adds. "
        "Only the switch may update them, without another role or template address.",
        **dict.fromkeys(_SCHEDULES, _OUR_SCHEDULES + "It removes those of an endpoint that is gone."),
        _SCALING: _SCALING_IDS,
    },
    "ModelProviderRole": {
        f"{_LOGS}/aws/lambda/peagle-guard-model:*": _OWN_LOG,
        f"{_SAGEMAKER}model/*": "Model names carry the endpoint's name and a hash. "
        "Creation must set our tag, deletion must find it.",
    },
    "LifetimeProviderRole": {
        f"{_SAGEMAKER}endpoint/*": _ANY_NAME + "Creation must set our tag; it deletes no endpoint.",
        f"{_SAGEMAKER}endpoint-config/*": _ANY_NAME
        + "An endpoint may be made from a config with our tag only.",
        f"{_LOGS}/aws/lambda/peagle-guard-lifetime:*": _OWN_LOG,
        **dict.fromkeys(_SCHEDULES, _OUR_SCHEDULES + "It arms and removes them."),
    },
    "SchedulerRole": {**_DELETED, _SCALING: _SCALING_IDS},
    "ExecutionRole": {
        "*": "AWS knows no resource for these calls: ecr:GetAuthorizationToken, ec2:Describe*, and "
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
    "Python 3.13 is what the tests run the package on; AWS supports it until mid 2029. "
    "It is raised with the tests, not by a newer name in a list."
)
_EMPTY_DEFAULT = (
    "The check takes the parameter's empty default; then the condition HasEncryptionKey leaves it out."
)

OTHERS: dict[str, dict[str, str]] = {
    **{function: {"AwsSolutions::AwsSolutions-L1": _RUNTIME} for function in _FUNCTIONS},
    **{f"{function}Log": {"CloudFormation-Validate::F3031": _EMPTY_DEFAULT} for function in _FUNCTIONS},
}


def acknowledge(stack: Stack) -> None:
    """Attach each reason to the resource that it is about."""
    for construct_id, resources in WILDCARDS.items():
        for resource, reason in resources.items():
            finding = f"AwsSolutions::AwsSolutions-IAM5[Resource::{resource}]"
            _attach(stack, construct_id, finding, reason)
    for construct_id, findings in OTHERS.items():
        for finding, reason in findings.items():
            _attach(stack, construct_id, finding, reason)


def _attach(stack: Stack, construct_id: str, finding: str, reason: str) -> None:
    resource = stack.node.find_child(construct_id)
    Validations.of(resource).acknowledge(Acknowledgment(id=finding, reason=reason))
