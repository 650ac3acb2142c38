"""Readers of the caller, the roles, and the endpoint's name.

The date of STS's answer shows the error of this machine's clock.
"""

from __future__ import annotations

from collections.abc import Iterator
from email.utils import parsedate_to_datetime
from typing import Any

from peagle_sm.aws.control import sagemaker as control
from peagle_sm.aws.session.session import Session
from peagle_sm.core.checks.base import Identity, Role, Taken
from peagle_sm.core.errors import CredentialsError, NotFound
from peagle_sm.core.plan.resolve import Draft
from peagle_sm.core.plan.tags_and_schedules import MANAGED_BY, MANAGER, STACK


def identity(session: Session, _: Draft | None) -> Identity:
    """Ask STS for the caller; the answer's Date header has AWS's time.

    Raises:
        ServiceFault: STS does not answer.
    """
    assumed = session.region if session.region_is_default else None
    before = session.wall_clock()
    try:
        answer = session.api("sts").get_caller_identity()
    except CredentialsError as error:
        return Identity(problem=error.message, next_step=error.next_step or "", assumed_region=assumed)
    after = session.wall_clock()
    sent = answer["ResponseMetadata"]["HTTPHeaders"].get("date")
    skew = None
    # The local SageMaker uses its own clock, which `local clock advance` moves on purpose.
    if sent and not session.is_local:
        # The header has whole seconds, from a time between the two readings.
        here = before + (after - before) / 2
        skew = (here - parsedate_to_datetime(sent)).total_seconds()
    return Identity(str(answer["Account"]), str(answer["Arn"]), skew_s=skew, assumed_region=assumed)


def taken(session: Session, draft: Draft) -> Taken:
    """Find out what already has the endpoint's name."""
    endpoint = control.describe_endpoint(session, draft.spec.name)
    if endpoint is None:
        return Taken()
    tags = control.tags_of(session, endpoint.arn) or {}
    return Taken(endpoint.status, tags.get(MANAGED_BY) == MANAGER, tags.get(STACK) or None)


def read_role(session: Session, arn: str) -> Role:
    """Read a role's trust policy and the names of its policies.

    Raises:
        CredentialsError: iam:GetRole or iam:ListAttachedRolePolicies is missing.
    """
    name = arn.rpartition("/")[2]
    try:
        role = session.api("iam").get_role(RoleName=name)["Role"]
    except NotFound:
        return Role(arn, exists=False)
    rows = session.api("iam").rows("list_attached_role_policies", "AttachedPolicies", RoleName=name)
    attached = tuple(row["PolicyName"] for row in rows)
    return Role(arn, True, tuple(_services(role["AssumeRolePolicyDocument"])), attached)


def _services(document: Any) -> Iterator[str]:
    statements = document.get("Statement", []) if isinstance(document, dict) else []
    for statement in statements if isinstance(statements, list) else [statements]:
        principal = statement.get("Principal", {})
        services = principal.get("Service", []) if isinstance(principal, dict) else []
        if statement.get("Effect") == "Allow":
            yield from [services] if isinstance(services, str) else services
