"""A spec and a place become a plan."""

from __future__ import annotations

from peagle_sm.aws.session import Session
from peagle_sm.core.errors import CredentialsError
from peagle_sm.core.plan import make_plan
from peagle_sm.core.records import Context, Plan
from peagle_sm.core.spec import EndpointSpec


def plan_for(spec: EndpointSpec, session: Session) -> Plan:
    """Make the plan of ``spec`` for the account and region (or local server) of ``session``.

    Calls STS, and for the local server its status page; creates nothing.

    Raises:
        CredentialsError: no credentials, or the spec asks for another region than the session's.
        SpecError: the spec names something that the catalogue does not have.
    """
    _same_region(spec, session)
    local = session.local
    context = Context(
        account=session.account(),
        region=session.region,
        now=session.now(),
        image_uris=dict(local.image_uris) if local else {},
        artifacts=dict(local.artifacts) if local else {},
        local=local is not None,
        role_arn=local.role_arn or None if local else None,
        scheduler_role_arn=local.scheduler_role_arn or None if local else None,
    )
    return make_plan(spec, context)


def _same_region(spec: EndpointSpec, session: Session) -> None:
    wanted = spec.placement.region
    # The local server stands for whatever region the spec names.
    if wanted is None or session.is_local or wanted == session.region:
        return
    raise CredentialsError(
        f"placement.region: the spec asks for {wanted}, but this session is in {session.region}.",
        next_step=f"Give --region {wanted}, or change placement.region.",
        details={"wanted": wanted, "found": session.region},
    )
