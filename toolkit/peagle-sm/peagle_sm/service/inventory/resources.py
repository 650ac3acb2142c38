"""Resources that peagle-sm created, by endpoint, including those of killed runs.

Tags show which endpoint a resource belongs to. A resource without peagle-sm's tags is never changed or
deleted. The tagging API finds tags in one call per page, however many other resources the account has, but
it lags by minutes. So every answer is checked: a name from the tagging API counts once SageMaker shows it,
and a resource that is too new for the tagging API is found by its name. A caller without permission for the
tagging API reads the tags of every resource whose name fits.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime
from math import isfinite

from peagle_sm.aws.control import executor, lifetime
from peagle_sm.aws.control import sagemaker as control
from peagle_sm.aws.control.lifetime import Lifetime
from peagle_sm.aws.control.sagemaker import EndpointFacts, Listed
from peagle_sm.aws.control.stacks import tagged_resources
from peagle_sm.aws.session.session import Session
from peagle_sm.core.errors import CredentialsError, PeagleError, PlanRefused
from peagle_sm.core.guard import ENDPOINT_STACK_PREFIX, endpoint_stack
from peagle_sm.core.plan.tags_and_schedules import ENDPOINT, MANAGED_BY, MANAGER, PAUSED, STACK, schedule_name
from peagle_sm.core.resources.endpoint import Endpoint
from peagle_sm.core.resources.log_group import LogGroup, log_group_name
from peagle_sm.core.resources.naming import hashed_prefix
from peagle_sm.core.resources.ordered import named
from peagle_sm.core.resources.resource import Resource


def is_ours(tags: Mapping[str, str] | None) -> bool:
    """Return whether the tags show that peagle-sm created the resource."""
    return (tags or {}).get(MANAGED_BY) == MANAGER


def belongs_to(tags: Mapping[str, str] | None, endpoint: str) -> bool:
    """Return whether peagle-sm created the resource for that endpoint."""
    return tags is not None and is_ours(tags) and tags.get(ENDPOINT) == endpoint


def stack_of(tags: Mapping[str, str] | None) -> str | None:
    """Return the stack that owns the resource; None if `peagle-sm deploy` created it."""
    return (tags or {}).get(STACK) or None


def require_own_stack(endpoint: str, stack: str) -> None:
    """Refuse a tag that names another endpoint's stack.

    Raises:
        PlanRefused: the tag does not name the stack of this endpoint.
    """
    own = endpoint_stack(endpoint)
    if stack != own:
        raise PlanRefused(
            f"The tag {STACK} of endpoint {endpoint} names {stack}; allowed: {own}. Nothing was changed.",
            next_step=f"Correct the tag, or remove it if no stack owns {endpoint}: "
            f"`aws sagemaker delete-tags --tag-keys {STACK} --resource-arn ARN`.",
            details={"findings": [], "stack": stack},
        )


def whole_number(tags: Mapping[str, str], key: str) -> int | None:
    """Return a tag as an integer; None if absent or invalid."""
    text = tags.get(key, "")
    return int(text) if text.isdigit() else None


def amount(tags: Mapping[str, str], key: str) -> float | None:
    """Return a tag as a number (hours, USD); None if absent or invalid."""
    try:
        value = float(tags[key])
    except (KeyError, ValueError):
        return None
    return value if isfinite(value) else None


def moment(tags: Mapping[str, str], key: str) -> datetime | None:
    """Return a tag as a time; None if absent or invalid."""
    try:
        return datetime.fromisoformat(tags[key])
    except (KeyError, ValueError):
        return None


Note = Callable[[str], None]
Tagged = Mapping[str, Mapping[str, str]]
"""Tags by ARN from the tagging API; SageMaker's ARNs may differ in letter case."""
_HASHED = re.compile(r"(.+-)[0-9a-f]{8}")


ToRemove = Sequence[Resource]
"""What a deletion removes of one endpoint, in the order of creation; one of them is the endpoint."""


def endpoint_name(resources: ToRemove) -> str:
    """Return the name of the endpoint among its resources."""
    return next(resource.name for resource in resources if isinstance(resource, Endpoint))


@dataclass
class Belongings:
    """Everything that peagle-sm created under one endpoint's name.

    ``endpoint`` is None if it is paused or only other resources remain. ``tags`` are the endpoint's, or the
    remaining config's. ``stack`` is the stack that owns any of the resources. ``unread_lifetime`` is the
    error if its lifetime schedule could not be read.
    """

    name: str
    endpoint: Listed | None = None
    tags: Mapping[str, str] = field(default_factory=dict)
    configs: list[str] = field(default_factory=list)
    models: list[str] = field(default_factory=list)
    lifetime: Lifetime | None = None
    stack: str | None = None
    kept_config: str | None = None
    paused_at: datetime | None = None
    unread_lifetime: CredentialsError | None = None

    @property
    def resources(self) -> tuple[str, ...]:
        """Return "kind/name" of each resource, in the order of deletion.

        What runs with the endpoint (component, autoscaling) is not looked up: it counts while that exists.
        """
        exists = {"model", "endpoint-config"}
        exists |= {"endpoint", "inference-component", "scalable-target", "alarm"} if self.endpoint else set()
        own = () if self.lifetime is None else (f"schedule/{self.lifetime.name}",)
        return tuple(
            resource.label
            for resource in reversed(self.to_remove)
            if resource.kind in exists or resource.label in own
        )

    @property
    def is_off(self) -> bool:
        """Return whether the endpoint is off on purpose: paused, or by its stack."""
        return self.endpoint is None and (self.kept_config is not None or bool(self.stack and self.configs))

    @property
    def to_remove(self) -> ToRemove:
        """Return the names for a `Teardown`."""
        may_exist = self.lifetime is not None or self.unread_lifetime is not None
        return named(self.name, self.tags, self.configs, self.models, scheduled=may_exist)


def belongings_of(
    session: Session, name: str, note: Note | None = None, *, need_lifetime: bool = True
) -> Belongings:
    """Return what peagle-sm created under one endpoint's name.

    ``resources`` is empty if nothing exists. ``note`` receives a sentence if a missing permission makes this
    slower. With ``need_lifetime`` False, a lifetime schedule that the caller may not
    read is noted in ``unread_lifetime``.
    """
    belongings = Belongings(name)
    facts = control.describe_endpoint(session, name)
    tags = None if facts is None else control.tags_of(session, facts.arn)
    if facts is not None and tags is not None and is_ours(tags):
        belongings.endpoint = Listed(name, facts.arn, facts.status, facts.created_at)
        belongings.tags, belongings.stack = tags, stack_of(tags)
    tagged = _tagged(session, {MANAGED_BY: MANAGER, ENDPOINT: name}, note)
    for row, marks in _configs_of(session, name, tagged, facts if belongings.endpoint else None, note):
        _add_config(belongings, row.name, marks)
    for row, marks in _owned_by(session, name, _models_of(session, name, tagged, belongings, note)):
        belongings.models.append(row.name)
        belongings.stack = belongings.stack or stack_of(marks)
    try:
        limit = lifetime.get(session, schedule_name(name))
    except CredentialsError as error:
        if need_lifetime:
            raise
        belongings.unread_lifetime = error
    else:
        belongings.lifetime = limit if limit is not None and limit.ends(name) else None
    return belongings


def all_belongings(session: Session, note: Note | None = None) -> list[Belongings]:
    """Return everything that peagle-sm created in the region, by endpoint name."""
    limits = all_limits(session)
    tagged = all_tagged(session, note)
    return assemble(session, tagged, control.list_endpoints(session), limits)


def all_limits(session: Session) -> dict[str, Lifetime]:
    """Return every lifetime schedule by endpoint name; one call for each."""
    limits = {}
    for name in lifetime.schedule_names(session):
        limit = lifetime.get(session, name)
        owner = None if limit is None else _owner(limit)
        if limit is not None and owner is not None and schedule_name(owner) == name:
            limits[owner] = limit
    return limits


def all_tagged(session: Session, note: Note | None = None) -> Tagged | None:
    """Return the tags of all peagle-sm resources by ARN; None without permission."""
    return _tagged(session, {MANAGED_BY: MANAGER}, note)


def assemble(
    session: Session,
    tagged: Tagged | None,
    endpoints: Iterable[Listed],
    limits: Mapping[str, Lifetime],
) -> list[Belongings]:
    """Return everything that peagle-sm created by endpoint name, from tags and lists."""
    by_endpoint = {name: Belongings(name, lifetime=limit) for name, limit in limits.items()}
    # A deploy creates its schedule first, so a resource that is too new for the tagging API has one.
    owners = set(by_endpoint)
    prefixes = {hashed_prefix(owner) for owner in owners}

    def may_be_new(row: Listed) -> bool:
        hashed = _HASHED.fullmatch(row.name)
        return hashed is not None and (tagged is None or hashed[1] in prefixes)

    for row, tags in _with_tags(session, endpoints, tagged, lambda row: tagged is None or row.name in owners):
        owner = by_endpoint.setdefault(row.name, Belongings(row.name))
        owner.endpoint, owner.tags, owner.stack = row, tags, stack_of(tags)
    for row, tags in _with_tags(session, control.list_endpoint_configs(session), tagged, may_be_new):
        name = tags.get(ENDPOINT)
        if name is not None:
            owner = by_endpoint.setdefault(name, Belongings(name))
            # Only ListTags shows a pause immediately.
            now = control.tags_of(session, row.arn) if owner.endpoint is None else tags
            if now is not None:
                _add_config(owner, row.name, now)
    for row, tags in _with_tags(session, control.list_models(session), tagged, may_be_new):
        name = tags.get(ENDPOINT)
        if name is not None:
            owner = by_endpoint.setdefault(name, Belongings(name))
            owner.models.append(row.name)
            owner.stack = owner.stack or stack_of(tags)
    return [by_endpoint[name] for name in sorted(by_endpoint) if by_endpoint[name].resources]


def _tagged(session: Session, wanted: Mapping[str, str], note: Note | None) -> Tagged | None:
    try:
        return tagged_resources(session, wanted)
    except PeagleError as error:  # a deletion must work without the tagging API
        if note is not None:
            note(f"{error.message}; reading each resource's tags instead, which needs more calls")
        return None


def _configs_of(
    session: Session, name: str, tagged: Tagged | None, facts: EndpointFacts | None, note: Note | None
) -> list[tuple[Listed, dict[str, str]]]:
    rows = _rows_by_name(control.list_endpoint_configs, session, name, tagged, note)
    rows += _only_tagged("endpoint-config", name, tagged, rows)
    if facts is not None and facts.config_name not in {row.name for row in rows}:
        config = control.describe_endpoint_config(session, facts.config_name)
        if config is not None:
            rows.append(Listed(config.name, config.arn))
    return _owned_by(session, name, rows)


def _models_of(
    session: Session, name: str, tagged: Tagged | None, belongings: Belongings, note: Note | None
) -> list[Listed]:
    rows = _rows_by_name(control.list_models, session, name, tagged, note)
    rows += _only_tagged("model", name, tagged, rows)
    if not rows and belongings.configs:
        config = control.describe_endpoint_config(session, belongings.configs[0])
        model = control.describe_model(session, config.model_name) if config and config.model_name else None
        if model is not None:
            rows.append(Listed(model.name, model.arn))
    return rows


def _rows_by_name(
    lister: Callable[[Session, str | None, int | None], Iterator[Listed]],
    session: Session,
    name: str,
    tagged: Tagged | None,
    note: Note | None,
) -> list[Listed]:
    """Return the rows with a name that a deploy of this endpoint uses."""
    prefix = hashed_prefix(name)
    try:
        rows = list(lister(session, prefix, None if tagged is None else 1))
    except PeagleError as error:  # and without these lists, if the tagging API has answered
        if tagged is None:
            raise
        if note is not None:
            note(f"{error.message}; what was created within the last minutes may be missing")
        return []
    return [row for row in rows if (hashed := _HASHED.fullmatch(row.name)) and hashed[1] == prefix]


def _only_tagged(kind: str, name: str, tagged: Tagged | None, known: Iterable[Listed]) -> list[Listed]:
    """Return the resources of a kind that only the tagging API shows."""
    seen, prefix = {row.arn.lower() for row in known}, hashed_prefix(name)
    rows = []
    for arn in tagged or ():
        its_kind, _, its_name = arn.rpartition(":")[2].partition("/")
        if its_kind == kind and arn.lower() not in seen:
            same = its_name.lower().startswith(prefix.lower())
            rows.append(Listed(prefix + its_name[len(prefix) :] if same else its_name, arn))
    return rows


def _owned_by(session: Session, name: str, rows: Iterable[Listed]) -> list[tuple[Listed, dict[str, str]]]:
    """Return the rows that have the endpoint's name in their tags in SageMaker."""
    read = ((row, control.tags_of(session, row.arn)) for row in rows)
    return [(row, tags) for row, tags in read if tags is not None and belongs_to(tags, name)]


def _with_tags(
    session: Session,
    rows: Iterable[Listed],
    tagged: Tagged | None,
    look: Callable[[Listed], bool],
) -> Iterator[tuple[Listed, Mapping[str, str]]]:
    """Yield the rows that peagle-sm created; ``look`` selects rows that need a call."""
    known = {arn.lower(): tags for arn, tags in (tagged or {}).items()}
    for row in rows:
        tags = known.get(row.arn.lower())
        if tags is None and look(row):
            tags = control.tags_of(session, row.arn)
        if tags is not None and is_ours(tags):
            yield row, tags


def _owner(limit: Lifetime) -> str | None:
    if limit.stack is not None:
        return limit.stack.removeprefix(ENDPOINT_STACK_PREFIX)
    return limit.endpoint


def _add_config(owner: Belongings, name: str, tags: Mapping[str, str]) -> None:
    owner.configs.append(name)
    owner.stack = owner.stack or stack_of(tags)
    paused_at = moment(tags, PAUSED)
    if paused_at is not None:
        owner.kept_config, owner.paused_at = name, paused_at
    if owner.endpoint is None and (paused_at is not None or not owner.tags):
        owner.tags = tags


def groups_of(session: Session, components: Mapping[str, str | None]) -> dict[str, str]:
    """Return the existing log groups by endpoint name; ``components`` has each name's component.

    Without permission to look a group up, it is left out.
    """
    groups = {}
    for name, component in components.items():
        group = log_group_name(name, component)
        with suppress(PeagleError):
            if executor.describe(session, LogGroup(group)) is not None:
                groups[name] = group
    return groups


def delete_command(session: Session, resource: Resource) -> str:
    """Return the AWS CLI's command that deletes a resource."""
    url = session.local_url
    place = f" --endpoint-url {url} --region {session.region}" if url else session.command_flags()
    return f"{resource.delete().command}{place}"
