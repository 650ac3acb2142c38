"""AWS::S3::Bucket."""

from __future__ import annotations

from collections.abc import Mapping
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
    send,
    tag_list,
)

_GONE = ("NoSuchBucket", "404")
# Each property with the operation that sets it, the member that carries it, and the one that removes it.
_SETTINGS: Mapping[str, tuple[str, str, str | None]] = {
    "BucketEncryption": (
        "PutBucketEncryption",
        "ServerSideEncryptionConfiguration",
        "DeleteBucketEncryption",
    ),
    "VersioningConfiguration": ("PutBucketVersioning", "VersioningConfiguration", None),
    "PublicAccessBlockConfiguration": (
        "PutPublicAccessBlock",
        "PublicAccessBlockConfiguration",
        "DeletePublicAccessBlock",
    ),
    "LifecycleConfiguration": (
        "PutBucketLifecycleConfiguration",
        "LifecycleConfiguration",
        "DeleteBucketLifecycle",
    ),
    "OwnershipControls": ("PutBucketOwnershipControls", "OwnershipControls", "DeleteBucketOwnershipControls"),
    "LoggingConfiguration": ("PutBucketLogging", "BucketLoggingStatus", None),
}
_ACLS = {
    "Private": "private",
    "PublicRead": "public-read",
    "AuthenticatedRead": "authenticated-read",
    "LogDeliveryWrite": "log-delivery-write",
    "BucketOwnerRead": "bucket-owner-read",
    "BucketOwnerFullControl": "bucket-owner-full-control",
}
_KNOWN = {*_SETTINGS, "BucketName", "AccessControl", "Tags"}
# What a lifecycle rule is called in a template, and in the API.
_RULE_NAMES = {
    "Id": "ID",
    "NoncurrentVersionExpiration": "NoncurrentVersionExpiration",
    "AbortIncompleteMultipartUpload": "AbortIncompleteMultipartUpload",
    "Status": "Status",
    "Prefix": "Prefix",
}
_RULE_KNOWN = {
    *_RULE_NAMES,
    "ExpirationInDays",
    "ExpiredObjectDeleteMarker",
    "NoncurrentVersionExpirationInDays",
}


class Bucket:
    """A bucket."""

    def create(self, ctx: ResourceContext, logical_id: str, properties: Properties) -> Created:
        """Create the bucket, then apply its properties."""
        name = properties.get("BucketName") or generated_name(ctx, logical_id, 63, lower=True)
        where = {} if ctx.region == "us-east-1" else {"LocationConstraint": ctx.region}
        send(ctx, "s3", "CreateBucket", {"Bucket": name, "CreateBucketConfiguration": where or None})
        self._set(ctx, name, {}, properties)
        return _described(ctx, name)

    def update(self, ctx: ResourceContext, physical_id: str, old: Properties, new: Properties) -> Created:
        """Set what changed."""
        self._set(ctx, physical_id, old, new)
        return _described(ctx, physical_id)

    def delete(self, ctx: ResourceContext, physical_id: str, properties: Properties) -> None:
        """Delete the bucket; AWS refuses one that is not empty."""
        with gone_is_fine(*_GONE):
            send(ctx, "s3", "DeleteBucket", {"Bucket": physical_id})

    def _set(self, ctx: ResourceContext, name: str, old: Properties, new: Properties) -> None:
        refuse_others(new, _KNOWN, "AWS::S3::Bucket")
        for prop, (operation, member, remover) in _SETTINGS.items():
            if prop in new and new[prop] != old.get(prop):
                send(ctx, "s3", operation, {"Bucket": name, member: _setting(prop, new[prop])})
            elif prop in old and prop not in new:
                _unset(ctx, name, prop, remover)
        control, before = new.get("AccessControl", "Private"), old.get("AccessControl", "Private")
        if control != before:
            if control not in _ACLS:
                raise ResourceFailure(f"AccessControl: found {control}; allowed: {', '.join(_ACLS)}")
            send(ctx, "s3", "PutBucketAcl", {"Bucket": name, "ACL": _ACLS[control]})
        tags = merged_tags(ctx, new)
        if tags:
            send(ctx, "s3", "PutBucketTagging", {"Bucket": name, "Tagging": {"TagSet": tag_list(tags)}})
        elif old.get("Tags"):
            send(ctx, "s3", "DeleteBucketTagging", {"Bucket": name})


def _unset(ctx: ResourceContext, name: str, prop: str, remover: str | None) -> None:
    if remover is not None:
        send(ctx, "s3", remover, {"Bucket": name})
    elif prop == "VersioningConfiguration":
        suspended = {"Status": "Suspended"}
        send(ctx, "s3", "PutBucketVersioning", {"Bucket": name, "VersioningConfiguration": suspended})
    else:
        send(ctx, "s3", "PutBucketLogging", {"Bucket": name, "BucketLoggingStatus": {}})


def _setting(prop: str, value: Any) -> Any:
    match prop:
        case "BucketEncryption":
            rules = [
                {
                    "ApplyServerSideEncryptionByDefault": rule.get("ServerSideEncryptionByDefault"),
                    "BucketKeyEnabled": rule.get("BucketKeyEnabled"),
                }
                for rule in value["ServerSideEncryptionConfiguration"]
            ]
            return {"Rules": rules}
        case "LifecycleConfiguration":
            return {"Rules": [_rule(rule) for rule in value["Rules"]]}
        case "LoggingConfiguration":
            target = value.get("DestinationBucketName")
            prefix = value.get("LogFilePrefix", "")
            return {"LoggingEnabled": {"TargetBucket": target, "TargetPrefix": prefix}} if target else {}
    return value


def _rule(rule: Mapping[str, Any]) -> dict[str, Any]:
    """Word a lifecycle rule as the API does."""
    refuse_others(rule, _RULE_KNOWN, "a lifecycle rule")
    said = {api: rule[name] for name, api in _RULE_NAMES.items() if name in rule}
    said["Filter"] = {"Prefix": said.pop("Prefix", "")}
    if "ExpirationInDays" in rule or "ExpiredObjectDeleteMarker" in rule:
        said["Expiration"] = {
            "Days": rule.get("ExpirationInDays"),
            "ExpiredObjectDeleteMarker": rule.get("ExpiredObjectDeleteMarker"),
        }
    if "NoncurrentVersionExpirationInDays" in rule:
        said["NoncurrentVersionExpiration"] = {"NoncurrentDays": rule["NoncurrentVersionExpirationInDays"]}
    return said


def _described(ctx: ResourceContext, name: str) -> Created:
    suffix = "amazonaws.com"
    return Created(
        name,
        {
            "Arn": f"arn:{ctx.partition}:s3:::{name}",
            "DomainName": f"{name}.s3.{suffix}",
            "DualStackDomainName": f"{name}.s3.dualstack.{ctx.region}.{suffix}",
            "RegionalDomainName": f"{name}.s3.{ctx.region}.{suffix}",
            "WebsiteURL": f"http://{name}.s3-website-{ctx.region}.{suffix}",
        },
    )


KINDS: dict[str, Kind] = {"AWS::S3::Bucket": Bucket()}
