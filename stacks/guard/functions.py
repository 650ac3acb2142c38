"""The guard's four Lambdas: each with a role, a log and a dead-letter queue of its own."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from aws_cdk import Fn, RemovalPolicy, Stack
from aws_cdk import aws_iam as iam
from aws_cdk import aws_lambda as lambda_
from aws_cdk import aws_logs as logs

from peagle_sm.core.guard import names
from stacks.guard import policies
from stacks.guard.asset import CodeLocation
from stacks.guard.inputs import Inputs

RUNTIME = "python3.13"
LOG_DAYS = 90
_MEMORY_MB = 256


@dataclass(frozen=True)
class Job:
    """One function: what it is called, what it runs, how long and how often at once it may run.

    ``event_age_s`` is None where a caller waits for the answer, or CloudFormation asks.
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
            names.SWEEPER,
            "peagle_guard.sweeper.handler",
            "Looks at every endpoint of peagle-sm and decides.",
            timeout_s=240,  # less than the time between two sweeps
            statements=policies.sweeper(),
            alone=True,
            event_age_s=60 * names.SWEEP_MINUTES,  # a late sweep is useless: the next one is due
            retries=0,  # it fails after its work is done, so that the alarm sees a fault with one endpoint
        ),
        Job(
            "Switch",
            names.SWITCH,
            "peagle_guard.switch.handler",
            "Turns an endpoint off or on through the stack that owns it.",
            timeout_s=120,
            statements=policies.switch(),
            alone=True,
            event_age_s=600,  # the lifetime's schedule comes again after ten minutes
        ),
        Job(
            "ModelProvider",
            names.MODEL_PROVIDER,
            "peagle_guard.model_provider.handler",
            "Custom::PeagleModel: sends the CreateModel request that CloudFormation has no words for.",
            timeout_s=120,
            statements=policies.model_provider(),
        ),
        Job(
            "LifetimeProvider",
            names.LIFETIME_PROVIDER,
            "peagle_guard.lifetime_provider.handler",
            "Custom::PeagleLifetime: arms the dead-man's switch; wakes endpoints that have no stack.",
            timeout_s=120,
            statements=policies.lifetime_provider(),
        ),
    )


@dataclass(frozen=True)
class Surroundings:
    """What every function is given."""

    code: CodeLocation
    environment: dict[str, str]
    dead_letters_arn: str


def make(stack: Stack, job: Job, around: Surroundings, inputs: Inputs) -> lambda_.CfnFunction:
    """Add one function with its role and its log to the stack."""
    log = logs.CfnLogGroup(
        stack,
        f"{job.construct_id}Log",
        log_group_name=policies.log_group(job.name),
        retention_in_days=LOG_DAYS,
    )
    log.add_property_override("KmsKeyId", inputs.if_key(policies.sub("${EncryptionKeyArn}")))
    log.apply_removal_policy(RemovalPolicy.DESTROY)
    taken = role(stack, f"{job.construct_id}Role", f"{job.name}-", "lambda", job.does, job.statements)
    function = lambda_.CfnFunction(
        stack,
        job.construct_id,
        function_name=job.name,
        description=job.does,
        runtime=RUNTIME,
        architectures=["arm64"],
        handler=job.handler,
        code=lambda_.CfnFunction.CodeProperty(s3_bucket=around.code.bucket, s3_key=around.code.key),
        role=taken.attr_arn,
        memory_size=_MEMORY_MB,
        timeout=job.timeout_s,
        environment=lambda_.CfnFunction.EnvironmentProperty(variables=around.environment),
        dead_letter_config=lambda_.CfnFunction.DeadLetterConfigProperty(target_arn=around.dead_letters_arn),
    )
    if job.alone:
        function.add_property_override("ReservedConcurrentExecutions", inputs.reserved(1))
    # Otherwise Lambda makes the group first, without an end to its lines.
    function.add_resource_dependency(log)
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
    return iam.CfnRole(
        stack,
        construct_id,
        role_name=Fn.sub(f"{prefix}${{AWS::Region}}"),
        description=does,
        assume_role_policy_document=policies.trust(service),
        policies=[
            iam.CfnRole.PolicyProperty(
                policy_name="least-privilege",
                policy_document={"Version": "2012-10-17", "Statement": statements},
            )
        ],
    )
