"""What tells whether the guard is well: its alarms, its dead letters, and who hears of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from peagle_sm.aws.control.register import moment_in
from peagle_sm.aws.session.errors import aws_errors
from peagle_sm.aws.session.session import Session

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
