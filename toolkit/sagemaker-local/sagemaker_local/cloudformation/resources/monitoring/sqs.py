"""AWS::SQS::Queue and AWS::SQS::QueuePolicy."""

from __future__ import annotations

from typing import Any

from sagemaker_local.cloudformation.resources.base import (
    Created,
    Kind,
    Properties,
    ResourceContext,
    generated_name,
)
from sagemaker_local.cloudformation.resources.calls import gone_is_fine, merged_tags, retag, send

_GONE = ("AWS.SimpleQueueService.NonExistentQueue", "QueueDoesNotExist")
_NO_ATTRIBUTES = frozenset({"QueueName", "Tags"})
# What an attribute is when the template no longer sets it (API reference, SetQueueAttributes).
_DEFAULTS = {
    "DelaySeconds": "0",
    "MaximumMessageSize": "262144",
    "MessageRetentionPeriod": "345600",
    "ReceiveMessageWaitTimeSeconds": "0",
    "VisibilityTimeout": "30",
}


class Queue:
    """A queue."""

    def create(self, ctx: ResourceContext, logical_id: str, properties: Properties) -> Created:
        """Create the queue."""
        fifo = str(properties.get("FifoQueue", False)).lower() == "true"
        name = properties.get("QueueName") or generated_name(ctx, logical_id, 75) + (".fifo" if fifo else "")
        request = {
            "QueueName": name,
            "Attributes": _attributes(properties) or None,
            "tags": merged_tags(ctx, properties) or None,
        }
        url = send(ctx, "sqs", "CreateQueue", request)["QueueUrl"]
        return _described(ctx, url)

    def update(self, ctx: ResourceContext, physical_id: str, old: Properties, new: Properties) -> Created:
        """Set what changed; removed properties return to their defaults."""
        unset = {name: _DEFAULTS.get(name, "") for name in _attributes(old) if name not in new}
        changed = {**unset, **_attributes(new)}
        changed.pop("FifoQueue", None)
        if changed:
            send(ctx, "sqs", "SetQueueAttributes", {"QueueUrl": physical_id, "Attributes": changed})
        queue = {"QueueUrl": physical_id}
        retag(ctx, "sqs", queue, old, new, tag="TagQueue", untag="UntagQueue", form=dict)
        return _described(ctx, physical_id)

    def delete(self, ctx: ResourceContext, physical_id: str, properties: Properties) -> None:
        """Delete the queue with its messages."""
        with gone_is_fine(*_GONE):
            send(ctx, "sqs", "DeleteQueue", {"QueueUrl": physical_id})


def _attributes(properties: Properties) -> dict[str, Any]:
    return {name: value for name, value in properties.items() if name not in _NO_ATTRIBUTES}


def _described(ctx: ResourceContext, url: str) -> Created:
    name = url.rsplit("/", 1)[-1]
    arn = f"arn:{ctx.partition}:sqs:{ctx.region}:{ctx.account}:{name}"
    return Created(url, {"Arn": arn, "QueueName": name, "QueueUrl": url})


class QueuePolicy:
    """One policy for several queues."""

    def create(self, ctx: ResourceContext, logical_id: str, properties: Properties) -> Created:
        """Put the policy on each queue."""
        self._put(ctx, properties)
        return Created(generated_name(ctx, logical_id, 128))

    def update(self, ctx: ResourceContext, physical_id: str, old: Properties, new: Properties) -> Created:
        """Put the new policy, and remove the old one from queues that no longer have it."""
        self._put(ctx, new)
        left = [queue for queue in old["Queues"] if queue not in new["Queues"]]
        self.delete(ctx, physical_id, {"Queues": left})
        return Created(physical_id)

    def delete(self, ctx: ResourceContext, physical_id: str, properties: Properties) -> None:
        """Remove the policy from each queue."""
        for queue in properties["Queues"]:
            with gone_is_fine(*_GONE):
                send(ctx, "sqs", "SetQueueAttributes", {"QueueUrl": queue, "Attributes": {"Policy": ""}})

    def _put(self, ctx: ResourceContext, properties: Properties) -> None:
        policy = {"Policy": properties["PolicyDocument"]}
        for queue in properties["Queues"]:
            send(ctx, "sqs", "SetQueueAttributes", {"QueueUrl": queue, "Attributes": policy})


KINDS: dict[str, Kind] = {"AWS::SQS::Queue": Queue(), "AWS::SQS::QueuePolicy": QueuePolicy()}
