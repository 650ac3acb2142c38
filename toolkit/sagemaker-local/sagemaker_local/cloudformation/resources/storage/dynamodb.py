"""AWS::DynamoDB::Table."""

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

_CREATED_WITH = (
    "AttributeDefinitions",
    "KeySchema",
    "BillingMode",
    "ProvisionedThroughput",
    "GlobalSecondaryIndexes",
    "LocalSecondaryIndexes",
    "StreamSpecification",
    "TableClass",
    "DeletionProtectionEnabled",
    "OnDemandThroughput",
)
_IN_PLACE = ("BillingMode", "ProvisionedThroughput", "DeletionProtectionEnabled", "TableClass")
_KNOWN = {
    *_CREATED_WITH,
    "TableName",
    "SSESpecification",
    "TimeToLiveSpecification",
    "PointInTimeRecoverySpecification",
    "Tags",
}


class Table:
    """A table."""

    def create(self, ctx: ResourceContext, logical_id: str, properties: Properties) -> Created:
        """Create the table."""
        refuse_others(properties, _KNOWN, "AWS::DynamoDB::Table")
        name = properties.get("TableName") or generated_name(ctx, logical_id, 255)
        request = {
            "TableName": name,
            **{key: properties.get(key) for key in _CREATED_WITH},
            "SSESpecification": _encryption(properties),
            "Tags": tag_list(merged_tags(ctx, properties)) or None,
        }
        made = send(ctx, "dynamodb", "CreateTable", request)["TableDescription"]
        self._features(ctx, name, {}, properties)
        return _described(made)

    def update(self, ctx: ResourceContext, physical_id: str, old: Properties, new: Properties) -> Created:
        """Change what the local CloudFormation can change in place."""
        refuse_others(new, _KNOWN, "AWS::DynamoDB::Table")
        fixed = set(_CREATED_WITH) - set(_IN_PLACE)
        changed = sorted(key for key in fixed if old.get(key) != new.get(key))
        if changed:
            raise ResourceFailure(f"the local CloudFormation does not change {', '.join(changed)} of a table")
        request = {key: new.get(key) for key in _IN_PLACE if old.get(key) != new.get(key)}
        if old.get("SSESpecification") != new.get("SSESpecification"):
            request["SSESpecification"] = _encryption(new) or {"Enabled": False}
        table = {"TableName": physical_id}
        if request:
            send(ctx, "dynamodb", "UpdateTable", {**table, **request})
        self._features(ctx, physical_id, old, new)
        kept = send(ctx, "dynamodb", "DescribeTable", table)["Table"]
        retag(ctx, "dynamodb", {"ResourceArn": kept["TableArn"]}, old, new)
        return _described(kept)

    def delete(self, ctx: ResourceContext, physical_id: str, properties: Properties) -> None:
        """Delete the table with its items."""
        with gone_is_fine("ResourceNotFoundException"):
            send(ctx, "dynamodb", "DeleteTable", {"TableName": physical_id})

    def _features(self, ctx: ResourceContext, name: str, old: Properties, new: Properties) -> None:
        expiry, expired = new.get("TimeToLiveSpecification"), old.get("TimeToLiveSpecification")
        if expiry != expired:
            said = expiry or {**(expired or {}), "Enabled": False}
            request = {"TableName": name, "TimeToLiveSpecification": said}
            send(ctx, "dynamodb", "UpdateTimeToLive", request)
        recovery = new.get("PointInTimeRecoverySpecification")
        if recovery != old.get("PointInTimeRecoverySpecification"):
            said = recovery or {"PointInTimeRecoveryEnabled": False}
            request = {"TableName": name, "PointInTimeRecoverySpecification": said}
            send(ctx, "dynamodb", "UpdateContinuousBackups", request)


def _encryption(properties: Properties) -> dict[str, Any] | None:
    said = properties.get("SSESpecification")
    if said is None:
        return None
    named = {key: said[key] for key in ("SSEType", "KMSMasterKeyId") if key in said}
    return {"Enabled": said["SSEEnabled"], **named}


def _described(table: dict[str, Any]) -> Created:
    attributes = {"Arn": table["TableArn"]}
    if "LatestStreamArn" in table:
        attributes["StreamArn"] = table["LatestStreamArn"]
    return Created(table["TableName"], attributes)


KINDS: dict[str, Kind] = {"AWS::DynamoDB::Table": Table()}
