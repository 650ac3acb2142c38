"""Checks on the role that the containers run under."""

from __future__ import annotations

from collections.abc import Iterator

from peagle_sm.core.checks.base import Check, Note, check
from peagle_sm.core.guard.names import EXECUTION_ROLE_PREFIX, MODEL_PROVIDER, execution_role
from peagle_sm.core.plan.payloads import model_body
from peagle_sm.core.plan.resolve import Draft

# AWS::SageMaker::Model has no property for these, so the guard's function sends CreateModel and passes the
# role; a test of the stacks holds this against the CDK's own class.
NOT_IN_CLOUDFORMATION = frozenset({"AdditionalModelDataSources", "ContainerMetricsConfig"})


@check(
    "stack-role",
    why="Whoever creates a model must be allowed to pass its role on; the stack would fail and roll back.",
    source="this project: docs/how-to/stacks.md (permissions); IAM: iam:PassRole",
    remedy="Leave execution_role_arn out: the stack then uses the guard's shared role, which "
    "`peagle-sm guard install --model-bucket` lets read your buckets.",
)
def stack_role(draft: Draft) -> Iterator[Note]:
    """A role of the spec that nobody in the deploy of its stack may pass to SageMaker."""
    given = draft.spec.execution_role_arn
    if draft.context.stack is None or given is None or given != draft.role_arn:
        return
    name, shared = given.partition(":role/")[2], execution_role(draft.region)
    if NOT_IN_CLOUDFORMATION & model_body(draft)["PrimaryContainer"].keys():
        if name != shared:
            yield Note(
                "error",
                f"execution_role_arn: found {given}; allowed in this stack: the guard's own role {shared}, "
                f"since its function {MODEL_PROVIDER} creates the model and may pass no other",
            )
    elif not name.startswith(EXECUTION_ROLE_PREFIX):
        yield Note(
            "warning",
            f"execution_role_arn: found {given}; the execution policy that this project ships for "
            f"`cdk bootstrap` lets CloudFormation pass roles named {EXECUTION_ROLE_PREFIX}* alone",
            "Leave execution_role_arn out, or let CloudFormation's execution role pass this role to "
            "sagemaker.amazonaws.com.",
        )


CHECKS: tuple[Check, ...] = (stack_role,)
