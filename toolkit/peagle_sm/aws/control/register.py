"""The guard's register in DynamoDB, as the command line reads and writes it: leases, pauses, reasons.

Every write is conditional on the version that was read, since the guard's sweep writes too.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any

from peagle_sm.aws.session.errors import aws_errors
from peagle_sm.aws.session.session import Session
from peagle_sm.core.errors import NotFound, ServiceFault
from peagle_sm.core.guard.names import TABLE

PREFIX = "endpoint#"
ATTEMPTS = 5
_CONFLICT = "ConditionalCheckFailedException"

Value = datetime | str | bool | None
Item = Mapping[str, Mapping[str, Any]]


@dataclass(frozen=True)
class Entry:
    """What the register holds of one endpoint name; ``version`` 0 means that it holds nothing yet.

    ``keep_until`` ends a lease, ``expires_at`` is a later end of the lifetime; ``off_by`` says why the
    guard turned it off (idle, lifetime, budget, hours, failed, others) once ``gone_at`` is set. ``off_at`` is
    when the guard last began to turn it off; ``parting`` means that its components are being deleted.
    ``streams_hidden``: CloudWatch shows its requests as they arrive, but not those in flight.
    """

    name: str
    version: int = 0
    created_at: datetime | None = None
    keep_until: datetime | None = None
    expires_at: datetime | None = None
    paused: bool = False
    off_by: str | None = None
    gone_at: datetime | None = None
    off_at: datetime | None = None
    parting: bool = False
    config_name: str | None = None
    streams_hidden: bool = False
    held: Mapping[str, Any] | None = field(default=None, repr=False, compare=False)
    """The version as DynamoDB holds it: one that is no whole number is replaced by the next write."""
    read_at: datetime | None = field(default=None, repr=False, compare=False)
    """When it was read, by AWS's own clock: the Date header of the answer."""

    def is_of(self, created_at: datetime | None) -> bool:
        """Whether it tells of the endpoint created then, and not of an older one of its name."""
        if self.created_at is None or created_at is None:
            return self.created_at is None
        return abs((self.created_at - created_at).total_seconds()) < 1


def get(session: Session, name: str) -> Entry | None:
    """Return what the register holds of an endpoint name; None where no guard is installed."""
    try:
        with aws_errors("GetItem", session.local_url):
            answer = session.client("dynamodb").get_item(TableName=TABLE, Key=_key(name), ConsistentRead=True)
    except NotFound:
        return None
    return replace(_entry(name, answer.get("Item") or {}), read_at=_date_of(answer))


def entries(session: Session) -> dict[str, Entry]:
    """Return everything that the register holds, by endpoint name; empty where no guard is installed."""
    try:
        with aws_errors("Scan", session.local_url):
            pages = session.client("dynamodb").get_paginator("scan").paginate(TableName=TABLE)
            items = [item for page in pages for item in page["Items"]]
    except NotFound:
        return {}
    names = {item["pk"]["S"]: item for item in items if item["pk"]["S"].startswith(PREFIX)}
    return {pk.removeprefix(PREFIX): _entry(pk.removeprefix(PREFIX), item) for pk, item in names.items()}


def update(session: Session, name: str, change: Callable[[Entry], Mapping[str, Value]]) -> Entry | None:
    """Write what ``change`` makes of the entry as it is, and return it; None where no guard is installed.

    A None among the values removes the attribute. When somebody writes in between, it is read again.

    Raises:
        ServiceFault: somebody else wrote each time.
    """
    for _ in range(ATTEMPTS):
        seen = get(session, name)
        if seen is None:
            return None
        values = change(seen)
        if not values:
            return seen
        try:
            _write(session, seen, values)
        except ServiceFault as error:
            if error.code != _CONFLICT:
                raise
            continue
        return get(session, name)
    raise ServiceFault(
        f"UpdateItem: the guard's register of {name} was written by others {ATTEMPTS} times in a row.",
        operation="UpdateItem",
        code=_CONFLICT,
        next_step="Run the command again.",
    )


def forget(session: Session, name: str) -> None:
    """Remove the entry of an endpoint that was deleted for good; none, or no guard, is no mistake."""
    try:
        with aws_errors("DeleteItem", session.local_url):
            session.client("dynamodb").delete_item(TableName=TABLE, Key=_key(name))
    except NotFound:
        return


def _write(session: Session, seen: Entry, values: Mapping[str, Value]) -> None:
    sets = {name: _attribute(value) for name, value in values.items() if value is not None}
    removes = [name for name, value in values.items() if value is None]
    sets["version"] = {"N": str(seen.version + 1)}
    expression = "SET " + ", ".join(f"#{name} = :{name}" for name in sets)
    if removes:
        expression += " REMOVE " + ", ".join(f"#{name}" for name in removes)
    condition, written = "attribute_not_exists(#version)", {f":{name}": value for name, value in sets.items()}
    if seen.held is not None:
        condition, written[":seen"] = "#version = :seen", dict(seen.held)
    with aws_errors("UpdateItem", session.local_url):
        session.client("dynamodb").update_item(
            TableName=TABLE,
            Key=_key(seen.name),
            UpdateExpression=expression,
            ConditionExpression=condition,
            ExpressionAttributeNames={f"#{name}": name for name in (*sets, *removes)},
            ExpressionAttributeValues=written,
        )


def _entry(name: str, item: Item) -> Entry:
    """Read an item; an attribute that is missing or cannot be read has its default, as in the guard."""
    return Entry(
        name=name,
        version=_whole(item, "version"),
        created_at=moment_in(item, "created_at"),
        keep_until=moment_in(item, "keep_until"),
        expires_at=moment_in(item, "expires_at"),
        paused=item.get("paused", {}).get("BOOL") is True,
        off_by=item.get("off_by", {}).get("S"),
        gone_at=moment_in(item, "gone_at"),
        off_at=moment_in(item, "off_at"),
        parting=item.get("parting", {}).get("BOOL") is True,
        config_name=item.get("config_name", {}).get("S") or None,
        streams_hidden=item.get("streams_hidden", {}).get("BOOL") is True,
        held=item.get("version"),
    )


def moment_in(item: Item, key: str) -> datetime | None:
    """Return a time of an item; without an offset it is UTC, and None where it cannot be read."""
    try:
        moment = datetime.fromisoformat(item[key]["S"])
        return moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment.astimezone(UTC)
    except (KeyError, ValueError, OverflowError):
        return None


def _date_of(answer: Mapping[str, Any]) -> datetime | None:
    try:
        return parsedate_to_datetime(answer["ResponseMetadata"]["HTTPHeaders"]["date"]).astimezone(UTC)
    except (KeyError, ValueError):
        return None


def _whole(item: Item, key: str) -> int:
    try:
        return max(0, int(float(item[key]["N"])))
    except (KeyError, ValueError, OverflowError):
        return 0


def _attribute(value: datetime | str | bool) -> dict[str, Any]:
    if isinstance(value, bool):
        return {"BOOL": value}
    return {"S": value if isinstance(value, str) else value.isoformat()}


def _key(name: str) -> dict[str, dict[str, str]]:
    return {"pk": {"S": PREFIX + name}}
