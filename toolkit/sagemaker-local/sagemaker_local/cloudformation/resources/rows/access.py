"""KMS keys, IAM roles and policies."""

from __future__ import annotations

from sagemaker_local.cloudformation.resources.by_table import (
    Items,
    OnEach,
    Row,
    Setting,
    Tagging,
)
from sagemaker_local.cloudformation.resources.calls import tag_list
from sagemaker_local.cloudformation.resources.rows.addresses import arn_of

_SWITCH_ON, _SWITCH_OFF = (True, "true"), (False, "false")

ROWS: dict[str, Row | OnEach] = {
    "AWS::KMS::Key": Row(
        "kms",
        create="CreateKey",
        delete="ScheduleKeyDeletion",
        gone=("NotFoundException", "KMSInvalidStateException"),
        takes=frozenset({"KeySpec", "KeyUsage", "MultiRegion", "Origin", "PendingWindowInDays"}),
        fixed=("KeySpec", "KeyUsage", "MultiRegion", "Origin"),
        members={"KeyPolicy": "Policy"},
        request=lambda properties: {
            key: item for key, item in properties.items() if key != "PendingWindowInDays"
        },
        ref=lambda name, answer, properties: str(answer["KeyMetadata"]["KeyId"]),
        address=lambda key, properties: {
            "KeyId": key,
            "PendingWindowInDays": properties.get("PendingWindowInDays", 30),
        },
        attributes=arn_of("kms", "key/", KeyId=""),
        settings=(
            Setting("Description", "UpdateKeyDescription", "Description", default="", created=True),
            Setting("KeyPolicy", "PutKeyPolicy", "Policy", more={"PolicyName": "default"}, created=True),
            Setting(
                "EnableKeyRotation",
                "EnableKeyRotation",
                remove="DisableKeyRotation",
                read=lambda value: {},
                off=_SWITCH_OFF,
            ),
            Setting("Enabled", "DisableKey", remove="EnableKey", read=lambda value: {}, off=_SWITCH_ON),
        ),
        tagging=Tagging(form=lambda tags: tag_list(tags, "TagKey", "TagValue")),
    ),
    "AWS::KMS::Alias": Row(
        "kms",
        create="CreateAlias",
        update="UpdateAlias",
        delete="DeleteAlias",
        name="AliasName",
        gone=("NotFoundException",),
    ),
    "AWS::IAM::Role": Row(
        "iam",
        create="CreateRole",
        update="UpdateRole",
        defaults={"Description": "", "MaxSessionDuration": 3600},
        delete="DeleteRole",
        name="RoleName",
        longest=64,
        gone=("NoSuchEntity",),
        takes=frozenset({"Path", "Description", "MaxSessionDuration", "PermissionsBoundary"}),
        fixed=("PermissionsBoundary",),
        attributes=lambda ctx, name, properties: {
            "Arn": f"arn:{ctx.partition}:iam::{ctx.account}:role{properties.get('Path', '/')}{name}"
        },
        settings=(
            Setting("AssumeRolePolicyDocument", "UpdateAssumeRolePolicy", "PolicyDocument", created=True),
            Items(
                "Policies",
                "PutRolePolicy",
                "DeleteRolePolicy",
                attached=dict,
                detached=lambda policy: {"PolicyName": policy["PolicyName"]},
            ),
            Items(
                "ManagedPolicyArns",
                "AttachRolePolicy",
                "DetachRolePolicy",
                attached=lambda arn: {"PolicyArn": arn},
                detached=lambda arn: {"PolicyArn": arn},
            ),
        ),
        tagging=Tagging(tag="TagRole", untag="UntagRole"),
    ),
    "AWS::IAM::ManagedPolicy": Row(
        "iam",
        create="CreatePolicy",
        delete="DeletePolicy",
        name="ManagedPolicyName",
        longest=128,
        gone=("NoSuchEntity",),
        takes=frozenset({"PolicyDocument", "Description", "Path"}),
        fixed=("PolicyDocument",),
        members={"ManagedPolicyName": "PolicyName"},
        ref=lambda name, answer, properties: str(answer["Policy"]["Arn"]),
        address=lambda arn, properties: {"PolicyArn": arn},
        attributes=lambda ctx, arn, properties: {"PolicyArn": arn},
        settings=(
            Items(
                "Roles",
                "AttachRolePolicy",
                "DetachRolePolicy",
                attached=lambda role: {"RoleName": role},
                detached=lambda role: {"RoleName": role},
            ),
        ),
    ),
    "AWS::IAM::Policy": OnEach(
        "iam",
        "Roles",
        put=lambda role, properties: (
            "PutRolePolicy",
            {
                "RoleName": role,
                "PolicyName": properties["PolicyName"],
                "PolicyDocument": properties["PolicyDocument"],
            },
        ),
        remove=lambda role, properties: (
            "DeleteRolePolicy",
            {"RoleName": role, "PolicyName": properties["PolicyName"]},
        ),
        takes=frozenset({"PolicyName", "PolicyDocument"}),
        gone=("NoSuchEntity",),
    ),
}
