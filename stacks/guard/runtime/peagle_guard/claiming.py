"""How the switch notes in the register that it turns an endpoint off, before it does.

`peagle-sm keep` writes the register too, each write on the version that was read: of a claim and a lease that
meet, the second sees the first. A claim also makes the sweep carry through what is half dismantled.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Protocol

from peagle_guard.aws import Register, same_time
from peagle_guard.records import Endpoint, Lifecycle, OffBy, Record
from peagle_guard.track import track

_TRIES = 5
_SECOND = timedelta(seconds=1)


class Claims(Protocol):
    """What a claim needs."""

    @property
    def register(self) -> Register:
        """The guard's memory."""

    @property
    def now(self) -> datetime:
        """The present."""


class Contended(Exception):
    """The register was written by others each time."""


def claim(
    aws: Claims, endpoint: Endpoint, expires_at: datetime | None, *, parting: bool = False
) -> str | None:
    """Note that the endpoint is being turned off; return why it must not be, None where it may.

    ``expires_at`` is the end of the lifetime by which a schedule asks; None where the sweep or a person asks.
    Only a claim of the sweep needs no write, unless the endpoint is ``parting``. A lifetime ends also where
    the register cannot be read.

    Raises:
        Contended: others wrote each time.
    """
    if expires_at is None and not parting:
        return None
    try:
        return _claim(aws, endpoint, expires_at, parting=parting)
    except Exception:
        if expires_at is None:
            raise
        return None


def is_parting(aws: Claims, endpoint: Endpoint) -> bool:
    """Say whether an earlier try has begun to dismantle the endpoint; where that is unknown, it has."""
    try:
        record = aws.register.get(endpoint.name)
    except Exception:
        return True
    return record.parting and same_time(record.created_at, endpoint.created_at)


def unclaim(aws: Claims, endpoint: Endpoint) -> None:
    """Take the parting back: nothing was dismantled. Where that fails, the endpoint is carried through."""
    with suppress(Exception):
        record = aws.register.get(endpoint.name)
        if record.parting and same_time(record.created_at, endpoint.created_at):
            aws.register.put(replace(record, parting=False), aws.now)


def is_later(moment: datetime, expires_at: datetime) -> bool:
    """Say whether a lifetime was moved to a later end; Scheduler keeps whole seconds."""
    return moment > expires_at + _SECOND


def moved_to(name: str, moment: datetime) -> str:
    """Return why an old limit does not turn an endpoint off."""
    return f"the lifetime of {name} was moved to {moment.isoformat(timespec='seconds')}"


def _claim(aws: Claims, endpoint: Endpoint, expires_at: datetime | None, *, parting: bool) -> str | None:
    for _ in range(_TRIES):
        record = aws.register.get(endpoint.name)
        if not same_time(record.created_at, endpoint.created_at):
            # No sweep has seen this endpoint yet; what `keep` wrote before the first one holds.
            record = track(endpoint, Lifecycle(stack=record.stack or None), record, aws.now)
        ends = record.expires_at
        if expires_at is not None and ends is not None and is_later(ends, expires_at):
            return moved_to(endpoint.name, ends)
        if aws.register.put(_claimed(record, expires_at, aws.now, parting=parting), aws.now):
            return None
    raise Contended(f"the register of {endpoint.name} was written by others {_TRIES} times in a row")


def _claimed(record: Record, expires_at: datetime | None, now: datetime, *, parting: bool) -> Record:
    by = record.off_by or OffBy.OTHERS
    if expires_at is not None and not record.parting:
        by = OffBy.LIFETIME  # what another reason tried before has not ended it
    off_at = record.off_at if record.off_at is not None and expires_at is None else now
    return replace(record, off_at=off_at, off_by=by, parting=record.parting or parting)
