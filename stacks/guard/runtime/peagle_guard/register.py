"""The register in DynamoDB: one item a name, every write conditional on the version that was read."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any, Protocol

from botocore.exceptions import ClientError

from peagle_guard.aws import Page
from peagle_guard.records import OffBy, Record
from peagle_guard.settings import parse_time

PREFIX = "endpoint#"
_SWEEP = "sweep"
_TIMES = (
    "created_at",
    "first_in_service_at",
    "quiet_since",
    "marked_at",
    "keep_until",
    "expires_at",
    "warned_at",
    "spent_at",
    "off_at",
    "gone_at",
    "woken_for",
    "wake_tried_at",
    "described_at",
)
_TEXTS = ("arn", "config_name", "stack")
_FLAGS = ("paused", "hours_off", "parting")
_COUNTS = ("instances", "base_instances", "wake_tries")
# What is gone is remembered this long, so that it can be explained; what is paused or has hours, for good.
_REMEMBERED = timedelta(days=90)

Item = dict[str, dict[str, Any]]


class DynamoDb(Protocol):
    """The part of boto3's client that is used."""

    def get_item(self, **parameters: Any) -> Any:
        """GetItem."""

    def update_item(self, **parameters: Any) -> Any:
        """UpdateItem."""

    def delete_item(self, **parameters: Any) -> Any:
        """DeleteItem."""

    def scan(self, **parameters: Any) -> Any:
        """Scan."""


class DynamoRegister:
    """The register over a DynamoDB table; satisfies ``aws.Register``."""

    def __init__(self, client: DynamoDb, table: str) -> None:
        """Take boto3's low-level client and the table's name."""
        self._client = client
        self._table = table

    def scan(self, token: str | None) -> Page[Record]:
        """Return a page (at most 1 MB) of all records."""
        more = {"ExclusiveStartKey": {"pk": {"S": token}}} if token else {}
        answer = self._client.scan(TableName=self._table, ConsistentRead=True, **more)
        found = tuple(read(item) for item in answer["Items"] if item["pk"]["S"].startswith(PREFIX))
        last = answer.get("LastEvaluatedKey")
        return Page(found, last["pk"]["S"] if last else None)

    def get(self, name: str) -> Record:
        """Read one record consistently; an empty one of version 0 where there is none."""
        answer = self._client.get_item(TableName=self._table, Key=_key(PREFIX + name), ConsistentRead=True)
        item = answer.get("Item")
        return Record(name=name) if item is None else read(item)

    def put(self, record: Record, now: datetime) -> bool:
        """Write the record as version + 1; False when somebody wrote since it was read.

        Attributes that the guard does not know stay as they are.
        """
        sets, removes = _split(written(replace(record, version=record.version + 1), now))
        names = {f"#{n}": n for n in (*sets, *removes)}
        expression = "SET " + ", ".join(f"#{n} = :{n}" for n in sets)
        if removes:
            expression += " REMOVE " + ", ".join(f"#{n}" for n in removes)
        values = {f":{n}": value for n, value in sets.items()}
        condition = "attribute_not_exists(#version)"
        if record.version:
            condition, values[":seen"] = "#version = :seen", {"N": str(record.version)}
        return self._update(PREFIX + record.name, expression, condition, names, values)

    def forget(self, record: Record) -> bool:
        """Remove the record; False when somebody wrote since it was read."""
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
        """Take the sweep's lock; False while another sweep holds it."""
        return self._update(
            _SWEEP,
            "SET #lock_until = :until",
            "attribute_not_exists(#lock_until) OR #lock_until <= :now",
            {"#lock_until": "lock_until"},
            {":until": _time(until), ":now": _time(now)},
        )

    def unlock(self, now: datetime, *, finished: bool) -> None:
        """Give the lock back, and note that the sweep was finished if it was."""
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
    """False where the condition of a write did not hold; any other error is raised again."""
    if error.response["Error"]["Code"] == "ConditionalCheckFailedException":
        return False
    raise error


def written(record: Record, now: datetime) -> dict[str, dict[str, Any] | None]:
    """Return the item's attributes, its key apart; None stands for an attribute that is to go."""
    held: dict[str, dict[str, Any] | None] = {
        name: None if getattr(record, name) is None else _time(getattr(record, name)) for name in _TIMES
    }
    held |= {name: {"S": getattr(record, name)} for name in _TEXTS}
    held |= {name: {"BOOL": getattr(record, name)} for name in _FLAGS}
    held |= {
        name: None if getattr(record, name) is None else {"N": str(getattr(record, name))} for name in _COUNTS
    }
    forgotten = record.gone_at is not None and not record.paused and not record.tags.get("peagle-sm:hours")
    return {
        **held,
        "tags_json": {"S": json.dumps(dict(record.tags), sort_keys=True)},
        "spent_usd": {"N": str(round(record.spent_usd, 6))},
        "off_by": None if record.off_by is None else {"S": str(record.off_by)},
        "variants": {"S": json.dumps(record.variants)},
        "version": {"N": str(record.version)},
        "ttl": {"N": str(int((now + _REMEMBERED).timestamp()))} if forgotten else None,
    }


def read(item: Mapping[str, Mapping[str, Any]]) -> Record:
    """Read an item; attributes that are missing, unknown or unreadable do no harm."""

    def held(name: str, kind: str) -> Any:
        return item.get(name, {}).get(kind)

    values: dict[str, Any] = {n: _moment(held(n, "S")) for n in _TIMES}
    values |= {n: held(n, "S") or "" for n in _TEXTS}
    values |= {n: bool(held(n, "BOOL")) for n in _FLAGS}
    values |= {n: int(number) for n in _COUNTS if (number := held(n, "N")) is not None}
    off_by = held("off_by", "S")
    return Record(
        name=item["pk"]["S"].removeprefix(PREFIX),
        tags=json.loads(held("tags_json", "S") or "{}"),
        spent_usd=float(held("spent_usd", "N") or 0),
        off_by=OffBy(off_by) if off_by in set(OffBy) else None,
        variants=tuple(json.loads(held("variants", "S") or "[]")),
        version=int(held("version", "N") or 0),
        **values,
    )


def _split(held: Mapping[str, dict[str, Any] | None]) -> tuple[Item, list[str]]:
    sets = {name: value for name, value in held.items() if value is not None}
    return sets, [name for name, value in held.items() if value is None]


def _key(pk: str) -> Item:
    return {"pk": {"S": pk}}


def _time(moment: datetime) -> dict[str, Any]:
    return {"S": moment.isoformat()}


def _moment(text: str | None) -> datetime | None:
    try:
        return parse_time(text) if text else None
    except ValueError:
        return None
