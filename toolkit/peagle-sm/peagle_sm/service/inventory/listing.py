"""list_endpoints(): existing endpoints, their cost and their end of life.

`overview` needs only List calls and tags: one call per page and service. Tags hold what the last deploy or
update requested; `status` asks SageMaker about one endpoint.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from datetime import datetime, timedelta
from typing import Any

from peagle_sm.aws.control import lifetime
from peagle_sm.aws.control import sagemaker as control
from peagle_sm.aws.control.guard_resources import RegisterEntry
from peagle_sm.aws.control.lifetime import Lifetime, ScheduleRow
from peagle_sm.aws.control.sagemaker import ConfigFacts, Listed, ModelFacts
from peagle_sm.aws.session.session import Session
from peagle_sm.core.catalog import SPECULATIVE_CONFIG, load_catalog
from peagle_sm.core.errors import PeagleError
from peagle_sm.core.plan import tags_and_schedules as keys
from peagle_sm.core.plan.tags_and_schedules import schedule_name
from peagle_sm.core.prices import choose_price
from peagle_sm.service.inventory.guard_state import guards_own, guards_role_acts, known_entries, rest_of
from peagle_sm.service.inventory.resources import (
    Belongings,
    Note,
    Tagged,
    all_limits,
    all_tagged,
    amount,
    assemble,
    limit_of,
    stack_of,
    whole_number,
)

Entries = Mapping[str, RegisterEntry]
_START_LASTS = timedelta(minutes=30)
"""Longest time between a lifetime's start and its schedule's creation: an update pauses first."""


def overview(
    session: Session, tagged: Tagged, endpoints: Sequence[Listed], entries: Entries
) -> list[Belongings]:
    """Return everything that peagle-sm created in the region, by endpoint name.

    Makes a call for one resource only if the lists do not cover it: schedules and resources that are too new
    for the tagging API, schedules that were moved without the guard, and the tags of configs without an
    endpoint if no reason for its absence is known.
    """
    limits = _limits(session, tagged, endpoints, entries)

    def may_be_paused(name: str, tags: Mapping[str, str]) -> bool:
        entry = entries.get(name)
        by_the_guard = entry is not None and entry.gone_at is not None and not entry.paused
        return keys.PAUSED not in tags and stack_of(tags) is None and not by_the_guard

    return assemble(session, tagged, endpoints, limits, may_be_paused)


def _limits(
    session: Session, tagged: Tagged, endpoints: Sequence[Listed], entries: Entries
) -> dict[str, Lifetime]:
    """Return the lifetime schedules by endpoint name, with their ends."""
    tags_by_name = _tags_by_name(tagged)
    owners = {schedule_name(name): name for name in tags_by_name}
    created = {row.name: row.created_at for row in endpoints}
    now, limits = session.now(), {}
    for row in lifetime.list_rows(session):
        name = owners.get(row.name)
        end = None
        if name is not None:
            end = _end(row, tags_by_name[name], entries.get(name), created.get(name), now)
        if name is not None and end is not None:
            limits[name] = Lifetime(row.name, name, end, None, row.enabled)
        elif (owned := limit_of(session, row.name)) is not None:
            limits[owned[0]] = owned[1]
    return limits


def _end(
    row: ScheduleRow,
    tags: Mapping[str, str],
    entry: RegisterEntry | None,
    created: datetime | None,
    now: datetime,
) -> datetime | None:
    """Return when a schedule starts; None if only GetSchedule returns it."""
    # `keep`, `update` and `resume` write the end into the register, too; a pause makes it invalid.
    known = entry.expires_at if entry is not None and entry.is_of(created) and not entry.paused else None
    if row.moved:
        return known if known is not None and known > now else None
    hours = amount(tags, keys.MAX_LIFETIME_HOURS)
    if row.created_at is None or hours is None:
        return None
    end = row.created_at.replace(microsecond=0) + timedelta(hours=hours)
    if entry is not None and entry.paused and entry.keep_until is not None:
        # A schedule created after a pause starts no earlier than the lease ends.
        end = max(end, entry.keep_until)
    # An end long before this one belongs to an earlier schedule.
    return known if known is not None and known > end - _START_LASTS else end


def _tags_by_name(tagged: Tagged) -> dict[str, Mapping[str, str]]:
    """Return the tags of each endpoint; of its config or model if it is gone."""
    by_endpoint: dict[str, Mapping[str, str]] = {}
    for arn, tags in tagged.items():
        name = tags.get(keys.ENDPOINT)
        if name is not None and (":endpoint/" in arn.lower() or name not in by_endpoint):
            by_endpoint[name] = tags
    return by_endpoint


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
        return {key: plain(one) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [plain(one) for one in value]
    return value


def list_endpoints(
    session: Session, *, everything: bool = False, note: Note | None = None
) -> list[EndpointSummary]:
    """List the endpoints that peagle-sm created in the region, and orphans.

    ``everything`` adds endpoints not created by peagle-sm. One call per page and service: K and the
    instances come from the tags, and ``expires_at`` may be some minutes old. Without permission for the
    tagging API each endpoint is read. ``note`` receives a sentence then, and also if the guard's register
    cannot be read.
    """
    now = session.now()
    endpoints = list(control.list_endpoints(session))
    entries = known_entries(session, note)
    tagged = all_tagged(session, note)
    if tagged is None:
        ours = assemble(session, None, endpoints, all_limits(session))
        rows = [summary_of(session, one, now, entries.get(one.name)) for one in ours]
    else:
        ours = overview(session, tagged, endpoints, entries)
        rows = [summary_of(session, one, now, entries.get(one.name), _by_tags(one)) for one in ours]
    dead = _without_role(session, ours)
    rows = [replace(row, expires_at=None) if row.name in dead else row for row in rows]
    if everything:
        names = {one.name for one in ours if one.endpoint is not None}
        rows += [_other_endpoint(one, now) for one in endpoints if one.name not in names]
    return sorted(rows, key=lambda row: row.name)


@dataclass(frozen=True)
class ServingFacts:
    """Instances and speculation of one endpoint; a field is None if not known."""

    num_speculative_tokens: int | None = None
    instance_type: str | None = None
    instance_count: int | None = None


def summary_of(
    session: Session,
    one: Belongings,
    now: datetime,
    entry: RegisterEntry | None = None,
    serving: ServingFacts | None = None,
) -> EndpointSummary:
    """Summarize one endpoint; ``entry`` is its entry in the guard's register.

    Without ``serving`` this reads its config and its model.
    """
    rest = rest_of(one, entry)
    serving = _read(session, one) if serving is None else serving
    created = one.endpoint.created_at if one.endpoint else None
    age_s = None if created is None else max(0.0, (now - created).total_seconds())
    hourly, at_most = _price(session, one, serving) if one.endpoint or rest else (None, False)
    lease = entry.keep_until if entry is not None and entry.is_of(created) else None
    limit = one.lifetime.expires_at if one.lifetime and one.lifetime.enabled else None
    return EndpointSummary(
        name=one.name,
        status=one.endpoint.status or "unknown" if one.endpoint else "Paused" if rest else "Orphaned",
        managed=True,
        mode=one.tags.get(keys.MODE),
        num_speculative_tokens=serving.num_speculative_tokens,
        instance_type=serving.instance_type,
        instance_count=serving.instance_count,
        created_at=created,
        age_s=age_s,
        usd_per_hour=hourly,
        spent_usd=None if hourly is None or age_s is None else hourly * age_s / 3600,
        expires_at=limit,
        idle_minutes=whole_number(one.tags, keys.IDLE_MINUTES),
        grace_minutes=whole_number(one.tags, keys.GRACE_MINUTES),
        spec_hash=one.tags.get(keys.SPEC_HASH),
        resources=one.resources,
        stack=one.stack,
        hours=one.tags.get(keys.HOURS),
        keep_until=lease if lease is not None and lease > now and one.endpoint else None,
        off_why=rest.why if rest else None,
        off_since=rest.since if rest else None,
        instance_bounds=one.tags.get(keys.INSTANCE_BOUNDS),
        price_at_most=at_most,
    )


def _read(session: Session, one: Belongings) -> ServingFacts:
    config = _config(session, one)
    if config is None:
        return ServingFacts()
    # The config of an endpoint with components has no model name.
    model_name, model = config.model_name or next(iter(one.models), None), None
    with suppress(PeagleError):  # the model only shows K, and a pause must not depend on it
        model = control.describe_model(session, model_name) if model_name else None
    tokens = (speculative_config(model) or {}).get("num_speculative_tokens")
    return ServingFacts(tokens, config.instance_type, config.instance_count)


def _by_tags(one: Belongings) -> ServingFacts:
    return ServingFacts(
        whole_number(one.tags, keys.NUM_SPECULATIVE_TOKENS),
        one.tags.get(keys.INSTANCE_TYPE),
        whole_number(one.tags, keys.INSTANCE_COUNT),
    )


def _price(session: Session, one: Belongings, serving: ServingFacts) -> tuple[float | None, bool]:
    """Return USD per hour without a call to AWS, and whether it is an upper bound.

    Without an instance type it is the planned price.
    """
    if serving.instance_type is None and not session.is_local:
        return amount(one.tags, keys.USD_PER_HOUR), keys.PRICE_BOUND in one.tags
    return _usd_per_hour(session, one.tags, serving.instance_type, serving.instance_count, ask=False)


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
    session: Session, one: Belongings, config: ConfigFacts | None
) -> tuple[float | None, bool]:
    """Return USD per hour for an endpoint's config, and whether it is an upper bound.

    The price is 0 locally, and None if unknown.
    """
    kind, count = (config.instance_type, config.instance_count) if config else (None, None)
    return _usd_per_hour(session, one.tags, kind, count, ask=True)


def _usd_per_hour(
    session: Session, tags: Mapping[str, str], instance_type: str | None, count: int | None, *, ask: bool
) -> tuple[float | None, bool]:
    """Return USD per hour, and whether it is an upper bound.

    The plan's price in the tag counts as the spec's own figure.
    """
    if session.is_local:
        return 0.0, False
    if instance_type is None:
        return None, False
    from peagle_sm.aws.control.prices import find_listed

    planned = amount(tags, keys.USD_PER_HOUR)
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


def _config(session: Session, one: Belongings) -> ConfigFacts | None:
    # The running config counts; without an endpoint, the config that is left.
    name = one.kept_config or (one.configs[0] if one.configs else None)
    if one.endpoint is not None and len(one.configs) != 1:
        facts = control.describe_endpoint(session, one.name)
        name = facts.config_name if facts else name
    return None if not name else control.describe_endpoint_config(session, name)


def _without_role(session: Session, ours: Sequence[Belongings]) -> set[str]:
    """Return the names whose lifetime schedules lost their role with the guard."""
    by_guard = {
        one.name for one in ours if one.lifetime is not None and _uses_guard_role(session, one, one.lifetime)
    }
    return set() if not by_guard or guards_role_acts(session) else by_guard


def _uses_guard_role(session: Session, one: Belongings, limit: Lifetime) -> bool:
    if limit.role_arn is not None:
        return guards_own(session, limit.role_arn)
    return keys.LIFETIME_ROLE not in one.tags  # for a schedule that was not read, only the tag shows it


def _other_endpoint(row: Listed, now: datetime) -> EndpointSummary:
    age = None if row.created_at is None else (now - row.created_at).total_seconds()
    return EndpointSummary(
        row.name, row.status or "unknown", managed=False, created_at=row.created_at, age_s=age
    )
