"""keep(): a lease that keeps an idle endpoint on and extends its lifetime."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from datetime import datetime, timedelta
from itertools import count, takewhile
from typing import Any

from peagle_sm.aws.control import guard_resources, lifetime, stacks
from peagle_sm.aws.control import sagemaker as control
from peagle_sm.aws.control.guard_resources import RegisterEntry, Value
from peagle_sm.aws.control.lifetime import Lifetime
from peagle_sm.aws.session.session import Session
from peagle_sm.core.errors import CredentialsError, Declined, NotFound, PeagleError, PlanRefused, SpecError
from peagle_sm.core.plan import tags_and_schedules as keys
from peagle_sm.core.plan.tags_and_schedules import hard_schedule_name
from peagle_sm.core.resources.ordered import component_of
from peagle_sm.core.words import when
from peagle_sm.service.inventory.guard_state import limit_acts, rest_of
from peagle_sm.service.inventory.inspection import absent
from peagle_sm.service.inventory.listing import EndpointSummary, most_per_hour, plain, summary_of
from peagle_sm.service.inventory.resources import Belongings, amount, belongings_of
from peagle_sm.service.progress import Pacing

LONGEST = timedelta(hours=8760)
CLAIM_LASTS = timedelta(minutes=3)
"""After this time a turn-off that a sweep or the switch began has ended, or has failed."""
FIRING_LASTS = timedelta(minutes=2)
"""EventBridge Scheduler fires within a minute of the start time and retries for at most a minute."""
SWITCH_PARAMETER = "EndpointState"
HARD_LATER = timedelta(minutes=30)
"""Delay of a stack's second schedule, which deletes the endpoint itself, after the first."""


@dataclass(frozen=True)
class Lease:
    """Effect of `keep`: the end of the lease, the new lifetime and its cost.

    ``keep_until`` ends the lease, ``expires_at`` the lifetime; ``expired_at`` is the previous end.
    ``more_usd`` is the most that the longer lifetime can add, with autoscaling's maximum of instances; None
    if no price is known. The guard still turns the endpoint off at ``budget_usd``. ``guarded`` is False if
    no guard is installed: then nothing turns an idle endpoint off, and `keep` only extends the lifetime.
    ``limit_acts`` is False if the lifetime schedule cannot delete the endpoint, because its role was removed
    with the guard.
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
    """Keep an endpoint on for ``length``, even if idle; never shorten its lease.

    ``confirm`` receives the new end and its price (None: no confirmation prompt). The guard's register is
    written before the schedules: the sweep and the switch read it before they turn an endpoint off. If one of
    them has just begun, this waits until it is clear whether the endpoint is turned off.

    Raises:
        SpecError: the length is not positive, or longer than a year.
        NotFound: peagle-sm created no endpoint of that name.
        PlanRefused: the endpoint is already being turned off, or a longer lifetime needs the guard's role.
        ServiceFault: every write to the register conflicted, or the schedule could not be changed.
        Declined: ``confirm`` declined.
        PeagleError: it has no lifetime schedule to move.
    """
    if not timedelta(0) < length <= LONGEST:
        raise SpecError(
            f"time to keep: found {length}; allowed: more than 0 and at most {LONGEST.days} days",
            next_step="Give a time such as 2h.",
        )
    pacing = pacing or Pacing.for_session(session)
    belongings = _existing(session, name)
    _refuse_turning_off(session, belongings)
    now = pacing.clock().replace(microsecond=0)
    entry = guard_resources.get(session, name)
    limit = _lifetime_of(belongings)
    lease = _lease(summary_of(session, belongings, now, entry), belongings, entry, limit, now + length)
    lease = replace(lease, limit_acts=limit_acts(session, limit))
    if not lease.limit_acts and lease.expires_at > lease.expired_at:
        raise PlanRefused(  # Scheduler refuses an update of a schedule whose role it cannot assume
            f"the lifetime of {name} ends {when(lease.expired_at)} and cannot be extended: the role of its"
            " schedule was removed with the guard. Nothing was changed.",
            next_step="Install the guard, then run this again: `peagle-sm guard install"
            f"{session.command_flags()}`.",
            details={"findings": [], "name": name},
        )
    if confirm is not None and not confirm(lease):
        raise Declined("Nothing was changed: it was not confirmed.", next_step="Run again and confirm.")
    _write(session, belongings, lease, pacing)
    if lease.expires_at > lease.expired_at:
        _move_limits(session, belongings, limit, lease.expires_at)
    _wait_for_what_has_fired(belongings, lease, pacing)
    _refuse_turning_off(session, belongings)
    return lease


def _existing(session: Session, name: str) -> Belongings:
    belongings = belongings_of(session, name)
    if belongings.endpoint is not None:
        return belongings
    if rest_of(belongings, guard_resources.get(session, name)) is not None:
        raise NotFound(
            f"endpoint {name!r} is paused: there is nothing to keep.",
            next_step=f"Turn it on first: `peagle-sm resume {name}{session.command_flags()}`.",
            details={"name": name},
        )
    raise absent(session, name, belongings)


def _refuse_turning_off(session: Session, belongings: Belongings) -> None:
    """Refuse if the endpoint is being turned off: a later end would have no effect."""
    facts = control.describe_endpoint(session, belongings.name)
    same = (
        facts is not None
        and belongings.endpoint is not None
        and facts.created_at == belongings.endpoint.created_at
    )
    if facts is None or not same or facts.status == "Deleting" or _stack_is_off(session, belongings.stack):
        raise _turning_off_error(session, belongings.name)


def _turning_off_error(session: Session, name: str) -> PlanRefused:
    return PlanRefused(
        f"endpoint {name} is already being turned off and cannot be kept.",
        next_step="Wait until it is gone, then turn it on again: "
        f"`peagle-sm resume {name}{session.command_flags()}`.",
        details={"findings": [], "name": name},
    )


def _stack_is_off(session: Session, stack: str | None) -> bool:
    if stack is None:
        return False
    with suppress(CredentialsError):  # without this permission the endpoint's status decides
        facts = stacks.describe(session, stack)
        return facts is not None and facts.parameters.get(SWITCH_PARAMETER) == "off"
    return False


def _write(session: Session, belongings: Belongings, lease: Lease, pacing: Pacing) -> None:
    """Write the lease, unless the guard turns the endpoint off; wait while unclear."""
    created = belongings.endpoint.created_at if belongings.endpoint else None
    until = pacing.monotonic() + 2 * CLAIM_LASTS.total_seconds()
    while True:
        try:
            guard_resources.update(
                session, belongings.name, lambda seen: _entry_changes(seen, created, lease, pacing.clock())
            )
            return
        except _Claimed as claimed:
            if claimed.parting or pacing.monotonic() >= until:
                raise _turning_off_error(session, belongings.name) from None
        pacing.sleep(pacing.poll_s)
        _refuse_turning_off(session, belongings)


def _move_limits(session: Session, belongings: Belongings, limit: Lifetime, ends: datetime) -> None:
    """Move the schedules; again if another `keep` wrote a later end meanwhile."""
    created = belongings.endpoint.created_at if belongings.endpoint else None
    while True:
        for hard in _second_schedules(
            session, belongings
        ):  # first, so that they never fire before the other one
            lifetime.move(session, hard, ends if belongings.stack is None else ends + HARD_LATER)
        lifetime.move(session, limit, ends)
        entry = guard_resources.get(session, belongings.name)
        if entry is None or not entry.is_of(created) or entry.expires_at is None or entry.expires_at <= ends:
            return
        ends = entry.expires_at


def _wait_for_what_has_fired(belongings: Belongings, lease: Lease, pacing: Pacing) -> None:
    """Wait until the old end can no longer fire.

    Scheduler may still deliver it up to a minute after the schedule moved. The end in the tags counts, too:
    another `keep` may have just moved it.
    """
    ends = [lease.expired_at]
    hours = amount(belongings.tags, keys.MAX_LIFETIME_HOURS)
    created = belongings.endpoint.created_at if belongings.endpoint else None
    if created is not None and hours is not None:
        ends.append(created + timedelta(hours=hours))
    for end in ends:
        while end <= pacing.clock() < end + FIRING_LASTS:
            pacing.sleep(pacing.poll_s)


def _lifetime_of(belongings: Belongings) -> Lifetime:
    if belongings.lifetime is None or belongings.lifetime.expires_at is None:
        raise PeagleError(
            f"endpoint {belongings.name} has no lifetime schedule, so its lifetime cannot be extended.",
            next_step="Deploy it again: that creates the schedule and does not change the endpoint.",
            details={"name": belongings.name},
        )
    return belongings.lifetime


def _second_schedules(session: Session, belongings: Belongings) -> list[Lifetime]:
    """Return the second schedules: for the components, then, in a stack, for the endpoint."""
    if belongings.stack is None and component_of(belongings.name, belongings.tags) is None:
        return []
    numbers = takewhile(
        lambda row: row is not None, (_second_schedule(session, belongings, n) for n in count(1))
    )
    return [row for row in (*numbers, _second_schedule(session, belongings, None)) if row is not None]


def _second_schedule(session: Session, belongings: Belongings, number: int | None) -> Lifetime | None:
    return lifetime.get(session, hard_schedule_name(belongings.name, number))


def _lease(
    summary: EndpointSummary,
    belongings: Belongings,
    entry: RegisterEntry | None,
    limit: Lifetime,
    until: datetime,
) -> Lease:
    expired_at = limit.expires_at or until
    expires_at = max(expired_at, until)
    held = entry.keep_until if entry is not None and entry.is_of(summary.created_at) else None
    hourly = summary.usd_per_hour
    most = most_per_hour(summary.instance_bounds, hourly, summary.instance_count)
    more_h = (expires_at - expired_at) / timedelta(hours=1)
    return Lease(
        name=belongings.name,
        keep_until=until if held is None else max(held, until),
        expires_at=expires_at,
        expired_at=expired_at,
        usd_per_hour=hourly,
        more_usd=None if most is None else round(most * more_h, 2),
        spent_usd=summary.spent_usd,
        budget_usd=amount(belongings.tags, keys.BUDGET_USD),
        guarded=entry is not None,
    )


class _Claimed(Exception):
    """The guard is turning the endpoint off; ``parting``: deletes components."""

    def __init__(self, parting: bool) -> None:
        super().__init__()
        self.parting = parting


def _entry_changes(
    seen: RegisterEntry, created: datetime | None, lease: Lease, clock: datetime
) -> Mapping[str, Value]:
    now = seen.read_at or clock  # the guard uses AWS's clock; the caller's clock may be wrong
    fresh = seen.is_of(created)
    claimed = seen.off_at is not None and now - seen.off_at < CLAIM_LASTS
    if fresh and (seen.parting or claimed):
        raise _Claimed(seen.parting)
    until, ends = lease.keep_until, lease.expires_at
    if fresh:
        until = max(until, seen.keep_until or until)
        ends = max(ends, seen.expires_at or ends)
    # The guard replaces an entry of an older endpoint of this name, unless the entry has no creation time.
    return {"keep_until": until, "expires_at": ends, **({} if fresh else {"created_at": None})}
