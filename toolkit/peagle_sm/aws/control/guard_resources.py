"""The guard's register, its alarms and dead letters, and calls of its Lambdas.

The register is a DynamoDB table. It holds leases, pauses and reasons. Every write is conditional on the
version that was read, because the guard's sweep writes too.
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
from peagle_sm.core.errors import NotFound, ServiceFault
from peagle_sm.core.guard import TABLE

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


UNCONFIRMED = "PendingConfirmation"
_SWEEP = "sweep"
_ENDPOINT = "endpoint#"


@dataclass(frozen=True)
class Alarm:
    """One alarm: ``state`` is OK, ALARM or INSUFFICIENT_DATA."""

    name: str
    state: str
    reason: str | None = None
    since: datetime | None = None


@dataclass(frozen=True)
class Subscription:
    """One subscriber of a topic; without ``confirmed`` nothing reaches it yet."""

    protocol: str
    endpoint: str
    confirmed: bool


@dataclass(frozen=True)
class Watched:
    """One endpoint in the guard's register; None where the register says nothing of it.

    ``streams_hidden``: CloudWatch shows its requests as they arrive, but not those in flight.
    ``unknown_since``: in service, and the metrics have proven neither traffic nor quiet since then.
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


def watched(session: Session, table: str) -> tuple[datetime | None, list[Watched]]:
    """Return when the last sweep ended (None: none yet), and every endpoint that the register knows."""
    with aws_errors("Scan", session.local_url):
        pages = session.client("dynamodb").get_paginator("scan").paginate(TableName=table)
        items = {item["pk"]["S"]: item for page in pages for item in page["Items"]}
    rows = [
        _watched(key.removeprefix(_ENDPOINT), item)
        for key, item in sorted(items.items())
        if key.startswith(_ENDPOINT)
    ]
    return moment_in(items.get(_SWEEP, {}), "last_sweep_at"), rows


def _watched(name: str, item: Mapping[str, Mapping[str, Any]]) -> Watched:
    return Watched(
        name=name,
        quiet_since=moment_in(item, "quiet_since"),
        keep_until=moment_in(item, "keep_until"),
        expires_at=moment_in(item, "expires_at"),
        paused=item.get("paused", {}).get("BOOL") is True,
        off_by=item.get("off_by", {}).get("S"),
        gone_at=moment_in(item, "gone_at"),
        streams_hidden=item.get("streams_hidden", {}).get("BOOL") is True,
        unknown_since=moment_in(item, "unknown_since"),
    )


def alarms(session: Session, names: Sequence[str]) -> list[Alarm]:
    """Return the alarms of those names that exist."""
    with aws_errors("DescribeAlarms", session.local_url):
        answer = session.client("cloudwatch").describe_alarms(AlarmNames=list(names))
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
    """Return about how many messages wait in a queue (SQS itself only knows about)."""
    with aws_errors("GetQueueAttributes", session.local_url):
        sqs = session.client("sqs")
        url = sqs.get_queue_url(QueueName=queue)["QueueUrl"]
        told = sqs.get_queue_attributes(QueueUrl=url, AttributeNames=["ApproximateNumberOfMessages"])
    return int(told["Attributes"]["ApproximateNumberOfMessages"])


def subscriptions(session: Session, topic_arn: str) -> list[Subscription]:
    """Return who is subscribed to a topic."""
    with aws_errors("ListSubscriptionsByTopic", session.local_url):
        pages = session.client("sns").get_paginator("list_subscriptions_by_topic")
        return [
            Subscription(row["Protocol"], row["Endpoint"], row["SubscriptionArn"] != UNCONFIRMED)
            for page in pages.paginate(TopicArn=topic_arn)
            for row in page["Subscriptions"]
        ]


FUNCTION_BUSY = "TooManyRequestsException"
"""`ServiceFault.code` while a function that runs alone is already running."""


class FunctionFault(ServiceFault):
    """The function ran and failed: ``details`` has its own ``error_type`` and ``trace``."""


def invoke(session: Session, function: str, payload: Mapping[str, Any]) -> dict[str, Any]:
    """Call a function once, wait for it, and return its answer.

    Raises:
        FunctionFault: the function itself failed, or did not answer with a JSON object.
        NotFound: there is no such function.
        ServiceFault: it was not run; code `BUSY` while it may not run twice at once.
    """
    # Once: what a function did before its answer was lost must not be done again unseen.
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
        told = json.loads(text)
    except ValueError:
        told = None
    if not isinstance(told, dict):
        raise FunctionFault(
            f"{function} answered {text[:200]!r}, which is no JSON object.",
            operation="Invoke",
            code="BadAnswer",
            next_step=f"Update the guard with `peagle-sm guard install{session.command_flags()}`, or look at "
            "the function's log.",
            details={"function": function},
        )
    return told


def _function_fault(function: str, text: str) -> FunctionFault:
    try:
        told = json.loads(text)
    except ValueError:
        told = {}
    if not isinstance(told, dict):
        told = {}
    kind, said = told.get("errorType") or "an error", told.get("errorMessage") or text[:500]
    return FunctionFault(
        f"{function} failed with {kind}: {said}",
        operation="Invoke",
        code="FunctionError",
        next_step=f"Its log group tells more: /aws/lambda/{function}.",
        details={"function": function, "error_type": kind, "trace": told.get("stackTrace") or []},
    )
