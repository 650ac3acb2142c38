"""The shipped register over a DynamoDB table in memory."""

from __future__ import annotations

import operator
import re
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

from botocore.exceptions import ClientError

from peagle_guard.records import Record
from peagle_guard.register import PREFIX, DynamoRegister, Item, read, written

_CONDITION = re.compile(
    r"attribute_not_exists\((?P<absent>#\w+)\)"
    r"|NOT attribute_type\((?P<typed>#\w+), (?P<type>:\w+)\)"
    r"|(?P<name>#\w+) (?P<operator>=|<=|<|>=) (?P<value>:\w+)"
)


_COMPARE: dict[str, Callable[[Any, Any], bool]] = {
    "=": operator.eq,
    "<": operator.lt,
    "<=": operator.le,
    ">=": operator.ge,
}
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class ConditionFailed(ClientError):
    """The condition of a write did not hold."""

    def __init__(self) -> None:
        message = "The conditional request failed"
        code = "ConditionalCheckFailedException"
        super().__init__({"Error": {"Code": code, "Message": message}}, "UpdateItem")


@dataclass(slots=True)
class Table:
    """boto3's client of DynamoDB with one table, as far as the register calls it."""

    call: Callable[[str], object]
    """Called with the name of each operation, before it."""
    items: dict[str, Item] = field(default_factory=dict)

    def scan(self, **request: Any) -> dict[str, Any]:
        """Scan: one page."""
        self.call("Scan")
        return {"Items": [dict(self.items[key]) for key in sorted(self.items)]}

    def get_item(self, **request: Any) -> dict[str, Any]:
        self.call("GetItem")
        item = self.items.get(request["Key"]["pk"]["S"])
        return {} if item is None else {"Item": dict(item)}

    def update_item(self, **request: Any) -> dict[str, Any]:
        """UpdateItem with a condition, SET and REMOVE."""
        key = request["Key"]["pk"]["S"]
        self.call("UpdateItem" if key.startswith(PREFIX) else "Lock")
        names, values = request["ExpressionAttributeNames"], request.get("ExpressionAttributeValues", {})
        item = self.items.get(key, {})
        if not _holds(request.get("ConditionExpression", ""), item, names, values):
            raise ConditionFailed
        item = {"pk": {"S": key}, **item}
        for clause, body in _clauses(request["UpdateExpression"]):
            for part in body.split(", "):
                name, _, value = part.partition(" = ")
                if clause == "SET":
                    item[names[name]] = values[value]
                else:
                    item.pop(names[name], None)
        self.items[key] = item
        return {}

    def put_item(self, **request: Any) -> dict[str, Any]:
        self.call("PutItem")
        self.items[request["Item"]["pk"]["S"]] = request["Item"]
        return {}

    def delete_item(self, **request: Any) -> dict[str, Any]:
        """DeleteItem, with or without a condition."""
        self.call("DeleteItem")
        key = request["Key"]["pk"]["S"]
        names = request.get("ExpressionAttributeNames", {})
        values = request.get("ExpressionAttributeValues", {})
        if not _holds(request.get("ConditionExpression", ""), self.items.get(key, {}), names, values):
            raise ConditionFailed
        self.items.pop(key, None)
        return {}


def _clauses(expression: str) -> list[tuple[str, str]]:
    parts = re.split(r"\b(SET|REMOVE) ", expression)[1:]
    return [(parts[i], parts[i + 1].strip()) for i in range(0, len(parts), 2)]


def _holds(condition: str, item: Item, names: dict[str, str], values: Item) -> bool:
    """Evaluate ``a AND b OR c`` of the forms that the register writes; no condition always holds."""
    return not condition or any(
        all(_one(part, item, names, values) for part in all_of.split(" AND "))
        for all_of in condition.split(" OR ")
    )


def _one(part: str, item: Item, names: dict[str, str], values: Item) -> bool:
    fullmatch = _CONDITION.fullmatch(part)
    if fullmatch is None:
        raise ValueError(f"the simulated DynamoDB does not know the condition {part!r}")
    if fullmatch["absent"]:
        return names[fullmatch["absent"]] not in item
    if fullmatch["typed"]:
        return values[fullmatch["type"]]["S"] not in item.get(names[fullmatch["typed"]], {})
    held, wanted = item.get(names[fullmatch["name"]]), values[fullmatch["value"]]
    if held is None or held.keys() != wanted.keys():
        return False
    return _COMPARE[fullmatch["operator"]](_comparable(held), _comparable(wanted))


def _comparable(value: dict[str, Any]) -> Any:
    """A number as such, a text as such: of one type, which the caller has checked."""
    ((kind, held),) = value.items()
    return Decimal(held) if kind == "N" else held


class TableRegister(DynamoRegister):
    """The shipped register over a table in memory."""

    def __init__(
        self, call: Callable[[str], object], noted: Callable[[Record], object] = lambda record: None
    ) -> None:
        """Begin with an empty table; ``noted`` hears of each record that was written."""
        self.table = Table(call)
        self._noted = noted
        super().__init__(self.table, "peagle-guard")

    def put(self, record: Record, now: datetime) -> bool:
        """Write a record as its next version."""
        done = super().put(record, now)
        if done:
            self._noted(record)
        return done

    @property
    def records(self) -> dict[str, Record]:
        """Every record, by the name of its endpoint."""
        rows = (read(item) for key, item in self.table.items.items() if key.startswith(PREFIX))
        return {record.name: record for record in rows}

    def record(self, name: str) -> Record | None:
        """Read one item without a call; None if it does not exist."""
        item = self.table.items.get(PREFIX + name)
        return None if item is None else read(item)

    def store(self, record: Record, now: datetime) -> None:
        """Store a record as it is, without a condition."""
        item = {name: value for name, value in written(record, now).items() if value is not None}
        key = PREFIX + record.name
        self.table.items[key] = {**self.table.items.get(key, {}), **item, "pk": {"S": key}}

    def write(self, name: str, **changes: Any) -> None:
        """Change a record without a call, as the command line does."""
        record = self.record(name) or Record(name)
        self.store(replace(record, **{**changes, "version": record.version + 1}), _EPOCH)

    def spoil(self, name: str, attribute: str, value: dict[str, str]) -> None:
        """Make an attribute of an item unreadable; an item that does not exist is made of it."""
        item = self.table.items.setdefault(PREFIX + name, {"pk": {"S": PREFIX + name}})
        item[attribute] = value
