"""The package's own deploy(), connect() and plan(): one call from a notebook."""

from __future__ import annotations

import sys
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from peagle_sm.aws.sagemaker_sdk import endpoint_name_of, session_of
from peagle_sm.aws.session import LocalTarget, Session, make_session
from peagle_sm.core.errors import SpecError
from peagle_sm.core.model_builder import is_builder, spec_from_builder
from peagle_sm.core.records import Plan
from peagle_sm.core.spec import EndpointSpec, load_spec
from peagle_sm.service.deployment import deploy as deploy_with
from peagle_sm.service.endpoint import Endpoint
from peagle_sm.service.endpoint import connect as connect_with
from peagle_sm.service.events import Event, Progress
from peagle_sm.service.planning import plan_for
from peagle_sm.service.preflight import require_preflight

if TYPE_CHECKING:
    from sagemaker.core.resources import Endpoint as SageMakerEndpoint
    from sagemaker.serve.model_builder import ModelBuilder

SpecLike = EndpointSpec | Path | str | Mapping[str, Any]
Local = bool | int | LocalTarget


def deploy(
    spec: SpecLike | ModelBuilder,
    *,
    local: Local = False,
    profile: str | None = None,
    region: str | None = None,
    yes: bool = False,
    unguarded: bool = False,
    progress: Progress | None = None,
    sagemaker_session: Any = None,
    skip_checks: Collection[str] = (),
) -> Endpoint:
    """Deploy a spec and return the endpoint.

    The spec is an EndpointSpec, a YAML file's path, a mapping, or a ModelBuilder of the SageMaker Python SDK
    made by ``from_jumpstart_config`` and not built yet (see `spec_from_builder`).

    Shows the plan and asks, unless ``yes``; tells its progress on stderr, unless ``progress`` takes it.
    Refuses where no guard is installed, unless ``unguarded``, and where the preflight finds an error, unless
    ``skip_checks`` has the check's id.
    ``local`` is True for the local SageMaker, its port when several run, or a LocalTarget;
    ``sagemaker_session`` is a Session of the SDK (or boto3's), used in place of profile and region. Errors as
    `peagle_sm.service.deploy`.
    """
    chosen = as_spec(spec)
    session = _session_for(spec, local, profile, region or chosen.placement.region, sagemaker_session)
    return deploy_with(
        chosen,
        session=session,
        confirm=None if yes else _ask,
        progress=progress or Tell(),
        unguarded=unguarded,
        preflight=lambda made: require_preflight(session, made, skip=skip_checks),
        skip_checks=skip_checks,
    )


def connect(
    name: str | SageMakerEndpoint,
    *,
    local: Local = False,
    profile: str | None = None,
    region: str | None = None,
    sagemaker_session: Any = None,
) -> Endpoint:
    """Return an endpoint that exists already: by its name, or an Endpoint of the SageMaker Python SDK.

    The SDK's is asked with the credentials and in the region it was made with, unless others are given.

    Raises:
        NotFound: there is none of that name.
        SpecError: ``name`` is neither.
    """
    session = _session_for(name, local, profile, region, sagemaker_session)
    return connect_with(endpoint_name_of(name) if not isinstance(name, str) else name, session=session)


def plan(
    spec: SpecLike | ModelBuilder,
    *,
    local: Local = False,
    profile: str | None = None,
    region: str | None = None,
    sagemaker_session: Any = None,
) -> Plan:
    """Return what `deploy` would do, with price and findings; creates nothing."""
    chosen = as_spec(spec)
    session = _session_for(spec, local, profile, region or chosen.placement.region, sagemaker_session)
    return plan_for(chosen, session, account_from_spec=True)


def as_spec(spec: SpecLike | ModelBuilder) -> EndpointSpec:
    """Return the spec, read from its file or mapping where need be.

    Raises:
        SpecError: it is not a spec.
    """
    if isinstance(spec, EndpointSpec):
        return spec
    if is_builder(spec):
        return spec_from_builder(spec)
    if isinstance(spec, str | Path):
        return load_spec(Path(spec))
    if isinstance(spec, Mapping):
        return EndpointSpec(**{str(key): value for key, value in spec.items()})
    raise SpecError(
        f"spec: found {type(spec).__name__}; allowed: an EndpointSpec, a path to a YAML file, a mapping, "
        "or a ModelBuilder of the SageMaker Python SDK.",
        next_step="Write one with `peagle-sm init`, and give its path.",
    )


def _session_for(
    thing: Any, local: Local, profile: str | None, region: str | None, sagemaker_session: Any
) -> Session:
    """The session that is asked for; else the one that an object of the SDK brings along."""
    if sagemaker_session is not None:
        if local is not False:
            raise SpecError(
                "sagemaker_session: found beside local; allowed: one of them, each says where calls go.",
                next_step="Leave local out; make_session(local=...).to_sagemaker() makes a local one.",
            )
        return make_session(profile, region, sagemaker_session=sagemaker_session)
    if local is False and profile is None:
        brought = session_of(thing)
        if brought is not None and region in (None, brought.region):
            return brought
    return session_for(local, profile, region)


def session_for(local: Local, profile: str | None, region: str | None) -> Session:
    """Return the session for AWS, or for the local SageMaker that runs on this machine."""
    if local is False:
        return make_session(profile, region)
    if isinstance(local, LocalTarget):
        return make_session(local=local)
    from peagle_sm.local.lifecycle import find_server

    found = find_server(None if local is True else local)
    return make_session(local=LocalTarget.from_status(found.to_dict()))


def _ask(plan: Plan) -> bool:
    price = "price unknown" if plan.usd_per_hour is None else f"{plan.usd_per_hour:.2f} USD/h"
    most = "" if plan.max_usd is None else f", at most {plan.max_usd:.2f} USD before it is deleted"
    for finding in plan.findings:
        print(f"{finding.severity}: {finding.message}", file=sys.stderr)
    print(
        f"{plan.names.endpoint} in {plan.context.region}: {price}{most} ({plan.price_source})",
        file=sys.stderr,
    )
    try:
        return input("Deploy? [y/N] ").strip().lower() in ("y", "yes")
    except EOFError:
        return False


class Tell:
    """Prints an event on stderr when it differs from the one before in phase, status or message."""

    def __init__(self) -> None:
        """Start with nothing said."""
        self._said: tuple[str, str | None, str] | None = None

    def __call__(self, event: Event) -> None:
        """Print the event if it is news."""
        key = (event.phase, event.status, event.message)
        if key == self._said:
            return
        self._said = key
        spent = "" if not event.spent_usd else f"  {event.spent_usd:.2f} USD"
        status = f" [{event.status}]" if event.status else ""
        print(f"{event.elapsed_s:7.1f} s  {event.message}{status}{spent}", file=sys.stderr)
