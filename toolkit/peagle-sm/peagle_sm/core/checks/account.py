"""Checks of the account: caller, execution role, scheduler role, guard.

`stack_role` needs only the spec; the other checks evaluate facts that were read from AWS.
"""

from __future__ import annotations

from peagle_sm.core.checks.base import Findings, Guard, Identity, Rights, Role, Taken, check
from peagle_sm.core.guard import EXECUTION_ROLE_PREFIX, MODEL_PROVIDER, execution_role
from peagle_sm.core.plan.resolve import PLACEHOLDER_ACCOUNT, Draft
from peagle_sm.core.resources.model import model_body
from peagle_sm.core.words import Finding, Severity

# AWS::SageMaker::Model has no property for these, so the guard's function sends CreateModel and passes the
# role; a test of the stacks holds this against the CDK's own class.
NOT_IN_CLOUDFORMATION = frozenset({"AdditionalModelDataSources", "ContainerMetricsConfig"})


@check(
    "stack-role",
    why="The creator of a model needs iam:PassRole for its role; without it the stack fails and rolls back.",
    source="this project: `peagle-sm help stacks` (permissions); IAM: iam:PassRole",
    remedy="Leave execution_role_arn out: the stack then uses the guard's shared role, which "
    "`peagle-sm guard install --model-bucket` lets read your buckets.",
)
def stack_role(draft: Draft) -> Findings:
    """A role in the spec that the stack's deploy may not pass to SageMaker."""
    given = draft.spec.execution_role_arn
    if draft.context.stack is None or given is None or given != draft.role_arn:
        return
    name, shared = given.partition(":role/")[2], execution_role(draft.region)
    if NOT_IN_CLOUDFORMATION & model_body(draft)["PrimaryContainer"].keys():
        if name != shared:
            yield (
                f"execution_role_arn: found {given}; allowed in this stack: the guard's role {shared}, "
                f"since its function {MODEL_PROVIDER} creates the model and may pass only this role"
            )
    elif not name.startswith(EXECUTION_ROLE_PREFIX):
        yield Finding(
            "warning",
            f"execution_role_arn: found {given}; this project's execution policy for `cdk bootstrap` "
            f"lets CloudFormation pass only roles named {EXECUTION_ROLE_PREFIX}*",
            "Leave execution_role_arn out, or let CloudFormation's execution role pass this role to "
            "sagemaker.amazonaws.com.",
        )


_SKEW_WARNING_S = 60.0
_SKEW_ERROR_S = 300.0
_SIMULATE = "https://docs.aws.amazon.com/IAM/latest/APIReference/API_SimulatePrincipalPolicy.html"
_ROLES = "https://docs.aws.amazon.com/sagemaker/latest/dg/sagemaker-roles.html"
_BROAD = ("AdministratorAccess", "PowerUserAccess", "AmazonSageMakerFullAccess", "IAMFullAccess")


@check(
    "credentials",
    reads="identity",
    why="Without valid AWS credentials nothing can be read or created.",
    source="AWS STS: GetCallerIdentity",
    remedy="Run `aws sso login` or `aws configure`, or give --profile.",
    url="https://docs.aws.amazon.com/STS/latest/APIReference/API_GetCallerIdentity.html",
    needs_spec=False,
)
def credentials(fact: Identity, _: Draft | None) -> Findings:
    """Missing or expired credentials, or credentials that the region refuses."""
    if fact.problem is not None:
        yield Finding("error", fact.problem, fact.next_step)


@check(
    "region",
    reads="identity",
    why="A deploy needs a region by choice; only plans and checks assume one.",
    source="this project: the region that `peagle-sm plan` assumes",
    remedy="Give --region, placement.region in the spec, AWS_REGION, or a region in the profile.",
    severity="warning",
    needs_spec=False,
)
def region(fact: Identity, _: Draft | None) -> Findings:
    """No AWS region is set."""
    if fact.assumed_region is not None:
        yield f"No AWS region is set; plan and doctor assume {fact.assumed_region}"


@check(
    "account",
    why="CreateModel and CreateSchedule refuse roles of another account.",
    source="SageMaker API: CreateModel.ExecutionRoleArn; IAM: iam:PassRole works within one account",
    remedy="Leave both role ARNs out, which uses the guard's roles; or give roles of the plan's account.",
    url="https://docs.aws.amazon.com/sagemaker/latest/APIReference/API_CreateModel.html",
)
def account(draft: Draft) -> Findings:
    """Roles in the spec that are in different accounts, or not in the account of the plan."""
    if draft.context.local:
        return
    fields = ("execution_role_arn", "scheduler_role_arn")
    arns = {field: getattr(draft.spec, field) for field in fields}
    accounts = {field: arn.split(":")[4] for field, arn in arns.items() if arn is not None}
    if len(set(accounts.values())) > 1:
        account_ids = " and ".join(accounts.values())
        yield f"{' and '.join(fields)}: found accounts {account_ids}; allowed: one account"
    elif draft.context.account != PLACEHOLDER_ACCOUNT:
        for field, account_id in accounts.items():
            if account_id != draft.context.account:
                yield f"{field}: found account {account_id}; the plan is for account {draft.context.account}"


@check(
    "clock-skew",
    reads="identity",
    why="AWS refuses requests with a wrong signature time, and the lifetime schedule would fire too early or "
    "too late.",
    source="AWS Developer Tools Blog: clock-skew correction (about 15 minutes; assumed: some services allow "
    "only 5)",
    remedy="Synchronize this machine's clock with a time server (timedatectl set-ntp true).",
    url="https://aws.amazon.com/blogs/developer/clock-skew-correction/",
    needs_spec=False,
)
def clock_skew(fact: Identity, _: Draft | None) -> Findings:
    """A local clock that differs from AWS's."""
    if fact.skew_s is None or abs(fact.skew_s) < _SKEW_WARNING_S:
        return
    severity: Severity = "error" if abs(fact.skew_s) >= _SKEW_ERROR_S else "warning"
    side = "ahead of" if fact.skew_s > 0 else "behind"
    yield Finding(severity, f"this machine's clock is {abs(fact.skew_s):.0f} s {side} AWS's")


def _denied(fact: Rights, who: str, purpose: str) -> Findings:
    subject = f"{who} {fact.principal}"
    if fact.denied:
        yield f"{subject} may not {', '.join(fact.denied)}: {purpose}"
    if fact.by_organization:
        yield Finding(
            "warning",
            f"a service control policy denies {subject} {', '.join(fact.by_organization)}",
            "Ask your organization's administrators; the simulation may lack a condition of theirs.",
        )
    if fact.undecided:
        yield Finding(
            "warning",
            f"{subject} may not be allowed {', '.join(fact.undecided)}: "
            "that depends on the conditions in parentheses, which cannot be known here",
            "Check these conditions, or try: a refused deploy is cleaned up.",
        )
    if fact.denied_later:
        yield Finding(
            "warning",
            f"{subject} may not {', '.join(fact.denied_later)}: update, pause, logs or delete need it",
        )


@check(
    "caller-rights",
    reads="caller_rights",
    why="A deploy that AWS refuses half way must be cleaned up, with the same permissions.",
    source="IAM: SimulatePrincipalPolicy",
    remedy="Ask for the actions in the message; stacks/guard/execution-policies has minimal policies.",
    url=_SIMULATE,
)
def caller_rights(fact: Rights, _: Draft) -> Findings:
    """Calls of a deploy that the caller's policies deny, including iam:PassRole."""
    yield from _denied(fact, "the caller", "a deploy needs it")


@check(
    "role-trust",
    reads="execution_role",
    why="CreateModel refuses a role that SageMaker cannot assume.",
    source="SageMaker developer guide: execution roles (trust policy for sagemaker.amazonaws.com)",
    remedy="Let sagemaker.amazonaws.com assume it, or use the guard's role (`peagle-sm guard install`).",
    url=_ROLES,
)
def role_trust(fact: Role, _: Draft) -> Findings:
    """An execution role that does not exist, or that SageMaker may not assume."""
    yield from _trust(fact, "execution_role_arn", "sagemaker.amazonaws.com")


def _trust(fact: Role, field: str, service: str) -> Findings:
    if not fact.exists:
        yield f"{field}: the role {fact.arn} does not exist"
    elif service not in fact.trusts:
        trusted = ", ".join(fact.trusts) or "nobody"
        yield f"{field}: {service} may not assume {fact.arn}; it trusts {trusted}"


@check(
    "role-rights",
    reads="execution_rights",
    why="The endpoint fails minutes after its start, since it cannot pull its image or read its weights.",
    source="aws/deep-learning-containers issue 759 (BatchGetImage); SageMaker developer guide: roles",
    remedy="Allow the role these actions, or use the guard's role: "
    "`peagle-sm guard install --model-bucket <bucket>`.",
    url="https://github.com/aws/deep-learning-containers/issues/759",
)
def role_rights(fact: Rights, _: Draft) -> Findings:
    """Denied actions that the execution role needs for image, weights, keys, logs."""
    yield from _denied(fact, "the role", "the endpoint needs it")


@check(
    "role-too-broad",
    reads="execution_role",
    why="Without network isolation, code in the container can use all permissions of its role.",
    source="SageMaker developer guide: security best practices (least privilege)",
    remedy="Use the guard's role, which may only read models and write logs.",
    severity="warning",
    url=_ROLES,
)
def role_too_broad(fact: Role, _: Draft) -> Findings:
    """An execution role with a policy that allows nearly everything."""
    broad = [name for name in fact.policies if name in _BROAD or name.endswith("FullAccess")]
    if broad:
        yield f"execution_role_arn: {fact.arn} has the broad policy {', '.join(broad)}"


@check(
    "scheduler-role-trust",
    reads="scheduler_role",
    why="CreateSchedule refuses the role, and without the schedule nothing deletes a forgotten endpoint.",
    source="EventBridge Scheduler: execution role (trust policy for scheduler.amazonaws.com)",
    remedy="Let scheduler.amazonaws.com assume it, or use the guard's role.",
    url="https://docs.aws.amazon.com/scheduler/latest/UserGuide/setting-up.html",
)
def scheduler_role_trust(fact: Role, _: Draft) -> Findings:
    """A scheduler role that does not exist, or that the scheduler may not assume."""
    yield from _trust(fact, "scheduler_role_arn", "scheduler.amazonaws.com")


@check(
    "scheduler-role-rights",
    reads="scheduler_rights",
    why="The schedule fires at the end of the lifetime but cannot delete; the endpoint is still billed.",
    source="EventBridge Scheduler: universal targets call with the schedule's role",
    remedy="Allow the role sagemaker:DeleteEndpoint on this endpoint.",
    url="https://docs.aws.amazon.com/scheduler/latest/UserGuide/managing-targets-universal.html",
)
def scheduler_role_rights(fact: Rights, _: Draft) -> Findings:
    """A scheduler role that may not delete the endpoint."""
    yield from _denied(fact, "the role", "the lifetime schedule needs it")


@check(
    "guard-installed",
    reads="guard",
    why="Without the guard nothing turns an idle endpoint off before the end of its lifetime.",
    source="this project: `peagle-sm help explanation/guard`",
    remedy="Run `peagle-sm guard install`; it costs cents a month, and shows the price first.",
    needs_spec=False,
)
def guard_installed(fact: Guard, _: Draft | None) -> Findings:
    """No guard in the region, or one whose stack does not work."""
    if not fact.works:
        state = "is not installed" if fact.status is None else f"does not work: its stack is {fact.status}"
        yield f"the guard {state}"


@check(
    "guard-current",
    reads="guard",
    why="An old guard does not know the tags and rules of a newer peagle-sm.",
    source="this project: `peagle-sm help explanation/guard`",
    remedy="Run `peagle-sm guard install` again.",
    severity="warning",
    needs_spec=False,
)
def guard_current(fact: Guard, _: Draft | None) -> Findings:
    """A guard installed by a different version of peagle-sm."""
    if fact.works and fact.installed and fact.shipped and fact.installed != fact.shipped:
        yield f"the guard has version {fact.installed}; this peagle-sm has {fact.shipped}"


@check(
    "name-taken",
    reads="taken",
    why="CreateEndpoint refuses an existing name, and peagle-sm must not change others' endpoints.",
    source="SageMaker API: CreateEndpoint.EndpointName is unique in account and region",
    remedy="Change `name`, or delete the other endpoint.",
    url="https://docs.aws.amazon.com/sagemaker/latest/APIReference/API_CreateEndpoint.html",
)
def name_taken(fact: Taken, draft: Draft) -> Findings:
    """An endpoint of that name that peagle-sm did not create, or that a stack owns."""
    if fact.status is None:
        return
    if not fact.ours:
        yield f"name: {draft.spec.name} exists ({fact.status}), and peagle-sm did not create it"
    elif fact.stack is not None and draft.context.stack is None:
        yield f"name: {draft.spec.name} belongs to the stack {fact.stack}"
