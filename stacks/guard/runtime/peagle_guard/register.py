"""The register in DynamoDB: one item per endpoint name, and every write conditional on the version read.

Before the switch turns an endpoint off, it claims the endpoint's record. `peagle-sm keep` writes the same
record on the version that it read, so of a claim and a lease that meet, the second sees the first. A claim
also makes the sweep finish an endpoint that is half deleted.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import fields, replace
from datetime import datetime, timedelta
from typing import Any

from botocore.exceptions import ClientError

from peagle_guard.aws import Aws, Page, same_time
from peagle_guard.decide import track
from peagle_guard.records import Endpoint, Lifecycle, OffBy, Record
from peagle_guard.settings import time_of
from peagle_sm.core.plan.tags_and_schedules import HOURS

PREFIX = "endpoint#"
_SWEEP = "sweep"


def _of_type(*types: str) -> tuple[str, ...]:
    return tuple(each.name for each in fields(Record) if each.type in types)


# What the register stores of a record, by the type of the item's attribute.
_TIMES = _of_type("datetime | None")
_TEXTS = tuple(name for name in _of_type("str") if name != "name")
_FLAGS = _of_type("bool")
_COUNTS = tuple(name for name in _of_type("int", "int | None") if name != "version")
# Records of deleted endpoints expire after this time; those of paused endpoints or with hours never do.
_REMEMBERED = timedelta(days=90)
_YEARS = range(2000, 2200)

Item = dict[str, dict[str, Any]]


class DynamoRegister:
    """The register over a DynamoDB table; satisfies ``aws.Register``."""

    def __init__(self, client: Any, table: str) -> None:
        self._client = client
        self._table = table

    def scan(self, token: str | None) -> Page[Record]:
        """Return a page (at most 1 MB) of all records."""
        more = {"ExclusiveStartKey": {"pk": {"S": token}}} if token else {}
        answer = self._client.scan(TableName=self._table, ConsistentRead=True, **more)
        records = tuple(read(item) for item in answer["Items"] if _value(item, "pk", "S").startswith(PREFIX))
        last = answer.get("LastEvaluatedKey")
        return Page(records, last["pk"]["S"] if last else None)

    def get(self, name: str) -> Record:
        """Read one record consistently; an empty one of version 0 if it does not exist."""
        answer = self._client.get_item(TableName=self._table, Key=_key(PREFIX + name), ConsistentRead=True)
        item = answer.get("Item")
        return Record(name=name) if item is None else read(item)

    def put(self, record: Record, now: datetime) -> bool:
        """Write the record as version + 1; False if it was written since it was read.

        Attributes that the guard does not know stay as they are.
        """
        attributes = written(replace(record, version=record.version + 1), now)
        sets = {name: value for name, value in attributes.items() if value is not None}
        removes = [name for name, value in attributes.items() if value is None]
        names = {f"#{n}": n for n in (*sets, *removes)}
        expression = "SET " + ", ".join(f"#{n} = :{n}" for n in sets)
        if removes:
            expression += " REMOVE " + ", ".join(f"#{n}" for n in removes)
        values = {f":{n}": value for n, value in sets.items()}
        # A version that is not an integer is read as one, and is replaced.
        condition = "#version >= :seen AND #version < :next"
        values |= {":seen": {"N": str(record.version)}, ":next": {"N": str(record.version + 1)}}
        if not record.version:
            condition = "attribute_not_exists(#version) OR NOT attribute_type(#version, :seen)"
            condition += " OR #version < :next"
            values[":seen"] = {"S": "N"}
        return self._update(PREFIX + record.name, expression, condition, names, values)

    def forget(self, record: Record) -> bool:
        """Delete the record; False if it was written since it was read."""
        try:
            self._client.delete_item(
                TableName=self._table,
                Key=_key(PREFIX + record.name),
                ConditionExpression="#version = :seen",
                ExpressionAttributeNames={"#version": "version"},
                ExpressionAttributeValues={":seen": {"N": str(record.version)}},
            )
        except ClientError as error:
            return _held(error)
        return True

    def lock(self, now: datetime, until: datetime) -> bool:
        """Acquire the sweep's lock; False while another sweep holds it."""
        return self._update(
            _SWEEP,
            "SET #lock_until = :until",
            "attribute_not_exists(#lock_until) OR #lock_until <= :now",
            {"#lock_until": "lock_until"},
            {":until": _time(until), ":now": _time(now)},
        )

    def unlock(self, now: datetime, *, finished: bool) -> None:
        """Release the lock, and record whether the sweep was finished."""
        more: dict[str, Any] = {"UpdateExpression": "REMOVE #lock_until"}
        names = {"#lock_until": "lock_until"}
        if finished:
            more["UpdateExpression"] = "SET #last_sweep_at = :now REMOVE #lock_until"
            more["ExpressionAttributeValues"] = {":now": _time(now)}
            names["#last_sweep_at"] = "last_sweep_at"
        self._client.update_item(
            TableName=self._table, Key=_key(_SWEEP), ExpressionAttributeNames=names, **more
        )

    def _update(self, key: str, expression: str, condition: str, names: dict[str, str], values: Item) -> bool:
        try:
            self._client.update_item(
                TableName=self._table,
                Key=_key(key),
                UpdateExpression=expression,
                ConditionExpression=condition,
                ExpressionAttributeNames=names,
                ExpressionAttributeValues=values,
            )
        except ClientError as error:
            return _held(error)
        return True


def _held(error: ClientError) -> bool:
    """Run a conditional write; False if its condition failed, other errors are raised."""
    if error.response["Error"]["Code"] == "ConditionalCheckFailedException":
        return False
    raise error


def written(record: Record, now: datetime) -> dict[str, dict[str, Any] | None]:
    """Return the item's attributes without its key; None marks an attribute to remove."""
    held: dict[str, dict[str, Any] | None] = {
        name: None if getattr(record, name) is None else _time(getattr(record, name)) for name in _TIMES
    }
    held |= {name: {"S": getattr(record, name)} for name in _TEXTS}
    held |= {name: {"BOOL": getattr(record, name)} for name in _FLAGS}
    held |= {
        name: None if getattr(record, name) is None else {"N": str(getattr(record, name))} for name in _COUNTS
    }
    forgotten = record.gone_at is not None and not record.paused and not record.tags.get(HOURS)
    return {
        **held,
        "tags_json": {"S": json.dumps(dict(record.tags), sort_keys=True)},
        "spent_usd": {"N": str(round(record.spent_usd, 6))},
        "off_by": None if record.off_by is None else {"S": str(record.off_by)},
        "variants": {"S": json.dumps(record.variants)},
        "notices": {"S": json.dumps([at.isoformat() for at in record.notices])},
        "version": {"N": str(record.version)},
        "ttl": {"N": str(int((now + _REMEMBERED).timestamp()))} if forgotten else None,
    }


def read(item: Mapping[str, Mapping[str, Any]]) -> Record:
    """Read an item; missing or invalid attributes have their defaults."""

    def text(name: str) -> str:
        value = _value(item, name, "S")
        return value if isinstance(value, str) else ""

    off_by, spent = text("off_by"), _number(item, "spent_usd")
    counts = {name: _count(item, name) for name in _COUNTS}
    values: dict[str, Any] = {name: _moment(text(name)) for name in _TIMES}
    values |= {name: text(name) for name in _TEXTS}
    values |= {name: _value(item, name, "BOOL") is True for name in _FLAGS}
    values |= {name: count for name, count in counts.items() if count is not None}
    return Record(
        name=text("pk").removeprefix(PREFIX),
        tags=_texts(_json(text("tags_json"))),
        spent_usd=spent or 0.0,
        off_by=OffBy(off_by) if off_by in set(OffBy) else None,
        variants=_names(_json(text("variants"))),
        notices=tuple(at for at in map(_moment, _names(_json(text("notices")))) if at is not None),
        version=_count(item, "version") or 0,
        **values,
    )


def _value(item: Mapping[str, Any], name: str, kind: str) -> Any:
    attribute = item.get(name)
    return attribute.get(kind) if isinstance(attribute, Mapping) else None


def _number(item: Mapping[str, Any], name: str) -> float | None:
    try:
        number = float(_value(item, name, "N"))
    except (TypeError, ValueError):
        return None
    return number if math.isfinite(number) and number >= 0 else None


def _count(item: Mapping[str, Any], name: str) -> int | None:
    number = _number(item, name)
    return None if number is None else int(number)


def _json(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None


def _texts(values: Any) -> dict[str, str]:
    rows = values.items() if isinstance(values, dict) else ()
    return {key: value for key, value in rows if isinstance(value, str)}


def _names(values: Any) -> tuple[str, ...]:
    return tuple(each for each in values if isinstance(each, str)) if isinstance(values, list) else ()


def _key(pk: str) -> Item:
    return {"pk": {"S": pk}}


def _time(moment: datetime) -> dict[str, Any]:
    return {"S": moment.isoformat()}


def _moment(text: str) -> datetime | None:
    moment = time_of(text)
    # Absurd years would overflow when a lifetime is added.
    return moment if moment is not None and moment.year in _YEARS else None


_TRIES = 5
_SECOND = timedelta(seconds=1)


class Contended(Exception):
    """Error: the register was written by others at each try."""


def claim(aws: Aws, endpoint: Endpoint, expires_at: datetime | None, *, parting: bool = False) -> str | None:
    """Claim the endpoint for turning off; return why it must not be turned off, None if it may.

    ``expires_at`` is the end of the lifetime if a schedule claims; None for the sweep or a person. Only a
    claim of the sweep needs no write, unless the endpoint is ``parting``. A lifetime also ends if the
    register cannot be read.

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


def is_parting(aws: Aws, endpoint: Endpoint) -> bool:
    """Decide whether an earlier try has begun to delete components; True if unknown."""
    try:
        record = aws.register.get(endpoint.name)
    except Exception:
        return True
    return record.parting and same_time(record.created_at, endpoint.created_at)


def unclaim(aws: Aws, endpoint: Endpoint) -> None:
    """Undo parting, since nothing was deleted; if this fails, turning off is finished."""
    with suppress(Exception):
        record = aws.register.get(endpoint.name)
        if record.parting and same_time(record.created_at, endpoint.created_at):
            aws.register.put(replace(record, parting=False), aws.now)


def is_later(moment: datetime, expires_at: datetime) -> bool:
    """Decide whether a lifetime was moved to a later end; Scheduler has whole seconds."""
    return moment > expires_at + _SECOND


def moved_to(name: str, moment: datetime) -> str:
    """Return the reason text if a lifetime was extended, so that its old limit does not apply."""
    return f"the lifetime of {name} was moved to {moment.isoformat(timespec='seconds')}"


def _claim(aws: Aws, endpoint: Endpoint, expires_at: datetime | None, *, parting: bool) -> str | None:
    for _ in range(_TRIES):
        record = aws.register.get(endpoint.name)
        if not same_time(record.created_at, endpoint.created_at):
            # No sweep has seen this endpoint yet, so what `keep` wrote before applies.
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
