"""Register of the guard, its alarms and dead letters, and calls of its Lambdas.

The register is a DynamoDB table of leases, pauses and reasons. Every write is conditional on the version
that was read, because the guard's sweep writes, too.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any

from peagle_sm.aws.session.errors import aws_errors
from peagle_sm.aws.session.session import Session
from peagle_sm.aws.session.signing import json_object
from peagle_sm.core.errors import NotFound, ServiceFault
from peagle_sm.core.guard import TABLE

PREFIX = "endpoint#"
ATTEMPTS = 5
_CONFLICT = "ConditionalCheckFailedException"

Value = datetime | str | bool | None
Item = Mapping[str, Mapping[str, Any]]


@dataclass(frozen=True, kw_only=True)
class RegisterEntry:
    """One endpoint in the guard's register; a field is None if not recorded. ``version`` 0: no entry exists.

    ``keep_until`` ends a lease, ``expires_at`` is a later end of the lifetime; ``off_by`` is why the guard
    turned it off (idle, lifetime, budget, hours, failed, others) once ``gone_at`` is set. ``streams_hidden``:
    CloudWatch counts its requests on arrival, but has no metric of those in flight. ``unknown_since``:
    InService, but since then its metrics have not shown whether it is idle. ``off_at`` is when the guard last
    began to turn it off; ``parting``: its components are being deleted.
    """

    name: str
    quiet_since: datetime | None = None
    keep_until: datetime | None = None
    expires_at: datetime | None = None
    paused: bool = False
    off_by: str | None = None
    gone_at: datetime | None = None
    streams_hidden: bool = False
    unknown_since: datetime | None = None
    version: int = 0
    created_at: datetime | None = None
    off_at: datetime | None = None
    parting: bool = False
    config_name: str | None = None
    held: Mapping[str, Any] | None = field(default=None, repr=False, compare=False)
    """Version as stored in DynamoDB; the next write replaces a value that is not an integer."""
    read_at: datetime | None = field(default=None, repr=False, compare=False)
    """Time of the read by AWS's clock: the Date header of the answer."""

    def is_of(self, created_at: datetime | None) -> bool:
        """Return whether it is about the endpoint created then, not an older one."""
        if self.created_at is None or created_at is None:
            return self.created_at is None
        return abs((self.created_at - created_at).total_seconds()) < 1


def get(session: Session, name: str) -> RegisterEntry | None:
    """Return the entry of an endpoint name; None if no guard is installed."""
    answer = session.api("dynamodb").find("get_item", TableName=TABLE, Key=_key(name), ConsistentRead=True)
    return (
        None if answer is None else replace(_entry(name, answer.get("Item") or {}), read_at=_date_of(answer))
    )


def entries(session: Session) -> tuple[dict[str, RegisterEntry], datetime | None]:
    """Return all entries by endpoint name, and the end of the last sweep, if any.

    Without a guard there are none.
    """
    try:
        items = list(session.api("dynamodb").rows("scan", "Items", TableName=TABLE))
    except NotFound:
        return {}, None
    by_key = {item["pk"]["S"]: item for item in items}
    names = sorted(key.removeprefix(PREFIX) for key in by_key if key.startswith(PREFIX))
    register = {name: _entry(name, by_key[PREFIX + name]) for name in names}
    return register, moment_in(by_key.get(_SWEEP, {}), "last_sweep_at")


def update(
    session: Session, name: str, change: Callable[[RegisterEntry], Mapping[str, Value]]
) -> RegisterEntry | None:
    """Change an entry and return it; None if no guard is installed.

    ``change`` receives the present entry and returns the new values; None removes an attribute. After a
    conflicting write, the entry is read again.

    Raises:
        ServiceFault: every write conflicted.
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
        f"UpdateItem: {ATTEMPTS} writes to the guard's register entry of {name} conflicted.",
        operation="UpdateItem",
        code=_CONFLICT,
        next_step="Run the command again.",
    )


def forget(session: Session, name: str) -> None:
    """Remove a deleted endpoint's entry, if there is a guard and an entry."""
    session.api("dynamodb").find("delete_item", TableName=TABLE, Key=_key(name))


def _write(session: Session, seen: RegisterEntry, values: Mapping[str, Value]) -> None:
    sets = {name: _attribute(value) for name, value in values.items() if value is not None}
    removes = [name for name, value in values.items() if value is None]
    sets["version"] = {"N": str(seen.version + 1)}
    expression = "SET " + ", ".join(f"#{name} = :{name}" for name in sets)
    if removes:
        expression += " REMOVE " + ", ".join(f"#{name}" for name in removes)
    condition, written = "attribute_not_exists(#version)", {f":{name}": value for name, value in sets.items()}
    if seen.held is not None:
        condition, written[":seen"] = "#version = :seen", dict(seen.held)
    session.api("dynamodb").update_item(
        TableName=TABLE,
        Key=_key(seen.name),
        UpdateExpression=expression,
        ConditionExpression=condition,
        ExpressionAttributeNames={f"#{name}": name for name in (*sets, *removes)},
        ExpressionAttributeValues=written,
    )


def _entry(name: str, item: Item) -> RegisterEntry:
    """Parse an item; missing or invalid attributes get the guard's defaults."""
    return RegisterEntry(
        name=name,
        quiet_since=moment_in(item, "quiet_since"),
        keep_until=moment_in(item, "keep_until"),
        expires_at=moment_in(item, "expires_at"),
        paused=item.get("paused", {}).get("BOOL") is True,
        off_by=item.get("off_by", {}).get("S"),
        gone_at=moment_in(item, "gone_at"),
        streams_hidden=item.get("streams_hidden", {}).get("BOOL") is True,
        unknown_since=moment_in(item, "unknown_since"),
        version=_whole(item, "version"),
        created_at=moment_in(item, "created_at"),
        off_at=moment_in(item, "off_at"),
        parting=item.get("parting", {}).get("BOOL") is True,
        config_name=item.get("config_name", {}).get("S") or None,
        held=item.get("version"),
    )


def moment_in(item: Item, key: str) -> datetime | None:
    """Return a time of an item, by default UTC; None if missing or invalid."""
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


UNCONFIRMED = "PendingConfirmation"
_SWEEP = "sweep"


@dataclass(frozen=True)
class Alarm:
    """One alarm: ``state`` is OK, ALARM or INSUFFICIENT_DATA."""

    name: str
    state: str
    reason: str | None = None
    since: datetime | None = None


@dataclass(frozen=True)
class Subscription:
    """One subscriber of a topic; it gets messages only if ``confirmed``."""

    protocol: str
    endpoint: str
    confirmed: bool


def alarms(session: Session, names: Sequence[str]) -> list[Alarm]:
    """Return the existing alarms of these names."""
    answer = session.api("cloudwatch").describe_alarms(AlarmNames=list(names))
    return [
        Alarm(
            row["AlarmName"],
            row.get("StateValue", "INSUFFICIENT_DATA"),
            row.get("StateReason") or None,
            row.get("StateUpdatedTimestamp"),
        )
        for row in answer.get("MetricAlarms", [])
    ]


def waiting_messages(session: Session, queue: str) -> int:
    """Return SQS's approximate number of messages in a queue."""
    url, count = session.api("sqs").get_queue_url(QueueName=queue)["QueueUrl"], "ApproximateNumberOfMessages"
    answer = session.api("sqs").get_queue_attributes(QueueUrl=url, AttributeNames=[count])
    return int(answer["Attributes"][count])


def subscriptions(session: Session, topic_arn: str) -> list[Subscription]:
    """Return the subscribers of a topic."""
    rows = session.api("sns").rows("list_subscriptions_by_topic", "Subscriptions", TopicArn=topic_arn)
    return [
        Subscription(row["Protocol"], row["Endpoint"], row["SubscriptionArn"] != UNCONFIRMED) for row in rows
    ]


FUNCTION_BUSY = "TooManyRequestsException"
"""`ServiceFault.code` if a function with one permitted execution is already running."""


class FunctionFault(ServiceFault):
    """The function ran and failed; ``details`` has its ``error_type`` and ``trace``."""


def invoke(session: Session, function: str, payload: Mapping[str, Any]) -> dict[str, Any]:
    """Invoke a function once, wait for it, and return its answer.

    Raises:
        FunctionFault: the function failed, or its answer is not a JSON object.
        NotFound: the function does not exist.
        ServiceFault: it did not run; code `BUSY` if another execution is running.
    """
    # Once: if an answer is lost, a retry could repeat the function's effects.
    with aws_errors("Invoke", session.local_url):
        answer = session.creating_client("lambda").invoke(
            FunctionName=function,
            InvocationType="RequestResponse",
            Payload=json.dumps(dict(payload)).encode(),
        )
        text = answer["Payload"].read().decode(errors="replace")
    if answer.get("FunctionError"):
        raise _function_fault(function, text)
    try:
        document = json.loads(text)
    except ValueError:
        document = None
    if not isinstance(document, dict):
        raise FunctionFault(
            f"{function}: found the answer {text[:200]!r}; expected a JSON object.",
            operation="Invoke",
            code="BadAnswer",
            next_step=f"Update the guard with `peagle-sm guard install{session.command_flags()}`, or read "
            f"the function's log group /aws/lambda/{function}.",
            details={"function": function},
        )
    return document


def _function_fault(function: str, text: str) -> FunctionFault:
    document = json_object(text.encode())
    kind, message = document.get("errorType") or "an error", document.get("errorMessage") or text[:500]
    return FunctionFault(
        f"{function} failed with {kind}: {message}",
        operation="Invoke",
        code="FunctionError",
        next_step=f"Read its log group /aws/lambda/{function}.",
        details={"function": function, "error_type": kind, "trace": document.get("stackTrace") or []},
    )
