"""AWS::KMS::Key."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sagemaker_local.cloudformation.resources.base import (
    Created,
    Kind,
    Properties,
    ResourceContext,
    ResourceFailure,
)
from sagemaker_local.cloudformation.resources.calls import (
    gone_is_fine,
    merged_tags,
    retag,
    send,
    tag_list,
)

_FIXED = ("KeySpec", "KeyUsage", "MultiRegion", "Origin")
_DEFAULT_WINDOW_DAYS = 30


class Key:
    """A key."""

    def create(self, ctx: ResourceContext, logical_id: str, properties: Properties) -> Created:
        """Create the key."""
        request = {
            "Policy": properties.get("KeyPolicy"),
            "Description": properties.get("Description"),
            "BypassPolicyLockoutSafetyCheck": properties.get("BypassPolicyLockoutSafetyCheck"),
            **{name: properties.get(name) for name in _FIXED},
            "Tags": _tags(merged_tags(ctx, properties)) or None,
        }
        made = send(ctx, "kms", "CreateKey", request)["KeyMetadata"]
        self._switches(ctx, made["KeyId"], {}, properties)
        return _described(made)

    def update(self, ctx: ResourceContext, physical_id: str, old: Properties, new: Properties) -> Created:
        """Change what can be changed; a key's kind cannot."""
        changed = [name for name in _FIXED if old.get(name) != new.get(name)]
        if changed:
            raise ResourceFailure(f"You cannot update the {', '.join(changed)} of a KMS key.")
        key = {"KeyId": physical_id}
        send(ctx, "kms", "UpdateKeyDescription", {**key, "Description": new.get("Description", "")})
        if "KeyPolicy" in new:
            send(ctx, "kms", "PutKeyPolicy", {**key, "PolicyName": "default", "Policy": new["KeyPolicy"]})
        self._switches(ctx, physical_id, old, new)
        retag(ctx, "kms", key, old, new, form=_tags)
        return _described(send(ctx, "kms", "DescribeKey", key)["KeyMetadata"])

    def delete(self, ctx: ResourceContext, physical_id: str, properties: Properties) -> None:
        """Schedule the key's deletion, as CloudFormation does."""
        days = properties.get("PendingWindowInDays", _DEFAULT_WINDOW_DAYS)
        with gone_is_fine("NotFoundException", "KMSInvalidStateException"):
            send(ctx, "kms", "ScheduleKeyDeletion", {"KeyId": physical_id, "PendingWindowInDays": days})

    def _switches(self, ctx: ResourceContext, key: str, old: Properties, new: Properties) -> None:
        rotate, rotated = _is_on(new, "EnableKeyRotation", False), _is_on(old, "EnableKeyRotation", False)
        if rotate:
            request = {"KeyId": key, "RotationPeriodInDays": new.get("RotationPeriodInDays")}
            send(ctx, "kms", "EnableKeyRotation", request)
        elif rotated:
            send(ctx, "kms", "DisableKeyRotation", {"KeyId": key})
        enabled = _is_on(new, "Enabled", True)
        if enabled != _is_on(old, "Enabled", True):
            send(ctx, "kms", "EnableKey" if enabled else "DisableKey", {"KeyId": key})


def _tags(tags: Mapping[str, str]) -> list[dict[str, str]]:
    return tag_list(tags, "TagKey", "TagValue")


def _is_on(properties: Properties, name: str, default: bool) -> bool:
    return str(properties.get(name, default)).lower() == "true"


def _described(metadata: dict[str, Any]) -> Created:
    return Created(metadata["KeyId"], {"Arn": metadata["Arn"], "KeyId": metadata["KeyId"]})


KINDS: dict[str, Kind] = {"AWS::KMS::Key": Key()}
