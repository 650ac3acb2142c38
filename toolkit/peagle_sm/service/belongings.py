"""What of ours exists, endpoint by endpoint: also what killed runs left without an endpoint."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from peagle_sm.aws import control, lifetime
from peagle_sm.aws.control import Listed
from peagle_sm.aws.lifetime import Lifetime
from peagle_sm.aws.session import Session
from peagle_sm.core.payloads import schedule_name
from peagle_sm.service.ownership import ENDPOINT, is_ours
from peagle_sm.service.teardown import Doomed

# Config and model are named <endpoint>-<8 hex digits>, a long name being cut: this much of it is kept.
SURE_PREFIX = 40


@dataclass
class Belongings:
    """Everything of ours under one endpoint's name; ``endpoint`` is None where only remains are left."""

    name: str
    endpoint: Listed | None = None
    tags: Mapping[str, str] = field(default_factory=dict)
    configs: list[str] = field(default_factory=list)
    models: list[str] = field(default_factory=list)
    lifetime: Lifetime | None = None

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
    def doomed(self) -> Doomed:
        """Return it as what a teardown takes."""
        schedules = () if self.lifetime is None else (self.lifetime.name,)
        return Doomed(self.name, tuple(self.configs), tuple(self.models), schedules)


def belongings_of(session: Session, name: str) -> Belongings:
    """Return what of ours exists under one endpoint's name; empty ``resources`` when nothing does."""
    found: dict[str, Belongings] = {name: Belongings(name)}
    _gather(session, found, name[:SURE_PREFIX], lambda owner: owner == name)
    limit = lifetime.get(session, schedule_name(name))
    if limit is not None and limit.endpoint == name:
        found[name].lifetime = limit
    return found[name]


def all_belongings(session: Session) -> list[Belongings]:
    """Return everything of ours in the region, by endpoint name."""
    found: dict[str, Belongings] = {}
    _gather(session, found, None, lambda owner: True)
    for schedule in lifetime.list_names(session):
        limit = lifetime.get(session, schedule)
        if limit is not None and limit.endpoint is not None and schedule_name(limit.endpoint) == schedule:
            found.setdefault(limit.endpoint, Belongings(limit.endpoint)).lifetime = limit
    return [found[name] for name in sorted(found)]


def _gather(
    session: Session, found: dict[str, Belongings], part: str | None, wanted: Callable[[str], bool]
) -> None:
    for row, tags in _ours(session, control.list_endpoints(session, part)):
        if wanted(row.name):
            owner = found.setdefault(row.name, Belongings(row.name))
            owner.endpoint, owner.tags = row, tags
    for row, tags in _ours(session, control.list_endpoint_configs(session, part)):
        if ENDPOINT in tags and wanted(tags[ENDPOINT]):
            found.setdefault(tags[ENDPOINT], Belongings(tags[ENDPOINT])).configs.append(row.name)
    for row, tags in _ours(session, control.list_models(session, part)):
        if ENDPOINT in tags and wanted(tags[ENDPOINT]):
            found.setdefault(tags[ENDPOINT], Belongings(tags[ENDPOINT])).models.append(row.name)


def _ours(session: Session, rows: Iterable[Listed]) -> Iterator[tuple[Listed, dict[str, str]]]:
    for row in rows:
        tags = control.tags_of(session, row.arn)
        if tags is not None and is_ours(tags):
            yield row, tags
