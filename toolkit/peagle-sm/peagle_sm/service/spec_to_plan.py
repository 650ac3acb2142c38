"""From a spec's file to its plan: load_spec() and plan_for()."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from peagle_sm.aws.session.session import Session
from peagle_sm.core.catalog import load_catalog
from peagle_sm.core.errors import CredentialsError, PeagleError, SpecError
from peagle_sm.core.guard import endpoint_stack, execution_role, scheduler_role
from peagle_sm.core.plan.resolve import DEFAULT_REGION, PLACEHOLDER_ACCOUNT, Context, resolve
from peagle_sm.core.plan.tags_and_schedules import partition
from peagle_sm.core.planning import Plan, make_plan, plan_of
from peagle_sm.core.spec.endpoint_spec import EndpointSpec, parse_spec
from peagle_sm.core.spec.lock import UNREADABLE_STEP, Lock, Place, lock_path, parse_lock


def load_spec(path: Path | str, *, locks: bool = True) -> EndpointSpec:
    """Read a spec from a YAML file, with the locks and the files that it names, unless ``locks`` is False.

    A model's config in S3 or on the hub is read by `plan_for`, which has a session.

    Raises:
        SpecError: the file, or a lock beside it, cannot be read, is not YAML, or has a bad field.
    """
    try:
        text = Path(path).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        if isinstance(error, FileNotFoundError) and str(path) in load_catalog().models:
            raise SpecError(
                f"{path}: found a model's name; allowed: a spec file",
                next_step=f"Run `peagle-sm init {path}`, then this command without {path}.",
            ) from error
        raise SpecError(
            f"{path}: cannot be read: {getattr(error, 'strerror', None) or 'it is not UTF-8 text'}",
            next_step="Give an existing spec file, or write one with `peagle-sm init`.",
        ) from error
    spec = parse_spec(text, origin=str(path))
    if not locks:
        return spec
    if spec.own_model is not None:
        from peagle_sm.service.own_models import with_own_entries  # few specs need it

        spec = with_own_entries(spec, Path(path).parent)
    return spec.with_locks(_locks_beside(Path(path)))


def _locks_beside(spec_path: Path) -> dict[Place, Lock]:
    """Read the locks beside a spec file; nothing where there is none.

    Raises:
        SpecError: a lock is there and cannot be read.
    """
    locks: dict[Place, Lock] = {}
    places: tuple[Place, ...] = ("aws", "local")
    for place in places:
        path = lock_path(spec_path, place)
        try:
            locks[place] = parse_lock(path.read_text(encoding="utf-8"), str(path))
        except FileNotFoundError:
            continue
        except (OSError, UnicodeDecodeError) as error:
            raise SpecError(f"{path}: cannot be read: {error}", next_step=UNREADABLE_STEP) from error
    return locks


def plan_for(
    spec: EndpointSpec,
    session: Session,
    *,
    stack: bool = False,
    without_credentials: bool = False,
    account: str | None = None,
) -> Plan:
    """Make the plan of ``spec`` for the account and region of ``session``.

    If the spec names no roles, the guard's roles are used. ``stack`` plans for `cdk deploy` instead of a
    deploy by this program. ``without_credentials`` is for a plan that nobody deploys: the account comes from
    the spec's roles, else from the credentials, else it is a placeholder that ``Plan.context.assumed`` names.
    With an ``account`` STS is not called: for a plan whose account does not matter.

    Otherwise this calls STS, and for the local server its status page. On AWS it asks the price list, once a
    day for each instance type; without an answer the catalogue's price counts. It creates nothing.

    Raises:
        CredentialsError: no credentials, or the spec and the session have different regions.
        SpecError: the catalogue lacks something that the spec names.
        NotFound, ServiceFault: the config of the spec's own model cannot be read.
    """
    require_same_region(spec, session)
    if spec.own_model is not None:
        from peagle_sm.service.own_models import with_own_entries  # few specs need it

        spec = with_own_entries(spec, Path(), session)
    local = session.local
    assumed: tuple[str, ...] = ()
    if account is None and without_credentials:
        account, assumed = _account_or_placeholder(spec, session)
    account = account or session.account()
    if session.region_is_default:
        assumed = (_default_region_note(session.region), *assumed)
    context = replace(
        _context(account, session.region, assumed),
        now=session.now(),
        stack=endpoint_stack(spec.name) if stack else None,
    )
    if local is not None:
        context = replace(
            context,
            local=True,
            image_uris=dict(local.image_uris),
            artifacts=dict(local.artifacts),
            role_arn=local.role_arn or None,
            scheduler_role_arn=local.scheduler_role_arn or None,
        )
        return make_plan(spec, context)
    from peagle_sm.aws.control.prices import find_listed

    draft = resolve(spec, context, load_catalog())
    prices = {name: find_listed(session, name, session.region) for name in draft.instance_types}
    return plan_of(draft.with_prices(prices))


def plan_without_session(spec: EndpointSpec, problem: PeagleError) -> Plan:
    """Plan with a placeholder account, for a spec whose session could not be opened.

    ``problem`` says why; the region is the spec's or the default.
    """
    region = spec.placement.region or DEFAULT_REGION
    account, assumed = _placeholder(spec, problem)
    if spec.placement.region is None:
        assumed = (_default_region_note(region), *assumed)
    return make_plan(spec, _context(account, region, assumed))


def _context(account: str, region: str, assumed: tuple[str, ...]) -> Context:
    """Return the context of an account's region, with the guard's roles."""
    execution, scheduler = guards_roles(account, region)
    return Context(
        account=account, region=region, role_arn=execution, scheduler_role_arn=scheduler, assumed=assumed
    )


def _account_or_placeholder(spec: EndpointSpec, session: Session) -> tuple[str, tuple[str, ...]]:
    if session.is_local:
        return session.account(), ()
    try:
        return _account_of(spec) or session.account(), ()
    except CredentialsError as error:
        return _placeholder(spec, error)


def _placeholder(spec: EndpointSpec, problem: PeagleError) -> tuple[str, tuple[str, ...]]:
    if account := _account_of(spec):
        return account, ()
    return PLACEHOLDER_ACCOUNT, (f"account {PLACEHOLDER_ACCOUNT} is a placeholder: {problem.message}",)


def _default_region_note(region: str) -> str:
    return f"region {region} is a default: --region, AWS_REGION or placement.region selects another"


def _account_of(spec: EndpointSpec) -> str | None:
    role = spec.execution_role_arn or spec.scheduler_role_arn
    return role.split(":")[4] if role else None


def guards_roles(account: str, region: str) -> tuple[str, str]:
    """Return the ARNs of the execution and the scheduler role that the guard's stack creates."""
    prefix = f"arn:{partition(region)}:iam::{account}:role"
    return f"{prefix}/{execution_role(region)}", f"{prefix}/{scheduler_role(region)}"


def require_same_region(spec: EndpointSpec, session: Session) -> None:
    """Refuse a session in another region than the spec's.

    Raises:
        CredentialsError: the regions differ.
    """
    wanted = spec.placement.region
    # The local server accepts any region of the spec.
    if wanted is None or session.is_local or wanted == session.region:
        return
    raise CredentialsError(
        f"placement.region: the spec has {wanted}, but this session uses {session.region}.",
        next_step=f"Give --region {wanted} (in Python: region={wanted!r}), or change placement.region.",
        details={"wanted": wanted, "found": session.region},
    )
