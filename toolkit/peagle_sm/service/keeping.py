"""keep(): a lease against idleness, and a later end of the lifetime where the lease is longer."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, replace
from datetime import datetime, timedelta
from itertools import count, takewhile
from typing import Any

from peagle_sm.aws import lifetime, register
from peagle_sm.aws.lifetime import Lifetime
from peagle_sm.aws.register import Entry, Value
from peagle_sm.aws.session import Session
from peagle_sm.core import tags as keys
from peagle_sm.core.errors import NotFound, PeagleError, SpecError
from peagle_sm.core.payloads import hard_schedule_name
from peagle_sm.service.belongings import Belongings, belongings_of
from peagle_sm.service.events import Pacing
from peagle_sm.service.guarding import limit_acts
from peagle_sm.service.inspection import absent
from peagle_sm.service.inventory import EndpointSummary, plain, summary_of
from peagle_sm.service.ownership import amount
from peagle_sm.service.rest import rest_of

LONGEST = timedelta(hours=8760)
HARD_LATER = timedelta(minutes=30)
"""A stack's second schedule, which deletes the endpoint itself, fires this much after the first."""


@dataclass(frozen=True)
class Lease:
    """What keeping means: ``keep_until`` ends the lease, ``expires_at`` the lifetime (``expired_at`` before).

    ``more_usd`` is what the longer lifetime can cost on top, None where no price is known. ``budget_usd`` is
    the ceiling at which the guard turns it off all the same. ``guarded`` is False where no guard is
    installed: nothing would have turned it off for being idle, and the lifetime alone moved. ``limit_acts``
    is False where not even that ends it: the role of its schedule went with the guard.
    """

    name: str
    keep_until: datetime
    expires_at: datetime
    expired_at: datetime
    usd_per_hour: float | None
    more_usd: float | None
    spent_usd: float | None
    budget_usd: float | None
    guarded: bool
    limit_acts: bool = True

    def to_dict(self) -> dict[str, Any]:
        """Return plain JSON types; times as ISO text."""
        return {key: plain(value) for key, value in asdict(self).items()}


def keep(
    name: str,
    length: timedelta,
    *,
    session: Session,
    confirm: Callable[[Lease], bool] | None = None,
    pacing: Pacing | None = None,
) -> Lease:
    """Keep an endpoint for ``length`` from now, idle or not; never shortens what was promised before.

    ``confirm`` sees the new end and its price first (None: no question).

    Raises:
        SpecError: a length that is not more than nothing, or more than a year.
        NotFound: there is no endpoint of ours of that name.
        ServiceFault: the register was written by others each time, or the schedule does not move.
        PeagleError: ``confirm`` said no, or it has no lifetime limit that could be moved.
    """
    if not timedelta(0) < length <= LONGEST:
        raise SpecError(
            f"found {length}; allowed: more than nothing and at most {LONGEST.days} days",
            next_step="Give for example 2h.",
        )
    pacing = pacing or Pacing.for_session(session)
    one = _there(session, name)
    now = pacing.clock().replace(microsecond=0)
    entry = register.get(session, name)
    limit = _limit(one)
    lease = _lease(summary_of(session, one, now, entry), one, entry, limit, now + length)
    lease = replace(lease, limit_acts=limit_acts(session, limit))
    if confirm is not None and not confirm(lease):
        raise PeagleError("Nothing was changed: it was not confirmed.", next_step="Run again and confirm.")
    if lease.expires_at > lease.expired_at:
        for hard in _hard_limits(session, one):  # first, so that they never come before the other
            lifetime.move(session, hard, lease.expires_at + HARD_LATER)
        lifetime.move(session, limit, lease.expires_at)
    created = one.endpoint.created_at if one.endpoint else None
    register.update(session, name, lambda seen: _renewed(seen, created, lease))
    return lease


def _there(session: Session, name: str) -> Belongings:
    one = belongings_of(session, name)
    if one.endpoint is not None:
        return one
    if rest_of(one, register.get(session, name)) is not None:
        raise NotFound(
            f"endpoint {name!r} is paused: there is nothing to keep.",
            next_step=f"Bring it back first: `peagle-sm resume {name}{session.command_flags()}`.",
            details={"name": name},
        )
    raise absent(session, name, one)


def _limit(one: Belongings) -> Lifetime:
    if one.lifetime is None or one.lifetime.expires_at is None:
        raise PeagleError(
            f"endpoint {one.name} has no lifetime limit that could be moved.",
            next_step="Deploy it again: that arms the limit, and the endpoint stays as it is.",
            details={"name": one.name},
        )
    return one.lifetime


def _hard_limits(session: Session, one: Belongings) -> list[Lifetime]:
    """The schedules by which a stack's endpoint is deleted itself, and its components before it."""
    if one.stack is None:
        return []
    numbers = takewhile(lambda row: row is not None, (_hard(session, one, n) for n in count(1)))
    return [row for row in (*numbers, _hard(session, one, None)) if row is not None]


def _hard(session: Session, one: Belongings, number: int | None) -> Lifetime | None:
    return lifetime.get(session, hard_schedule_name(one.name, number))


def _lease(
    summary: EndpointSummary, one: Belongings, entry: Entry | None, limit: Lifetime, until: datetime
) -> Lease:
    expired_at = limit.expires_at or until
    expires_at = max(expired_at, until)
    held = entry.keep_until if entry is not None and entry.is_of(summary.created_at) else None
    hourly = summary.usd_per_hour
    more_h = (expires_at - expired_at) / timedelta(hours=1)
    return Lease(
        name=one.name,
        keep_until=until if held is None else max(held, until),
        expires_at=expires_at,
        expired_at=expired_at,
        usd_per_hour=hourly,
        more_usd=None if hourly is None else round(hourly * more_h, 2),
        spent_usd=summary.spent_usd,
        budget_usd=amount(one.tags, keys.BUDGET_USD),
        guarded=entry is not None,
    )


def _renewed(seen: Entry, created: datetime | None, lease: Lease) -> Mapping[str, Value]:
    fresh = seen.is_of(created)
    until, ends = lease.keep_until, lease.expires_at
    if fresh:
        until = max(until, seen.keep_until or until)
        ends = max(ends, seen.expires_at or ends)
    # An entry of an older endpoint of this name is begun anew by the guard, unless it names no creation.
    return {"keep_until": until, "expires_at": ends, **({} if fresh else {"created_at": None})}
