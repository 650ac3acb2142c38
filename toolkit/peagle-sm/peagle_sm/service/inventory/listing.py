"""list_endpoints(): existing endpoints, their cost and their end of life.

It needs List calls, tags and one call for each lifetime schedule. Tags hold what the last deploy or update
requested; `status` asks SageMaker about one endpoint.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import datetime
from typing import Any

from peagle_sm.aws.control import sagemaker as control
from peagle_sm.aws.control.guard_resources import RegisterEntry
from peagle_sm.aws.control.lifetime import Lifetime
from peagle_sm.aws.control.sagemaker import Listed, ModelFacts
from peagle_sm.aws.session.session import Session
from peagle_sm.core.catalog import SPECULATIVE_CONFIG, load_catalog
from peagle_sm.core.errors import CredentialsError
from peagle_sm.core.plan import tags_and_schedules as keys
from peagle_sm.core.prices import choose_price
from peagle_sm.service.inventory.guard_state import guards_own, guards_role_acts, known_entries, rest_of
from peagle_sm.service.inventory.resources import (
    Belongings,
    Note,
    all_limits,
    all_tagged,
    amount,
    assemble,
    whole_number,
)


@dataclass(frozen=True)
class EndpointSummary:
    """One row of the list; a field is None if its value is not known.

    ``resources`` are "kind/name" of the endpoint's resources. ``spent_usd`` is the catalogue's price times
    the age, an upper bound. ``status`` is SageMaker's, or "Paused" if the endpoint is off and can be resumed
    (``off_why``, ``off_since``), or "Orphaned" for resources that a killed run left without an endpoint.
    ``usd_per_hour`` of a paused endpoint is its price after a resume. ``expires_at`` is the end of its
    lifetime; None if no schedule can delete it. ``stack`` is the CloudFormation stack that owns it,
    ``keep_until`` the end of the lease of `keep`. With ``instance_bounds`` ("1-4"), ``instance_count`` is
    the count at which autoscaling starts, and both prices are for that count. ``price_at_most``: SageMaker's
    price is not known, and both are upper bounds.
    """

    name: str
    status: str
    managed: bool
    mode: str | None = None
    num_speculative_tokens: int | None = None
    instance_type: str | None = None
    instance_count: int | None = None
    created_at: datetime | None = None
    age_s: float | None = None
    usd_per_hour: float | None = None
    spent_usd: float | None = None
    expires_at: datetime | None = None
    idle_minutes: int | None = None
    grace_minutes: int | None = None
    spec_hash: str | None = None
    resources: tuple[str, ...] = ()
    stack: str | None = None
    hours: str | None = None
    keep_until: datetime | None = None
    off_why: str | None = None
    off_since: datetime | None = None
    instance_bounds: str | None = None
    price_at_most: bool = False

    def to_dict(self) -> dict[str, Any]:
        """Return plain JSON types; times as ISO text."""
        return {key: plain(value) for key, value in asdict(self).items()}


def plain(value: Any) -> Any:
    """Return ``value`` with times as ISO text and tuples as lists."""
    if isinstance(value, datetime):
        return value.isoformat(timespec="seconds")
    if isinstance(value, Mapping):
        return {key: plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    return value


def list_endpoints(
    session: Session, *, everything: bool = False, note: Note | None = None
) -> list[EndpointSummary]:
    """List the endpoints that peagle-sm created in the region, and orphans.

    ``everything`` adds endpoints not created by peagle-sm. K and the instances come from the tags. ``note``
    receives a sentence if the guard's register, the tagging API or the schedules cannot be read.
    """
    now = session.now()
    endpoints = list(control.list_endpoints(session))
    entries = known_entries(session, note)
    limits: Mapping[str, Lifetime] = {}
    try:
        limits = all_limits(session)
    except CredentialsError as error:  # a list is useful without the ends
        if note is not None:
            note(f"{error.message}; no end of a lifetime is shown")
    ours = assemble(session, all_tagged(session, note), endpoints, limits)
    dead = _without_role(session, ours)
    rows = [summary_of(session, belongings, now, entries.get(belongings.name)) for belongings in ours]
    rows = [replace(row, expires_at=None) if row.name in dead else row for row in rows]
    if everything:
        names = {belongings.name for belongings in ours if belongings.endpoint is not None}
        rows += [_other_endpoint(row, now) for row in endpoints if row.name not in names]
    return sorted(rows, key=lambda row: row.name)


@dataclass(frozen=True)
class ServingFacts:
    """Instances and speculation of one endpoint; a field is None if not known."""

    num_speculative_tokens: int | None = None
    instance_type: str | None = None
    instance_count: int | None = None


def summary_of(
    session: Session,
    belongings: Belongings,
    now: datetime,
    entry: RegisterEntry | None = None,
    serving: ServingFacts | None = None,
) -> EndpointSummary:
    """Summarize one endpoint; ``entry`` is its entry in the guard's register.

    Without ``serving`` the tags count, which hold what the last deploy or update requested.
    """
    rest = rest_of(belongings, entry)
    serving = serving or ServingFacts(
        whole_number(belongings.tags, keys.NUM_SPECULATIVE_TOKENS),
        belongings.tags.get(keys.INSTANCE_TYPE),
        whole_number(belongings.tags, keys.INSTANCE_COUNT),
    )
    created = belongings.endpoint.created_at if belongings.endpoint else None
    age_s = None if created is None else max(0.0, (now - created).total_seconds())
    hourly: float | None = None
    at_most = False
    if belongings.endpoint or rest:
        hourly, at_most = price_per_hour(
            session, belongings.tags, serving.instance_type, serving.instance_count
        )
    lease = entry.keep_until if entry is not None and entry.is_of(created) else None
    limit = belongings.lifetime.expires_at if belongings.lifetime and belongings.lifetime.enabled else None
    status = "Paused" if rest else "Orphaned"
    if belongings.endpoint is not None:
        status = belongings.endpoint.status or "unknown"
    return EndpointSummary(
        name=belongings.name,
        status=status,
        managed=True,
        mode=belongings.tags.get(keys.MODE),
        num_speculative_tokens=serving.num_speculative_tokens,
        instance_type=serving.instance_type,
        instance_count=serving.instance_count,
        created_at=created,
        age_s=age_s,
        usd_per_hour=hourly,
        spent_usd=None if hourly is None or age_s is None else hourly * age_s / 3600,
        expires_at=limit,
        idle_minutes=whole_number(belongings.tags, keys.IDLE_MINUTES),
        grace_minutes=whole_number(belongings.tags, keys.GRACE_MINUTES),
        spec_hash=belongings.tags.get(keys.SPEC_HASH),
        resources=belongings.resources,
        stack=belongings.stack,
        hours=belongings.tags.get(keys.HOURS),
        keep_until=lease if lease is not None and lease > now and belongings.endpoint else None,
        off_why=rest.why if rest else None,
        off_since=rest.since if rest else None,
        instance_bounds=belongings.tags.get(keys.INSTANCE_BOUNDS),
        price_at_most=at_most,
    )


def speculative_config(model: ModelFacts | None) -> dict[str, Any] | None:
    """Return the speculative config in a model's environment; None without one."""
    if model is None or SPECULATIVE_CONFIG not in model.environment:
        return None
    try:
        config = json.loads(model.environment[SPECULATIVE_CONFIG])
    except ValueError:
        return None
    return config if isinstance(config, dict) else None


def price_per_hour(
    session: Session,
    tags: Mapping[str, str],
    instance_type: str | None,
    count: int | None,
    *,
    ask: bool = False,
) -> tuple[float | None, bool]:
    """Return USD per hour, and whether it is an upper bound; 0 locally, None if unknown.

    ``ask`` allows a call to AWS's price list. The plan's price in the tag counts as the spec's own figure.
    """
    if session.is_local:
        return 0.0, False
    planned = amount(tags, keys.USD_PER_HOUR)
    if instance_type is None:
        return planned, keys.PRICE_BOUND in tags
    from peagle_sm.aws.control.prices import find_listed

    per_instance = None if planned is None else planned / (whole_number(tags, keys.INSTANCE_COUNT) or 1)
    listed = find_listed(session, instance_type, session.region, ask=ask)
    table = load_catalog().price(instance_type, session.region)
    price = choose_price(instance_type, session.region, table, listed, per_instance)
    if price is None:
        return None, False
    at_most = price.at_most or (price.kind == "spec" and keys.PRICE_BOUND in tags)
    return price.counted_usd_per_hour * (count or 1), at_most


def most_per_hour(bounds: str | None, hourly: float | None, count: int | None) -> float | None:
    """Return USD per hour at autoscaling's maximum; ``hourly`` is the price of ``count`` instances.

    ``bounds`` is the tag `INSTANCE_BOUNDS` ("1-4"); None without autoscaling.
    """
    most = (bounds or "").rpartition("-")[2]
    return hourly if hourly is None or not most.isdigit() else hourly * max(1.0, int(most) / (count or 1))


def _without_role(session: Session, ours: Sequence[Belongings]) -> set[str]:
    """Return the names whose lifetime schedules lost their role with the guard."""
    by_guard = {
        belongings.name
        for belongings in ours
        if belongings.lifetime is not None and guards_own(session, belongings.lifetime.role_arn)
    }
    return set() if not by_guard or guards_role_acts(session) else by_guard


def _other_endpoint(row: Listed, now: datetime) -> EndpointSummary:
    age = None if row.created_at is None else (now - row.created_at).total_seconds()
    return EndpointSummary(
        row.name, row.status or "unknown", managed=False, created_at=row.created_at, age_s=age
    )
