"""Make a plan from a spec and a session: plan_for()."""

from __future__ import annotations

from collections.abc import Collection

from peagle_sm.aws.session.session import Session
from peagle_sm.core.errors import CredentialsError, PlanRefused
from peagle_sm.core.guard import endpoint_stack, execution_role, scheduler_role
from peagle_sm.core.plan.payloads import partition
from peagle_sm.core.plan.plan import Plan, make_plan
from peagle_sm.core.plan.records import Context, Finding
from peagle_sm.core.spec.endpoint_spec import EndpointSpec


def plan_for(
    spec: EndpointSpec, session: Session, *, stack: bool = False, account_from_spec: bool = False
) -> Plan:
    """Make the plan of ``spec`` for the account and region (or local server) of ``session``.

    ``stack`` plans for `cdk deploy` instead of a deploy by this program: the guard's roles stand in for
    roles that the spec does not name. ``account_from_spec`` takes the account from the spec's roles where
    it names one, so that a look at a complete spec needs no credentials.

    Otherwise calls STS, and for the local server its status page; creates nothing.

    Raises:
        CredentialsError: no credentials, or the spec asks for another region than the session's.
        SpecError: the spec names something that the catalogue does not have.
    """
    _same_region(spec, session)
    local = session.local
    account = (account_from_spec and not local and _account_of(spec)) or session.account()
    roles = (local.role_arn, local.scheduler_role_arn) if local else (None, None)
    if stack:
        roles = _guards_roles(account, session.region)
    context = Context(
        account=account,
        region=session.region,
        now=session.now(),
        image_uris=dict(local.image_uris) if local else {},
        artifacts=dict(local.artifacts) if local else {},
        local=local is not None,
        role_arn=roles[0] or None,
        scheduler_role_arn=roles[1] or None,
        stack=endpoint_stack(spec.name) if stack else None,
    )
    return make_plan(spec, context)


def errors_of(plan: Plan, skip: Collection[str] = ()) -> list[Finding]:
    """Return the findings that refuse a plan; without its facts nothing can be skipped."""
    return [
        one
        for one in plan.findings
        if one.severity == "error" and (one.check not in skip or not plan.requests)
    ]


def refuse_errors(plan: Plan, skip: Collection[str] = ()) -> None:
    """Let nothing be made of a plan that has errors; ``skip`` are ids of checks whose errors do not count.

    Raises:
        PlanRefused: it has errors; ``details["findings"]`` has all that there is to say about it.
    """
    errors = errors_of(plan, skip)
    if not errors:
        return
    raise PlanRefused(
        "The plan is refused: " + " ".join(one.message for one in errors),
        next_step=" ".join(dict.fromkeys(one.next_step for one in errors if one.next_step)) or None,
        details={
            "findings": [
                {
                    "check": one.check,
                    "severity": one.severity,
                    "message": one.message,
                    "next_step": one.next_step,
                }
                for one in plan.findings
            ]
        },
    )


def _account_of(spec: EndpointSpec) -> str | None:
    role = spec.execution_role_arn or spec.scheduler_role_arn
    return role.split(":")[4] if role else None


def _guards_roles(account: str, region: str) -> tuple[str, str]:
    prefix = f"arn:{partition(region)}:iam::{account}:role"
    return f"{prefix}/{execution_role(region)}", f"{prefix}/{scheduler_role(region)}"


def _same_region(spec: EndpointSpec, session: Session) -> None:
    wanted = spec.placement.region
    # The local server stands for whatever region the spec names.
    if wanted is None or session.is_local or wanted == session.region:
        return
    raise CredentialsError(
        f"placement.region: the spec asks for {wanted}, but this session is in {session.region}.",
        next_step=f"Give --region {wanted} (in Python: region={wanted!r}), or change placement.region.",
        details={"wanted": wanted, "found": session.region},
    )
