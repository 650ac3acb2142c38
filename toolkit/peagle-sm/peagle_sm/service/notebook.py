"""Public make_session(), deploy(), connect(), plan() and doctor() of the package."""

from __future__ import annotations

import os
import sys
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

from peagle_sm.aws.session.local_server import session_for
from peagle_sm.aws.session.session import LocalTarget, Session
from peagle_sm.aws.session.session import make_session as make_aws_session
from peagle_sm.core.errors import SpecError
from peagle_sm.core.plan.resolve import DEFAULT_REGION
from peagle_sm.core.planning import Plan
from peagle_sm.core.spec.endpoint_spec import EndpointSpec
from peagle_sm.service.lifecycle.deployment import deploy as deploy_with
from peagle_sm.service.lifecycle.endpoint import Endpoint
from peagle_sm.service.lifecycle.endpoint import connect as connect_with
from peagle_sm.service.preflight import TIMEOUT_S, Checkup, planned, preflight, require_preflight
from peagle_sm.service.progress import Lines, Progress, agreed
from peagle_sm.service.spec_to_plan import load_spec, plan_for

SpecLike = EndpointSpec | Path | str | Mapping[str, Any]
Local = bool | int | LocalTarget


def deploy(
    spec: SpecLike,
    *,
    session: Session | None = None,
    local: Local | None = None,
    profile: str | None = None,
    region: str | None = None,
    yes: bool = False,
    unguarded: bool = False,
    progress: Progress | None = None,
    skip_checks: Collection[str] = (),
) -> Endpoint:
    """Deploy a spec and return the endpoint.

    The spec is an EndpointSpec, the path of a YAML file, or a mapping.

    Shows the plan and a confirmation prompt, unless ``yes``. Prints progress on stderr, unless ``progress``
    receives it. Refuses if no guard is installed, unless ``unguarded``, and if
    the preflight finds an error, unless ``skip_checks`` has the check's id.

    Calls go to the given ``session`` of `make_session`, or to a session made from the other arguments:
    ``local`` is True for the local SageMaker, its port if several run, a LocalTarget, or False for AWS; by
    default the environment decides. Errors as in `peagle_sm.service.deploy`.
    """
    chosen = as_spec(spec)
    place = session or session_at(profile, region, local, chosen.placement.region)
    follow = progress or Lines()
    return deploy_with(
        chosen,
        session=place,
        confirm=None if yes else _ask,
        progress=follow,
        unguarded=unguarded,
        preflight=lambda plan: require_preflight(place, plan, skip=skip_checks),
        skip_checks=skip_checks,
    )


def connect(
    name: str,
    *,
    session: Session | None = None,
    local: Local | None = None,
    profile: str | None = None,
    region: str | None = None,
) -> Endpoint:
    """Return an existing endpoint.

    Raises:
        NotFound: no endpoint has that name.
    """
    return connect_with(name, session=session or session_at(profile, region, local))


def plan(
    spec: SpecLike,
    *,
    session: Session | None = None,
    local: Local | None = None,
    profile: str | None = None,
    region: str | None = None,
) -> Plan:
    """Return what `deploy` would do, with price and findings; creates nothing.

    It needs no account: without a region or credentials it takes a default and a placeholder, which
    ``Plan.context.assumed`` names.
    """
    chosen = as_spec(spec)
    place = session or session_at(profile, region, local, chosen.placement.region, DEFAULT_REGION)
    return plan_for(chosen, place, without_credentials=True)


def doctor(
    spec: SpecLike | None = None,
    *,
    session: Session | None = None,
    local: Local | None = None,
    profile: str | None = None,
    region: str | None = None,
    skip_checks: Collection[str] = (),
    timeout_s: float = TIMEOUT_S,
) -> Checkup:
    """Check account, spec and this machine before a deploy, as `peagle-sm doctor`.

    ``timeout_s`` limits all look-ups together; a slower one has the status unknown. Failed checks raise no
    error: see ``Checkup.ok``. Without a region the checks have `plan`'s default, and a warning says so.

    Raises:
        SpecError: the spec is invalid, or ``skip_checks`` has an unknown id.
        CredentialsError: the spec has another region.
    """
    from peagle_sm.service.preflight import read_machine

    chosen = None if spec is None else as_spec(spec)
    in_spec = chosen.placement.region if chosen else None
    place = session or session_at(profile, region, local, in_spec, DEFAULT_REGION)
    more = {"machine": read_machine}
    results = preflight(place, planned(place, chosen), skip=skip_checks, timeout_s=timeout_s, more=more)
    return Checkup(results)


def as_spec(spec: SpecLike) -> EndpointSpec:
    """Return the spec, read from its file or mapping if needed.

    Raises:
        SpecError: it is not a spec.
    """
    if isinstance(spec, EndpointSpec):
        return spec
    if isinstance(spec, str | Path):
        return load_spec(Path(spec))
    if isinstance(spec, Mapping):
        return EndpointSpec(**{str(key): value for key, value in spec.items()})
    raise SpecError(
        f"spec: found {type(spec).__name__}; allowed: an EndpointSpec, a path to a YAML file, or a mapping.",
        next_step="Write one with `peagle-sm init`, and give its path.",
    )


def make_session(
    profile: str | None = None,
    region: str | None = None,
    local: Local | None = None,
    *,
    boto3_session: Any = None,
) -> Session:
    """Create a session for an AWS account and region, or for the local SageMaker.

    ``local`` is True for the running local SageMaker (`peagle-sm local up`), its port if several run
    (else PEAGLE_SM_LOCAL_PORT), a LocalTarget, or False for AWS. By default PEAGLE_SM_LOCAL and
    PEAGLE_SM_LOCAL_PORT decide, as on the command line. On AWS the region comes from ``region``, else
    AWS_REGION, AWS_DEFAULT_REGION, the spec or the profile. This calls nothing and reads no credentials.
    ``boto3_session`` is used in place of a profile; its region counts unless ``region`` is given.

    Raises:
        CredentialsError: unknown profile, no region, or an unknown region.
        SpecError: ``boto3_session`` is given with ``profile`` or ``local``; or PEAGLE_SM_LOCAL or
            PEAGLE_SM_LOCAL_PORT has a value that is not allowed.
        NotFound: no local SageMaker runs, or several.
    """
    if boto3_session is None:
        return session_at(profile, region, local)
    if profile is not None or local not in (None, False):
        beside = "local" if profile is None else "profile"
        raise SpecError(
            f"boto3_session and {beside}: found both; allowed: one, since each selects where calls go.",
            next_step=f"Leave {beside} out: boto3_session has its own credentials.",
        )
    return make_aws_session(region=region, boto3_session=boto3_session)


def session_at(
    profile: str | None,
    region: str | None,
    local: Local | None,
    from_spec: str | None = None,
    default_region: str | None = None,
) -> Session:
    """Do the same as `make_session`; ``from_spec``, then ``default_region`` are regions of last resort."""
    if isinstance(local, LocalTarget):
        return make_aws_session(region=region, local=local)
    if local is None or isinstance(local, bool):
        return session_for(
            os.environ,
            profile=profile,
            region=region,
            local=local,
            spec_region=from_spec,
            default_region=default_region,
        )
    return session_for(os.environ, region=region, port=local)


def _ask(plan: Plan) -> bool:
    bound = "at most " if plan.price_at_most else ""
    price = "price unknown" if plan.usd_per_hour is None else f"{bound}{plan.usd_per_hour:.2f} USD/h"
    most = "" if plan.max_usd is None else f", at most {plan.max_usd:.2f} USD before it is deleted"
    for finding in plan.findings:
        print(f"{finding.severity}: {finding.message}", file=sys.stderr)
    print(
        f"{plan.names.endpoint} in {plan.context.region}: {price}{most} ({plan.price_source})",
        file=sys.stderr,
    )
    return agreed("Deploy?")
