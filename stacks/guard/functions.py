"""Lambdas of the guard, their package, and the parameters of the guard stack.

Each Lambda has its own role and log group. The package is a zip file whose name in the template depends only
on its content. Parameters and conditions are the same for both ways of installation.
"""

from __future__ import annotations

import tempfile
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import Any

from aws_cdk import (
    AssetHashType,
    CfnCondition,
    CfnParameter,
    Fn,
    ICfnConditionExpression,
    RemovalPolicy,
    Stack,
)
from aws_cdk import aws_iam as iam
from aws_cdk import aws_lambda as lambda_
from aws_cdk import aws_logs as logs
from aws_cdk.aws_s3_assets import Asset

from peagle_sm.core import guard
from peagle_sm.core.guard import digest, package_files, zipped
from stacks.guard import policies
from stacks.guard.policies import HAS_BUCKETS, HAS_ENCRYPTION_KEY, HAS_ENDPOINT_KEYS
from stacks.guard.reasons import acknowledge, acknowledge_wildcards

RESERVES = "ReservesConcurrency"


class Inputs:
    """Parameters of the stack; every one has a default, so that none is required."""

    def __init__(self, stack: Stack) -> None:
        self._stack = stack
        self.email = self._text(
            "NoticesEmail",
            "Mail address for notices before and after an endpoint is turned off; empty: no mail.",
        )
        buckets = self._list(
            "ModelBucketArns", "ARNs of your buckets that hold models and draft heads, separated by commas."
        )
        self._text(
            "ImageRepository",
            "ECR repository of your own container images in this account; the name may end in *.",
            default="peagle-*",
            pattern=r"[a-z0-9][a-z0-9._/-]*\*?",
        )
        keys = self._list(
            "EndpointKeyArns", "ARNs of the KMS keys of your endpoints' volumes and of your model buckets."
        )
        self.key = self._text(
            "EncryptionKeyArn",
            "ARN of a KMS key for register, notices, dead-letter queue and logs; empty: AWS's own keys.",
        )
        self._reserve = CfnParameter(
            stack,
            "ReserveConcurrency",
            allowed_values=["yes", "no"],
            default="yes",
            description="Use no in a new account with a quota of only 10 concurrent executions.",
        )
        self._conditions(buckets, keys)

    def if_key(self, value: Any, otherwise: Any = None) -> Any:
        """Return ``value`` if the user gave an encryption key, else ``otherwise`` (nothing)."""
        return _either(HAS_ENCRYPTION_KEY, value, otherwise)

    def reserved(self, count: int) -> Any:
        """Return a function's reserved concurrency, unless the user declined it."""
        return _either(RESERVES, count, None)

    def _conditions(self, buckets: CfnParameter, keys: CfnParameter) -> None:
        for name, parameter in ((HAS_BUCKETS, buckets), (HAS_ENDPOINT_KEYS, keys)):
            self._given(name, Fn.join("", parameter.value_as_list))
        self._given(HAS_ENCRYPTION_KEY, self.key.value_as_string)
        self.has_email = self._given("HasNoticesEmail", self.email.value_as_string)
        wanted = Fn.condition_equals(self._reserve.value_as_string, "yes")
        CfnCondition(self._stack, RESERVES, expression=wanted)

    def _given(self, name: str, text: str) -> CfnCondition:
        is_given: ICfnConditionExpression = Fn.condition_not(Fn.condition_equals(text, ""))
        return CfnCondition(self._stack, name, expression=is_given)

    def _text(
        self, name: str, description: str, default: str = "", pattern: str | None = None
    ) -> CfnParameter:
        return CfnParameter(
            self._stack, name, default=default, description=description, allowed_pattern=pattern
        )

    def _list(self, name: str, description: str) -> CfnParameter:
        return CfnParameter(self._stack, name, type="CommaDelimitedList", default="", description=description)


def _either(condition: str, value: Any, otherwise: Any) -> dict[str, Any]:
    other = {"Ref": "AWS::NoValue"} if otherwise is None else otherwise
    return {"Fn::If": [condition, value, other]}


RUNTIME_FOLDER = Path(__file__).parent / "runtime"
_Code = lambda_.CfnFunction.CodeProperty


def cdk_asset(stack: Stack, runtime: Path = RUNTIME_FOLDER) -> _Code:
    """Build the package, which the CDK CLI uploads."""
    content = package_files(runtime, files("tzdata"))
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "peagle-guard.zip"
        path.write_bytes(zipped(content))
        asset = Asset(
            stack,
            "Runtime",
            path=str(path),
            asset_hash=digest(content),
            asset_hash_type=AssetHashType.CUSTOM,
            display_name="peagle-guard runtime",
        )
    return _Code(s3_bucket=asset.s3_bucket_name, s3_key=asset.s3_object_key)


def code_parameters(stack: Stack) -> _Code:
    """Add parameters for the location of the package, which `peagle-sm guard install` uploads."""
    bucket = CfnParameter(stack, "AssetBucket", description="The bucket that holds the Lambdas' package.")
    key = CfnParameter(stack, "AssetKey", description="The key of the Lambdas' package in that bucket.")
    return _Code(s3_bucket=bucket.value_as_string, s3_key=key.value_as_string)


PYTHON_RUNTIME = "python3.13"
LOG_DAYS = 90
_MEMORY_MB = 256
_RUNTIME_REASON = (
    "The tests run the package on Python 3.13, which AWS supports until mid 2029. "
    "The version is raised together with the tests."
)
_KEY_REASON = "The check uses the parameter's empty default, for which HasEncryptionKey omits it."


@dataclass(frozen=True)
class Job:
    """Settings of one function: name, handler, timeout, concurrency, retries, permissions.

    ``event_age_s`` is None if the caller waits for the response (also CloudFormation).
    """

    construct_id: str
    name: str
    handler: str
    does: str
    timeout_s: int
    statements: list[Any]
    alone: bool = False
    event_age_s: int | None = None
    retries: int = 1


def jobs() -> tuple[Job, ...]:
    """Return the four functions."""
    return (
        Job(
            "Sweeper",
            guard.SWEEPER,
            "peagle_guard.sweeper.handler",
            "Checks every endpoint and job of peagle-sm and decides whether to turn it off or on.",
            timeout_s=240,  # less than the time between two sweeps
            statements=policies.sweeper(),
            alone=True,
            event_age_s=60 * guard.SWEEP_MINUTES,  # a late sweep is useless: the next one is due
            retries=0,  # it fails after its work is done, so that the alarm sees a fault with one endpoint
        ),
        Job(
            "Switch",
            guard.SWITCH,
            "peagle_guard.switch.handler",
            "Turns an endpoint off or on through the stack that owns it.",
            timeout_s=120,
            statements=policies.switch(),
            alone=True,
            event_age_s=600,  # the lifetime schedule fires again after ten minutes
        ),
        Job(
            "ModelProvider",
            guard.MODEL_PROVIDER,
            "peagle_guard.model_provider.handler",
            "Custom::PeagleModel: sends CreateModel requests with fields that CloudFormation does not have.",
            timeout_s=120,
            statements=policies.model_provider(),
        ),
        Job(
            "LifetimeProvider",
            guard.LIFETIME_PROVIDER,
            "peagle_guard.lifetime_provider.handler",
            "Custom::PeagleLifetime: creates lifetime schedules; turns on endpoints without a stack.",
            timeout_s=120,
            statements=policies.lifetime_provider(),
        ),
    )


def make(
    stack: Stack, job: Job, inputs: Inputs, code: _Code, environment: dict[str, str], dead_letters_arn: str
) -> lambda_.CfnFunction:
    """Add one function with its role and its log to the stack."""
    log = logs.CfnLogGroup(
        stack,
        f"{job.construct_id}Log",
        log_group_name=policies.log_group(job.name),
        retention_in_days=LOG_DAYS,
    )
    log.add_property_override("KmsKeyId", inputs.if_key(policies.sub("${EncryptionKeyArn}")))
    log.apply_removal_policy(RemovalPolicy.DESTROY)
    lambda_role = role(stack, f"{job.construct_id}Role", f"{job.name}-", "lambda", job.does, job.statements)
    function = lambda_.CfnFunction(
        stack,
        job.construct_id,
        function_name=job.name,
        description=job.does,
        runtime=PYTHON_RUNTIME,
        architectures=["arm64"],
        handler=job.handler,
        code=code,
        role=lambda_role.attr_arn,
        memory_size=_MEMORY_MB,
        timeout=job.timeout_s,
        environment=lambda_.CfnFunction.EnvironmentProperty(variables=environment),
        dead_letter_config=lambda_.CfnFunction.DeadLetterConfigProperty(target_arn=dead_letters_arn),
    )
    if job.alone:
        function.add_property_override("ReservedConcurrentExecutions", inputs.reserved(1))
    # Otherwise Lambda creates the log group first, without retention.
    function.add_resource_dependency(log)
    acknowledge(
        stack,
        {
            job.construct_id: {"AwsSolutions::AwsSolutions-L1": _RUNTIME_REASON},
            f"{job.construct_id}Log": {"CloudFormation-Validate::F3031": _KEY_REASON},
        },
    )
    if job.event_age_s is not None:
        lambda_.CfnEventInvokeConfig(
            stack,
            f"{job.construct_id}Events",
            function_name=function.ref,
            qualifier="$LATEST",
            maximum_event_age_in_seconds=job.event_age_s,
            maximum_retry_attempts=job.retries,
        )
    return function


def role(
    stack: Stack, construct_id: str, prefix: str, service: str, does: str, statements: list[Any]
) -> iam.CfnRole:
    """Add a role whose name ends in the region, with one inline policy."""
    created = iam.CfnRole(
        stack,
        construct_id,
        role_name=Fn.sub(f"{prefix}${{AWS::Region}}"),
        description=does,
        assume_role_policy_document=policies.trust(service),
        policies=[
            iam.CfnRole.PolicyProperty(
                policy_name="least-privilege",
                policy_document=policies.document(*statements),
            )
        ],
    )
    acknowledge_wildcards(created, statements)
    return created
