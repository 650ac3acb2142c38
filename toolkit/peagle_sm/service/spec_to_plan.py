"""From a spec's file to its plan: load_spec() and plan_for()."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from peagle_sm.aws.session.session import Session
from peagle_sm.core.catalog import load_catalog
from peagle_sm.core.errors import CredentialsError, SpecError
from peagle_sm.core.guard import endpoint_stack, execution_role, scheduler_role
from peagle_sm.core.plan.resolve import Context, resolve
from peagle_sm.core.plan.tags_and_schedules import partition
from peagle_sm.core.planning import Plan, make_plan
from peagle_sm.core.spec.endpoint_spec import EndpointSpec, parse_spec
from peagle_sm.core.spec.lock import UNREADABLE_STEP, Lock, Place, lock_path, parse_lock


def load_spec(path: Path | str, *, locks: bool = True) -> EndpointSpec:
    """Read a spec from a YAML file, with the locks beside it unless ``locks`` is False.

    Raises:
        SpecError: the file, or a lock beside it, cannot be read, is not YAML, or has a bad field.
    """
    try:
        text = Path(path).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise SpecError(
            f"{path}: cannot be read: {getattr(error, 'strerror', None) or 'it is not UTF-8 text'}",
            next_step="Give an existing spec file, or write one with `peagle-sm init`.",
        ) from error
    spec = parse_spec(text, origin=str(path))
    return spec.with_locks(_locks_beside(Path(path))) if locks else spec


def _locks_beside(spec_path: Path) -> dict[Place, Lock]:
    """Read the locks beside a spec file; nothing where there is none.

    Raises:
        SpecError: a lock is there and cannot be read.
    """
    found: dict[Place, Lock] = {}
    places: tuple[Place, ...] = ("aws", "local")
    for place in places:
        path = lock_path(spec_path, place)
        try:
            found[place] = parse_lock(path.read_text(encoding="utf-8"), str(path))
        except FileNotFoundError:
            continue
        except (OSError, UnicodeDecodeError) as error:
            raise SpecError(f"{path}: cannot be read: {error}", next_step=UNREADABLE_STEP) from error
    return found


def plan_for(
    spec: EndpointSpec, session: Session, *, stack: bool = False, account_from_spec: bool = False
) -> Plan:
    """Make the plan of ``spec`` for the account and region of ``session``.

    ``stack`` plans for `cdk deploy` instead of a deploy by this program: if the spec names no roles, the
    guard's roles are used. ``account_from_spec`` takes the account from the spec's roles, if it names one, so
    that planning a complete spec needs no credentials.

    Otherwise this calls STS, and for the local server its status page. On AWS it asks the price list, once a
    day for each instance type; without an answer the catalogue's price counts. It creates nothing.

    Raises:
        CredentialsError: no credentials, or the spec and the session have different regions.
        SpecError: the catalogue lacks something that the spec names.
    """
    _same_region(spec, session)
    local = session.local
    account = (account_from_spec and not local and _account_of(spec)) or session.account()
    roles = (local.role_arn, local.scheduler_role_arn) if local else (None, None)
    if stack:
        roles = guards_roles(account, session.region)
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
    if local is None:
        from peagle_sm.aws.control.prices import find_listed

        types = resolve(spec, context, load_catalog()).instance_types
        context = replace(
            context, prices={name: find_listed(session, name, session.region) for name in types}
        )
    return make_plan(spec, context)


def _account_of(spec: EndpointSpec) -> str | None:
    role = spec.execution_role_arn or spec.scheduler_role_arn
    return role.split(":")[4] if role else None


def guards_roles(account: str, region: str) -> tuple[str, str]:
    """Return the ARNs of the execution and the scheduler role that the guard's stack creates."""
    prefix = f"arn:{partition(region)}:iam::{account}:role"
    return f"{prefix}/{execution_role(region)}", f"{prefix}/{scheduler_role(region)}"


def _same_region(spec: EndpointSpec, session: Session) -> None:
    wanted = spec.placement.region
    # The local server accepts any region of the spec.
    if wanted is None or session.is_local or wanted == session.region:
        return
    raise CredentialsError(
        f"placement.region: the spec has {wanted}, but this session uses {session.region}.",
        next_step=f"Give --region {wanted} (in Python: region={wanted!r}), or change placement.region.",
        details={"wanted": wanted, "found": session.region},
    )
