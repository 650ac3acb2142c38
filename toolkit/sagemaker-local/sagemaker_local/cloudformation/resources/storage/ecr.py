"""AWS::ECR::Repository, as `cdk bootstrap` creates it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from sagemaker_local.cloudformation.resources.base import (
    Created,
    Kind,
    Properties,
    ResourceContext,
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

_GONE = "RepositoryNotFoundException"
_KNOWN = frozenset(
    {
        "RepositoryName",
        "ImageTagMutability",
        "ImageScanningConfiguration",
        "LifecyclePolicy",
        "RepositoryPolicyText",
        "EncryptionConfiguration",
        "EmptyOnDelete",
        "Tags",
    }
)


class Repository:
    """A repository of container images."""

    def create(self, ctx: ResourceContext, logical_id: str, properties: Properties) -> Created:
        """Create the repository with its policies."""
        refuse_others(properties, _KNOWN, "AWS::ECR::Repository")
        name = properties.get("RepositoryName") or generated_name(ctx, logical_id, 256, lower=True)
        request = {
            "repositoryName": name,
            "imageTagMutability": properties.get("ImageTagMutability"),
            "imageScanningConfiguration": properties.get("ImageScanningConfiguration"),
            "encryptionConfiguration": properties.get("EncryptionConfiguration"),
            "tags": tag_list(merged_tags(ctx, properties)) or None,
        }
        made = send(ctx, "ecr", "CreateRepository", request)["repository"]
        self._policies(ctx, name, {}, properties)
        return _described(made)

    def update(self, ctx: ResourceContext, physical_id: str, old: Properties, new: Properties) -> Created:
        """Change what can be changed in place."""
        refuse_others(new, _KNOWN, "AWS::ECR::Repository")
        kept = send(ctx, "ecr", "DescribeRepositories", {"repositoryNames": [physical_id]})["repositories"][0]
        mutability = new.get("ImageTagMutability", "MUTABLE")
        scanning = new.get("ImageScanningConfiguration", {"ScanOnPush": False})
        named = {"repositoryName": physical_id}
        send(ctx, "ecr", "PutImageTagMutability", {**named, "imageTagMutability": mutability})
        send(ctx, "ecr", "PutImageScanningConfiguration", {**named, "imageScanningConfiguration": scanning})
        self._policies(ctx, physical_id, old, new)
        retag(ctx, "ecr", {"resourceArn": kept["repositoryArn"]}, old, new)
        return _described(kept)

    def delete(self, ctx: ResourceContext, physical_id: str, properties: Properties) -> None:
        """Delete the repository; with images only if EmptyOnDelete is true."""
        force = properties.get("EmptyOnDelete", False)
        with gone_is_fine(_GONE):
            send(ctx, "ecr", "DeleteRepository", {"repositoryName": physical_id, "force": force})

    def _policies(self, ctx: ResourceContext, name: str, old: Properties, new: Properties) -> None:
        def each(prop: str, member: str, put: str, remove: str, read: Callable[[Any], Any]) -> None:
            if prop in new and new[prop] != old.get(prop):
                send(ctx, "ecr", put, {"repositoryName": name, member: read(new[prop])})
            elif prop in old and prop not in new:
                send(ctx, "ecr", remove, {"repositoryName": name})

        each(
            "LifecyclePolicy",
            "lifecyclePolicyText",
            "PutLifecyclePolicy",
            "DeleteLifecyclePolicy",
            lambda value: value["LifecyclePolicyText"],
        )
        each(
            "RepositoryPolicyText",
            "policyText",
            "SetRepositoryPolicy",
            "DeleteRepositoryPolicy",
            lambda value: value,
        )


def _described(repository: dict[str, Any]) -> Created:
    attributes = {"Arn": repository["repositoryArn"], "RepositoryUri": repository["repositoryUri"]}
    return Created(repository["repositoryName"], attributes)


KINDS: dict[str, Kind] = {"AWS::ECR::Repository": Repository()}
