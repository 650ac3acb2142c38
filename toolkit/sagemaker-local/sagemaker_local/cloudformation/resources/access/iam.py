"""AWS::IAM::Role, AWS::IAM::Policy and AWS::IAM::ManagedPolicy."""

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
    retag,
    send,
    tag_list,
)

_GONE = ("NoSuchEntity",)


class Role:
    """A role with its inline policies and attached ones."""

    def create(self, ctx: ResourceContext, logical_id: str, properties: Properties) -> Created:
        """Create the role and its policies; delete them again if one is refused."""
        name = properties.get("RoleName") or generated_name(ctx, logical_id, 64)
        request = {
            "RoleName": name,
            "AssumeRolePolicyDocument": properties["AssumeRolePolicyDocument"],
            "Path": properties.get("Path"),
            "Description": properties.get("Description"),
            "MaxSessionDuration": properties.get("MaxSessionDuration"),
            "PermissionsBoundary": properties.get("PermissionsBoundary"),
            "Tags": tag_list(merged_tags(ctx, properties)) or None,
        }
        made = send(ctx, "iam", "CreateRole", request)["Role"]
        try:
            self._policies(ctx, name, {}, properties)
        except Exception:
            self.delete(ctx, name, properties)
            raise
        return Created(name, {"Arn": made["Arn"], "RoleId": made["RoleId"]})

    def update(self, ctx: ResourceContext, physical_id: str, old: Properties, new: Properties) -> Created:
        """Change everything but name and path in place."""
        role = {"RoleName": physical_id}
        document = new["AssumeRolePolicyDocument"]
        send(ctx, "iam", "UpdateAssumeRolePolicy", {**role, "PolicyDocument": document})
        about = {
            "Description": new.get("Description", ""),
            "MaxSessionDuration": new.get("MaxSessionDuration", 3600),
        }
        send(ctx, "iam", "UpdateRole", {**role, **about})
        if new.get("PermissionsBoundary") != old.get("PermissionsBoundary"):
            self._boundary(ctx, physical_id, new.get("PermissionsBoundary"))
        self._policies(ctx, physical_id, old, new)
        retag(ctx, "iam", role, old, new, tag="TagRole", untag="UntagRole")
        kept = send(ctx, "iam", "GetRole", role)["Role"]
        return Created(physical_id, {"Arn": kept["Arn"], "RoleId": kept["RoleId"]})

    def delete(self, ctx: ResourceContext, physical_id: str, properties: Properties) -> None:
        """Delete the role with the policies that this resource gave it; others' policies block it."""
        role = {"RoleName": physical_id}
        for policy in properties.get("Policies", []):
            with gone_is_fine(*_GONE):
                send(ctx, "iam", "DeleteRolePolicy", {**role, "PolicyName": policy["PolicyName"]})
        for arn in properties.get("ManagedPolicyArns", []):
            with gone_is_fine(*_GONE):
                send(ctx, "iam", "DetachRolePolicy", {**role, "PolicyArn": arn})
        with gone_is_fine(*_GONE):
            send(ctx, "iam", "DeleteRole", role)

    def _policies(self, ctx: ResourceContext, name: str, old: Properties, new: Properties) -> None:
        role = {"RoleName": name}
        before = {policy["PolicyName"]: policy for policy in old.get("Policies", [])}
        after = {policy["PolicyName"]: policy for policy in new.get("Policies", [])}
        for gone in before.keys() - after.keys():
            with gone_is_fine(*_GONE):
                send(ctx, "iam", "DeleteRolePolicy", {**role, "PolicyName": gone})
        for policy in after.values():
            send(ctx, "iam", "PutRolePolicy", {**role, **policy})
        attached, wanted = old.get("ManagedPolicyArns", []), new.get("ManagedPolicyArns", [])
        for arn in [arn for arn in attached if arn not in wanted]:
            with gone_is_fine(*_GONE):
                send(ctx, "iam", "DetachRolePolicy", {**role, "PolicyArn": arn})
        for arn in [arn for arn in wanted if arn not in attached]:
            send(ctx, "iam", "AttachRolePolicy", {**role, "PolicyArn": arn})

    def _boundary(self, ctx: ResourceContext, name: str, arn: str | None) -> None:
        if arn is None:
            send(ctx, "iam", "DeleteRolePermissionsBoundary", {"RoleName": name})
        else:
            boundary = {"RoleName": name, "PermissionsBoundary": arn}
            send(ctx, "iam", "PutRolePermissionsBoundary", boundary)


class Policy:
    """An inline policy of roles; users and groups are refused."""

    def create(self, ctx: ResourceContext, logical_id: str, properties: Properties) -> Created:
        """Put the policy into each role."""
        roles = _roles(properties)
        for role in roles:
            self._put(ctx, role, properties)
        return Created(generated_name(ctx, logical_id, 64))

    def update(self, ctx: ResourceContext, physical_id: str, old: Properties, new: Properties) -> Created:
        """Put the new policy, and remove the old one from roles that no longer have it."""
        roles = _roles(new)
        for role in roles:
            self._put(ctx, role, new)
        renamed = old["PolicyName"] != new["PolicyName"]
        for role in _roles(old):
            if renamed or role not in roles:
                self._remove(ctx, role, old)
        return Created(physical_id)

    def delete(self, ctx: ResourceContext, physical_id: str, properties: Properties) -> None:
        """Remove the policy from each role."""
        for role in _roles(properties):
            self._remove(ctx, role, properties)

    def _put(self, ctx: ResourceContext, role: str, properties: Properties) -> None:
        policy = {"PolicyName": properties["PolicyName"], "PolicyDocument": properties["PolicyDocument"]}
        send(ctx, "iam", "PutRolePolicy", {"RoleName": role, **policy})

    def _remove(self, ctx: ResourceContext, role: str, properties: Properties) -> None:
        with gone_is_fine(*_GONE):
            named = {"RoleName": role, "PolicyName": properties["PolicyName"]}
            send(ctx, "iam", "DeleteRolePolicy", named)


def _roles(properties: Properties) -> list[str]:
    if properties.get("Users") or properties.get("Groups"):
        raise ResourceFailure(
            "the local CloudFormation attaches policies to roles only, not to users or groups"
        )
    roles = [str(role) for role in properties.get("Roles", [])]
    if not roles:
        raise ResourceFailure("At least one of [Groups,Roles,Users] must be non-empty.")
    return roles


class ManagedPolicy:
    """A policy of its own, attached to roles."""

    def create(self, ctx: ResourceContext, logical_id: str, properties: Properties) -> Created:
        """Create the policy and attach it."""
        request = {
            "PolicyName": properties.get("ManagedPolicyName") or generated_name(ctx, logical_id, 128),
            "PolicyDocument": properties["PolicyDocument"],
            "Description": properties.get("Description"),
            "Path": properties.get("Path"),
        }
        made = send(ctx, "iam", "CreatePolicy", request)["Policy"]
        self._attach(ctx, made["Arn"], {}, properties)
        return _described(made)

    def update(self, ctx: ResourceContext, physical_id: str, old: Properties, new: Properties) -> Created:
        """Create a new default version of the policy; delete the earlier ones."""
        if new["PolicyDocument"] != old["PolicyDocument"]:
            version = {
                "PolicyArn": physical_id,
                "PolicyDocument": new["PolicyDocument"],
                "SetAsDefault": True,
            }
            send(ctx, "iam", "CreatePolicyVersion", version)
            self._prune(ctx, physical_id)
        self._attach(ctx, physical_id, old, new)
        return _described(send(ctx, "iam", "GetPolicy", {"PolicyArn": physical_id})["Policy"])

    def delete(self, ctx: ResourceContext, physical_id: str, properties: Properties) -> None:
        """Detach the policy from where this resource attached it, and delete it."""
        self._attach(ctx, physical_id, properties, {})
        with gone_is_fine(*_GONE):
            self._prune(ctx, physical_id)
            send(ctx, "iam", "DeletePolicy", {"PolicyArn": physical_id})

    def _prune(self, ctx: ResourceContext, arn: str) -> None:
        for version in send(ctx, "iam", "ListPolicyVersions", {"PolicyArn": arn})["Versions"]:
            if not version["IsDefaultVersion"]:
                old = {"PolicyArn": arn, "VersionId": version["VersionId"]}
                send(ctx, "iam", "DeletePolicyVersion", old)

    def _attach(self, ctx: ResourceContext, arn: str, old: Properties, new: Properties) -> None:
        if new.get("Users") or new.get("Groups"):
            raise ResourceFailure("the local CloudFormation attaches policies to roles only")
        before, after = old.get("Roles", []), new.get("Roles", [])
        for role in [role for role in before if role not in after]:
            with gone_is_fine(*_GONE):
                send(ctx, "iam", "DetachRolePolicy", {"RoleName": role, "PolicyArn": arn})
        for role in [role for role in after if role not in before]:
            send(ctx, "iam", "AttachRolePolicy", {"RoleName": role, "PolicyArn": arn})


def _described(policy: dict[str, Any]) -> Created:
    attributes = {
        "PolicyArn": policy["Arn"],
        "PolicyId": policy["PolicyId"],
        "DefaultVersionId": policy["DefaultVersionId"],
        "IsAttachable": True,
    }
    return Created(policy["Arn"], attributes)


KINDS: dict[str, Kind] = {
    "AWS::IAM::Role": Role(),
    "AWS::IAM::Policy": Policy(),
    "AWS::IAM::ManagedPolicy": ManagedPolicy(),
}
