"""What of ours exists, endpoint by endpoint: also what is paused, and what killed runs left."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime

from peagle_sm.aws import control, lifetime
from peagle_sm.aws.control import Listed
from peagle_sm.aws.lifetime import Lifetime
from peagle_sm.aws.session import Session
from peagle_sm.core.guard_names import ENDPOINT_STACK_PREFIX
from peagle_sm.core.payloads import schedule_name
from peagle_sm.core.tags import ENDPOINT, PAUSED
from peagle_sm.service.ownership import is_ours, moment, stack_of
from peagle_sm.service.teardown import Doomed

# Config and model are named <endpoint>-<8 hex digits>, a long name being cut: this much of it is kept.
SURE_PREFIX = 40


@dataclass
class Belongings:
    """Everything of ours under one endpoint's name.

    ``endpoint`` is None where it is paused or only remains are left. ``tags`` are the endpoint's, or those
    of the config that is left; ``stack`` is the stack that owns any of it.
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

    @property
    def resources(self) -> tuple[str, ...]:
        """Return "kind/name" of each, in the order of deletion."""
        return (
            *(f"endpoint/{one.name}" for one in (self.endpoint,) if one is not None),
            *(f"endpoint-config/{name}" for name in self.configs),
            *(f"model/{name}" for name in self.models),
            *(f"schedule/{one.name}" for one in (self.lifetime,) if one is not None),
        )

    @property
    def is_off(self) -> bool:
        """Whether there is no endpoint on purpose: paused by hand, or its stack has it turned off."""
        return self.endpoint is None and (self.kept_config is not None or bool(self.stack and self.configs))

    @property
    def doomed(self) -> Doomed:
        """Return it as what a teardown takes."""
        schedules = () if self.lifetime is None else (self.lifetime.name,)
        return Doomed(self.name, tuple(self.configs), tuple(self.models), schedules)


def belongings_of(session: Session, name: str) -> Belongings:
    """Return what of ours exists under one endpoint's name; empty ``resources`` when nothing does."""
    found: dict[str, Belongings] = {name: Belongings(name)}
    _gather(session, found, name[:SURE_PREFIX], lambda owner: owner == name)
    limit = lifetime.get(session, schedule_name(name))
    if limit is not None and limit.ends(name):
        found[name].lifetime = limit
    return found[name]


def all_belongings(session: Session) -> list[Belongings]:
    """Return everything of ours in the region, by endpoint name."""
    found: dict[str, Belongings] = {}
    _gather(session, found, None, lambda owner: True)
    for schedule in lifetime.list_names(session):
        limit = lifetime.get(session, schedule)
        owner = None if limit is None else _owner(limit)
        if owner is not None and schedule_name(owner) == schedule:
            found.setdefault(owner, Belongings(owner)).lifetime = limit
    return [found[name] for name in sorted(found)]


def _owner(limit: Lifetime) -> str | None:
    if limit.stack is not None:
        return limit.stack.removeprefix(ENDPOINT_STACK_PREFIX)
    return limit.endpoint


def _gather(
    session: Session, found: dict[str, Belongings], part: str | None, wanted: Callable[[str], bool]
) -> None:
    for row, tags in _ours(session, control.list_endpoints(session, part)):
        if wanted(row.name):
            owner = found.setdefault(row.name, Belongings(row.name))
            owner.endpoint, owner.tags, owner.stack = row, tags, stack_of(tags)
    for row, tags in _ours(session, control.list_endpoint_configs(session, part)):
        if ENDPOINT in tags and wanted(tags[ENDPOINT]):
            _add_config(found.setdefault(tags[ENDPOINT], Belongings(tags[ENDPOINT])), row.name, tags)
    for row, tags in _ours(session, control.list_models(session, part)):
        if ENDPOINT in tags and wanted(tags[ENDPOINT]):
            owner = found.setdefault(tags[ENDPOINT], Belongings(tags[ENDPOINT]))
            owner.models.append(row.name)
            owner.stack = owner.stack or stack_of(tags)


def _add_config(owner: Belongings, name: str, tags: Mapping[str, str]) -> None:
    owner.configs.append(name)
    owner.stack = owner.stack or stack_of(tags)
    paused_at = moment(tags, PAUSED)
    if paused_at is not None:
        owner.kept_config, owner.paused_at = name, paused_at
    if owner.endpoint is None and (paused_at is not None or not owner.tags):
        owner.tags = tags


def _ours(session: Session, rows: Iterable[Listed]) -> Iterator[tuple[Listed, dict[str, str]]]:
    for row in rows:
        tags = control.tags_of(session, row.arn)
        if tags is not None and is_ours(tags):
            yield row, tags
