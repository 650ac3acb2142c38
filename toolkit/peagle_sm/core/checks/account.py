"""Checks on the account: caller, execution role, scheduler role, guard.

`stack_role` looks at the spec alone; the other checks judge facts that were read from AWS.
"""

from __future__ import annotations

from collections.abc import Iterator

from peagle_sm.core.checks.base import (
    Check,
    Fix,
    Guard,
    Identity,
    Note,
    Rights,
    Role,
    Taken,
    check,
    preflight_check,
)
from peagle_sm.core.guard import EXECUTION_ROLE_PREFIX, MODEL_PROVIDER, execution_role
from peagle_sm.core.plan.payloads import model_body
from peagle_sm.core.plan.resolve import Draft
from peagle_sm.core.words import Severity

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


SPEC_ROLE_CHECKS: tuple[Check, ...] = (stack_role,)


_SKEW_WARNING_S = 60.0
_SKEW_ERROR_S = 300.0
_SIMULATE = "https://docs.aws.amazon.com/IAM/latest/APIReference/API_SimulatePrincipalPolicy.html"
_ROLES = "https://docs.aws.amazon.com/sagemaker/latest/dg/sagemaker-roles.html"
_BROAD = ("AdministratorAccess", "PowerUserAccess", "AmazonSageMakerFullAccess", "IAMFullAccess")
_INSTALL = Fix("install the guard, which makes both roles", command=("guard", "install"))


@preflight_check(
    "credentials",
    reads="identity",
    why="Without credentials that AWS accepts nothing can be looked at or created.",
    source="AWS STS: GetCallerIdentity",
    remedy="Run `aws sso login` or `aws configure`, or give --profile.",
    url="https://docs.aws.amazon.com/STS/latest/APIReference/API_GetCallerIdentity.html",
    needs_spec=False,
)
def credentials(fact: Identity, _: Draft | None) -> Iterator[Note]:
    """No credentials, expired ones, or ones that the region does not accept."""
    if fact.problem is not None:
        yield Note("error", fact.problem, fact.next_step)


@preflight_check(
    "account",
    reads="identity",
    why="The roles of the spec live in one account; CreateModel refuses those of another.",
    source="SageMaker API: CreateModel.ExecutionRoleArn; IAM: iam:PassRole works within one account",
    remedy="Give --profile of the account that the roles are in, or change the roles.",
    url="https://docs.aws.amazon.com/sagemaker/latest/APIReference/API_CreateModel.html",
)
def account(fact: Identity, draft: Draft | None) -> Iterator[Note]:
    """Roles of the spec that are not in the caller's account."""
    if draft is None or fact.account is None or draft.context.local:
        return
    given = {
        "execution_role_arn": draft.spec.execution_role_arn,
        "scheduler_role_arn": draft.spec.scheduler_role_arn,
    }
    for field, arn in given.items():
        if arn is not None and (other := arn.split(":")[4]) != fact.account:
            yield Note("error", f"{field}: found account {other}; the credentials are of {fact.account}")


@preflight_check(
    "clock-skew",
    reads="identity",
    why="AWS refuses requests whose signature is minutes off, and the lifetime limit would end too early or "
    "too late.",
    source="AWS Developer Tools Blog: clock-skew correction (about 15 minutes; that some services take 5 at "
    "most is assumed)",
    remedy="Let this machine's clock follow a time server (timedatectl set-ntp true).",
    url="https://aws.amazon.com/blogs/developer/clock-skew-correction/",
    needs_spec=False,
)
def clock_skew(fact: Identity, _: Draft | None) -> Iterator[Note]:
    """A clock that differs from AWS's."""
    if fact.skew_s is None or abs(fact.skew_s) < _SKEW_WARNING_S:
        return
    severity: Severity = "error" if abs(fact.skew_s) >= _SKEW_ERROR_S else "warning"
    side = "ahead of" if fact.skew_s > 0 else "behind"
    yield Note(severity, f"this machine's clock is {abs(fact.skew_s):.0f} s {side} AWS's")


def _denied(fact: Rights, who: str, purpose: str) -> Iterator[Note]:
    if fact.denied:
        yield Note("error", f"{who} {fact.principal} may not {', '.join(fact.denied)}: {purpose}")


@preflight_check(
    "caller-rights",
    reads="caller_rights",
    why="A deploy that is refused half way has to be cleaned up, by the same caller.",
    source="IAM: SimulatePrincipalPolicy",
    remedy="Ask for the actions that are named; stacks/guard/execution-policies has narrow policies.",
    url=_SIMULATE,
)
def caller_rights(fact: Rights, _: Draft | None) -> Iterator[Note]:
    """Calls of a deploy that the caller's policies deny, iam:PassRole for both roles among them."""
    yield from _denied(fact, "the caller", "a deploy calls it")


@preflight_check(
    "role-trust",
    reads="execution_role",
    why="CreateModel refuses a role that SageMaker cannot assume.",
    source="SageMaker developer guide: execution roles (trust policy for sagemaker.amazonaws.com)",
    remedy="Let sagemaker.amazonaws.com assume it, or use the guard's own role (`peagle-sm guard install`).",
    url=_ROLES,
    fix=_INSTALL,
)
def role_trust(fact: Role, _: Draft | None) -> Iterator[Note]:
    """An execution role that is not there, or that SageMaker may not assume."""
    yield from _trust(fact, "execution_role_arn", "sagemaker.amazonaws.com")


def _trust(fact: Role, field: str, service: str) -> Iterator[Note]:
    if not fact.exists:
        yield Note("error", f"{field}: there is no role {fact.arn}")
    elif service not in fact.trusts:
        found = ", ".join(fact.trusts) or "nobody"
        yield Note("error", f"{field}: {service} may not assume {fact.arn}; it trusts {found}")


@preflight_check(
    "role-rights",
    reads="execution_rights",
    why="The endpoint fails minutes after its instance started: it cannot pull its image or read weights.",
    source="aws/deep-learning-containers issue 759 (BatchGetImage); SageMaker developer guide: roles",
    remedy="Give the role these actions, or use the guard's own: "
    "`peagle-sm guard install --model-bucket <bucket>`.",
    url="https://github.com/aws/deep-learning-containers/issues/759",
    fix=_INSTALL,
)
def role_rights(fact: Rights, _: Draft | None) -> Iterator[Note]:
    """What the execution role needs for image, weights, keys and logs, and is denied."""
    yield from _denied(fact, "the role", "the endpoint needs it")


@preflight_check(
    "role-too-broad",
    reads="execution_role",
    why="Whatever runs in the container without network isolation can do all that its role may.",
    source="SageMaker developer guide: security best practices (least privilege)",
    remedy="Use the guard's own role, which reads models and writes logs and no more.",
    severity="warning",
    url=_ROLES,
)
def role_too_broad(fact: Role, _: Draft | None) -> Iterator[Note]:
    """An execution role with a policy that allows nearly everything."""
    broad = [name for name in fact.policies if name in _BROAD or name.endswith("FullAccess")]
    if broad:
        yield Note("warning", f"execution_role_arn: {fact.arn} carries {', '.join(broad)}")


@preflight_check(
    "scheduler-role-trust",
    reads="scheduler_role",
    why="CreateSchedule refuses it, and without the schedule nothing ends a forgotten endpoint.",
    source="EventBridge Scheduler: execution role (trust policy for scheduler.amazonaws.com)",
    remedy="Let scheduler.amazonaws.com assume it, or use the guard's own role.",
    url="https://docs.aws.amazon.com/scheduler/latest/UserGuide/setting-up.html",
    fix=_INSTALL,
)
def scheduler_role_trust(fact: Role, _: Draft | None) -> Iterator[Note]:
    """A scheduler role that is not there, or that the scheduler may not assume."""
    yield from _trust(fact, "scheduler_role_arn", "scheduler.amazonaws.com")


@preflight_check(
    "scheduler-role-rights",
    reads="scheduler_rights",
    why="The schedule fires at the end of the lifetime and deletes nothing; the endpoint is billed on.",
    source="EventBridge Scheduler: universal targets call with the schedule's role",
    remedy="Allow it sagemaker:DeleteEndpoint on this endpoint.",
    url="https://docs.aws.amazon.com/scheduler/latest/UserGuide/managing-targets-universal.html",
    fix=_INSTALL,
)
def scheduler_role_rights(fact: Rights, _: Draft | None) -> Iterator[Note]:
    """A scheduler role that may not delete the endpoint."""
    yield from _denied(fact, "the role", "the lifetime limit calls it")


@preflight_check(
    "guard-installed",
    reads="guard",
    why="Without it nobody turns an idle endpoint off before the end of its lifetime.",
    source="this project: docs/explanation/guard.md",
    remedy="Run `peagle-sm guard install`; it costs cents a month and shows them first.",
    needs_spec=False,
    fix=Fix("install the guard", command=("guard", "install")),
)
def guard_installed(fact: Guard, _: Draft | None) -> Iterator[Note]:
    """No guard in the region, or one whose stack does not work."""
    if not fact.works:
        found = "is not installed" if fact.status is None else f"does not work: its stack is {fact.status}"
        yield Note("error", f"the guard {found}")


@preflight_check(
    "guard-current",
    reads="guard",
    why="An old guard does not know the tags and rules of a newer peagle-sm.",
    source="this project: docs/explanation/guard.md",
    remedy="Run `peagle-sm guard install` again.",
    severity="warning",
    needs_spec=False,
    fix=Fix("bring the guard up to date", command=("guard", "install")),
)
def guard_current(fact: Guard, _: Draft | None) -> Iterator[Note]:
    """A guard of another version than this peagle-sm."""
    if fact.works and fact.installed and fact.shipped and fact.installed != fact.shipped:
        yield Note("warning", f"the guard is {fact.installed}; this peagle-sm brings {fact.shipped}")


@preflight_check(
    "name-taken",
    reads="taken",
    why="CreateEndpoint refuses a name that exists, and an endpoint of somebody else must not be touched.",
    source="SageMaker API: CreateEndpoint.EndpointName is unique in account and region",
    remedy="Change `name`, or delete the other endpoint.",
    url="https://docs.aws.amazon.com/sagemaker/latest/APIReference/API_CreateEndpoint.html",
)
def name_taken(fact: Taken, draft: Draft | None) -> Iterator[Note]:
    """An endpoint of that name that this project did not make, or that a stack owns."""
    if draft is None or fact.status is None:
        return
    if not fact.ours:
        yield Note("error", f"name: {draft.spec.name} exists ({fact.status}), and peagle-sm did not make it")
    elif fact.stack is not None and draft.context.stack is None:
        yield Note("error", f"name: {draft.spec.name} belongs to the stack {fact.stack}")


ACCOUNT_CHECKS: tuple[Check, ...] = (
    credentials,
    account,
    clock_skew,
    caller_rights,
    role_trust,
    role_rights,
    role_too_broad,
    scheduler_role_trust,
    scheduler_role_rights,
    guard_installed,
    guard_current,
    name_taken,
)
