"""AWS::SNS::Topic, AWS::SNS::TopicPolicy and AWS::SNS::Subscription."""

from __future__ import annotations

from typing import Any

from sagemaker_local.cloudformation.resources.base import (
    Created,
    Kind,
    Properties,
    ResourceContext,
    ResourceFailure,
    generated_name,
)
from sagemaker_local.cloudformation.resources.calls import (
    gone_is_fine,
    merged_tags,
    refuse_others,
    retag,
    send,
    tag_list,
)

_GONE = ("NotFound", "NotFoundException")
_TOPIC_ATTRIBUTES = (
    "DisplayName",
    "KmsMasterKeyId",
    "SignatureVersion",
    "TracingConfig",
    "ContentBasedDeduplication",
    "FifoTopic",
)
_TOPIC_KNOWN = frozenset({*_TOPIC_ATTRIBUTES, "TopicName", "Subscription", "Tags"})
_SUBSCRIPTION_ATTRIBUTES = (
    "RawMessageDelivery",
    "FilterPolicy",
    "FilterPolicyScope",
    "DeliveryPolicy",
    "RedrivePolicy",
)
_SUBSCRIPTION_KNOWN = {*_SUBSCRIPTION_ATTRIBUTES, "TopicArn", "Protocol", "Endpoint"}
_NOBODY = {"Version": "2008-10-17", "Statement": []}


class Topic:
    """A topic, with the subscriptions that it names itself."""

    def create(self, ctx: ResourceContext, logical_id: str, properties: Properties) -> Created:
        """Create the topic; CloudFormation refuses an existing one, although SNS returns it."""
        refuse_others(properties, _TOPIC_KNOWN, "AWS::SNS::Topic")
        name = properties.get("TopicName") or generated_name(ctx, logical_id, 256)
        arn = f"arn:{ctx.partition}:sns:{ctx.region}:{ctx.account}:{name}"
        with gone_is_fine(*_GONE):
            send(ctx, "sns", "GetTopicAttributes", {"TopicArn": arn})
            raise ResourceFailure(f"{name} already exists")
        attributes = {key: properties[key] for key in _TOPIC_ATTRIBUTES if key in properties}
        tags = tag_list(merged_tags(ctx, properties)) or None
        send(ctx, "sns", "CreateTopic", {"Name": name, "Attributes": attributes or None, "Tags": tags})
        self._subscribe(ctx, arn, {}, properties)
        return Created(arn, {"TopicArn": arn, "TopicName": name})

    def update(self, ctx: ResourceContext, physical_id: str, old: Properties, new: Properties) -> Created:
        """Set what changed."""
        refuse_others(new, _TOPIC_KNOWN, "AWS::SNS::Topic")
        for key in _TOPIC_ATTRIBUTES:
            if old.get(key) != new.get(key):
                _set_topic(ctx, physical_id, key, new.get(key, ""))
        retag(ctx, "sns", {"ResourceArn": physical_id}, old, new)
        self._subscribe(ctx, physical_id, old, new)
        return Created(physical_id, {"TopicArn": physical_id, "TopicName": physical_id.rsplit(":", 1)[-1]})

    def delete(self, ctx: ResourceContext, physical_id: str, properties: Properties) -> None:
        """Delete the topic with its subscriptions."""
        with gone_is_fine(*_GONE):
            send(ctx, "sns", "DeleteTopic", {"TopicArn": physical_id})

    def _subscribe(self, ctx: ResourceContext, arn: str, old: Properties, new: Properties) -> None:
        before, after = old.get("Subscription", []), new.get("Subscription", [])
        for said in [said for said in after if said not in before]:
            send(ctx, "sns", "Subscribe", {"TopicArn": arn, **said})
        gone = [(said["Protocol"], said["Endpoint"]) for said in before if said not in after]
        if gone:
            for kept in send(ctx, "sns", "ListSubscriptionsByTopic", {"TopicArn": arn})["Subscriptions"]:
                if (kept["Protocol"], kept["Endpoint"]) in gone:
                    send(ctx, "sns", "Unsubscribe", {"SubscriptionArn": kept["SubscriptionArn"]})


class TopicPolicy:
    """One policy for several topics."""

    def create(self, ctx: ResourceContext, logical_id: str, properties: Properties) -> Created:
        """Put the policy on each topic."""
        for topic in properties["Topics"]:
            _set_topic(ctx, topic, "Policy", properties["PolicyDocument"])
        return Created(generated_name(ctx, logical_id, 128))

    def update(self, ctx: ResourceContext, physical_id: str, old: Properties, new: Properties) -> Created:
        """Put the new policy, and remove the old one from topics that no longer have it."""
        self.create(ctx, "", new)
        left = [topic for topic in old["Topics"] if topic not in new["Topics"]]
        self.delete(ctx, physical_id, {"Topics": left})
        return Created(physical_id)

    def delete(self, ctx: ResourceContext, physical_id: str, properties: Properties) -> None:
        """Set each topic's policy to one that allows nothing."""
        for topic in properties["Topics"]:
            with gone_is_fine(*_GONE):
                _set_topic(ctx, topic, "Policy", _NOBODY)


class Subscription:
    """A subscription."""

    def create(self, ctx: ResourceContext, logical_id: str, properties: Properties) -> Created:
        """Subscribe; topics of other regions are out of reach here."""
        refuse_others(properties, _SUBSCRIPTION_KNOWN, "AWS::SNS::Subscription")
        request = {
            "TopicArn": properties["TopicArn"],
            "Protocol": properties["Protocol"],
            "Endpoint": properties.get("Endpoint"),
            "Attributes": {key: properties[key] for key in _SUBSCRIPTION_ATTRIBUTES if key in properties}
            or None,
            "ReturnSubscriptionArn": True,
        }
        arn = send(ctx, "sns", "Subscribe", request)["SubscriptionArn"]
        return Created(arn, {"Arn": arn})

    def update(self, ctx: ResourceContext, physical_id: str, old: Properties, new: Properties) -> Created:
        """Set what changed."""
        refuse_others(new, _SUBSCRIPTION_KNOWN, "AWS::SNS::Subscription")
        for key in _SUBSCRIPTION_ATTRIBUTES:
            if old.get(key) != new.get(key):
                said: dict[str, Any] = {"AttributeName": key, "AttributeValue": new.get(key, "")}
                send(ctx, "sns", "SetSubscriptionAttributes", {"SubscriptionArn": physical_id, **said})
        return Created(physical_id, {"Arn": physical_id})

    def delete(self, ctx: ResourceContext, physical_id: str, properties: Properties) -> None:
        """Unsubscribe."""
        with gone_is_fine(*_GONE):
            send(ctx, "sns", "Unsubscribe", {"SubscriptionArn": physical_id})


def _set_topic(ctx: ResourceContext, topic: str, name: str, value: Any) -> None:
    said = {"TopicArn": topic, "AttributeName": name, "AttributeValue": value}
    send(ctx, "sns", "SetTopicAttributes", said)


KINDS: dict[str, Kind] = {
    "AWS::SNS::Topic": Topic(),
    "AWS::SNS::TopicPolicy": TopicPolicy(),
    "AWS::SNS::Subscription": Subscription(),
}
