"""What `list` shows of all endpoints, from List calls and tags alone: one call a page and service.

The tags say what the last deploy or update asked for. `status` asks SageMaker about one endpoint.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta

from peagle_sm.aws.control import lifetime
from peagle_sm.aws.control.lifetime import Lifetime, ScheduleRow
from peagle_sm.aws.control.register import Entry
from peagle_sm.aws.control.sagemaker import Listed
from peagle_sm.aws.session.session import Session
from peagle_sm.core.plan import tags as keys
from peagle_sm.core.plan.payloads import schedule_name
from peagle_sm.service.inventory.belongings import Belongings, Tagged, assemble, limit_of
from peagle_sm.service.inventory.ownership import amount, stack_of

Entries = Mapping[str, Entry]
_START_LASTS = timedelta(minutes=30)
"""From the moment that a lifetime counts from to the creation of its schedule: an update pauses first."""


def overview(
    session: Session, tagged: Tagged, endpoints: Sequence[Listed], entries: Entries
) -> list[Belongings]:
    """Return everything that peagle-sm created in the region, by endpoint name.

    Reads one by one only what the lists do not say: schedules and resources that are too new for the tagging
    API, schedules that were moved without the guard, and the tags of configs without an endpoint when
    nothing says yet why there is none.
    """
    limits = _limits(session, tagged, endpoints, entries)

    def may_be_paused(name: str, tags: Mapping[str, str]) -> bool:
        entry = entries.get(name)
        by_the_guard = entry is not None and entry.gone_at is not None and not entry.paused
        return keys.PAUSED not in tags and stack_of(tags) is None and not by_the_guard

    return assemble(session, tagged, endpoints, limits, may_be_paused)


def without_list_tags(ours: Sequence[Belongings]) -> list[str]:
    """Return the names that an older version deployed: their tags lack what `list` shows."""
    return [one.name for one in ours if one.tags and keys.INSTANCE_TYPE not in one.tags]


def _limits(
    session: Session, tagged: Tagged, endpoints: Sequence[Listed], entries: Entries
) -> dict[str, Lifetime]:
    """Return the lifetime limits by endpoint name; ListSchedules does not say when a schedule starts."""
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
    row: ScheduleRow, tags: Mapping[str, str], entry: Entry | None, created: datetime | None, now: datetime
) -> datetime | None:
    """Return when a schedule starts; None where only GetSchedule knows."""
    # `keep`, `update` and `resume` write the end into the register too; a pause ends what it says.
    known = entry.expires_at if entry is not None and entry.is_of(created) and not entry.paused else None
    if row.moved:
        return known if known is not None and known > now else None
    hours = amount(tags, keys.MAX_LIFETIME_HOURS)
    if row.created_at is None or hours is None:
        return None
    end = row.created_at.replace(microsecond=0) + timedelta(hours=hours)
    if entry is not None and entry.paused and entry.keep_until is not None:
        # A schedule made after a pause starts no earlier than the lease ends.
        end = max(end, entry.keep_until)
    # An end long before this one is of an earlier schedule.
    return known if known is not None and known > end - _START_LASTS else end


def _tags_by_name(tagged: Tagged) -> dict[str, Mapping[str, str]]:
    """Return the tags of each endpoint; those of its config or model where the endpoint is gone."""
    found: dict[str, Mapping[str, str]] = {}
    for arn, tags in tagged.items():
        name = tags.get(keys.ENDPOINT)
        if name is not None and (":endpoint/" in arn.lower() or name not in found):
            found[name] = tags
    return found
