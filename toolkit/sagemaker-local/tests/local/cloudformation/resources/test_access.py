"""Roles and policies, and what AWS checks when a role is handed to a service."""

from __future__ import annotations

from typing import Any

import pytest
from botocore.exceptions import ClientError

from sagemaker_local.cloudformation.resources.base import ResourceFailure
from sagemaker_local.cloudformation.resources.calls import check_passed
from tests.local.cloudformation.resources.conftest import Stack

LAMBDA = "lambda.amazonaws.com"


def document(*statements: dict[str, Any]) -> dict[str, Any]:
    return {"Version": "2012-10-17", "Statement": list(statements)}


def allow(action: str, resource: str = "*", **more: Any) -> dict[str, Any]:
    return {"Effect": "Allow", "Action": action, "Resource": resource, **more}


TRUST = document({"Effect": "Allow", "Principal": {"Service": [LAMBDA]}, "Action": "sts:AssumeRole"})


def test_a_role_with_its_policies_is_made_changed_and_deleted(stack: Stack) -> None:
    properties: dict[str, Any] = {
        "RoleName": "changing",
        "AssumeRolePolicyDocument": TRUST,
        "Policies": [{"PolicyName": "one", "PolicyDocument": document(allow("s3:GetObject"))}],
        "ManagedPolicyArns": ["arn:aws:iam::aws:policy/AdministratorAccess"],
    }
    created = stack.create("AWS::IAM::Role", **properties)
    assert created.physical_id == "changing"
    assert created.attributes["Arn"] == "arn:aws:iam::123456789012:role/changing"
    iam = stack.client("iam")
    attached = iam.list_attached_role_policies(RoleName="changing")["AttachedPolicies"]
    assert [policy["PolicyName"] for policy in attached] == ["AdministratorAccess"]
    new = {
        "RoleName": "changing",
        "AssumeRolePolicyDocument": TRUST,
        "Policies": [{"PolicyName": "two", "PolicyDocument": document(allow("s3:PutObject"))}],
        "Tags": [{"Key": "a", "Value": "b"}],
    }
    stack.update("AWS::IAM::Role", created, properties, new)
    assert iam.list_role_policies(RoleName="changing")["PolicyNames"] == ["two"]
    assert iam.list_attached_role_policies(RoleName="changing")["AttachedPolicies"] == []
    stack.delete("AWS::IAM::Role", created, **new)
    stack.delete("AWS::IAM::Role", created, **new)
    with pytest.raises(ClientError, match="NoSuchEntity"):
        iam.get_role(RoleName="changing")


def test_a_role_whose_policy_is_refused_leaves_nothing(stack: Stack) -> None:
    with pytest.raises(ResourceFailure, match="does not exist or is not attachable"):
        stack.create(
            "AWS::IAM::Role",
            RoleName="half",
            AssumeRolePolicyDocument=TRUST,
            ManagedPolicyArns=["arn:aws:iam::aws:policy/NoSuchPolicy"],
        )
    with pytest.raises(ClientError, match="NoSuchEntity"):
        stack.client("iam").get_role(RoleName="half")


def test_a_taken_role_name_is_refused(stack: Stack) -> None:
    stack.create("AWS::IAM::Role", RoleName="taken", AssumeRolePolicyDocument=TRUST)
    with pytest.raises(ResourceFailure, match=r"already exists.*HandlerErrorCode: AlreadyExists"):
        stack.create("AWS::IAM::Role", RoleName="taken", AssumeRolePolicyDocument=TRUST)


def test_an_inline_policy_moves_between_roles(stack: Stack) -> None:
    for name in ("from", "to"):
        stack.create("AWS::IAM::Role", RoleName=name, AssumeRolePolicyDocument=TRUST)
    old = {"PolicyName": "p", "PolicyDocument": document(allow("s3:*")), "Roles": ["from"]}
    created = stack.create("AWS::IAM::Policy", **old)
    stack.update("AWS::IAM::Policy", created, old, {**old, "Roles": ["to"]})
    iam = stack.client("iam")
    assert iam.list_role_policies(RoleName="from")["PolicyNames"] == []
    assert iam.list_role_policies(RoleName="to")["PolicyNames"] == ["p"]
    stack.delete("AWS::IAM::Policy", created, **{**old, "Roles": ["to"]})
    assert iam.list_role_policies(RoleName="to")["PolicyNames"] == []
    with pytest.raises(ResourceFailure, match="at least one is required"):
        stack.create("AWS::IAM::Policy", PolicyName="p", PolicyDocument=document(allow("s3:*")))


def test_a_managed_policy_is_attached_and_detached_when_deleted(stack: Stack) -> None:
    stack.create("AWS::IAM::Role", RoleName="holder", AssumeRolePolicyDocument=TRUST)
    old: dict[str, Any] = {
        "ManagedPolicyName": "narrow",
        "PolicyDocument": document(allow("s3:*")),
        "Roles": ["holder"],
    }
    created = stack.create("AWS::IAM::ManagedPolicy", **old)
    attached = stack.client("iam").list_attached_role_policies(RoleName="holder")["AttachedPolicies"]
    assert [policy["PolicyArn"] for policy in attached] == [created.physical_id]
    with pytest.raises(ResourceFailure, match="does not change PolicyDocument of AWS::IAM::ManagedPolicy"):
        stack.update(
            "AWS::IAM::ManagedPolicy", created, old, {**old, "PolicyDocument": document(allow("sqs:*"))}
        )
    stack.delete("AWS::IAM::ManagedPolicy", created, **old)
    stack.delete("AWS::IAM::ManagedPolicy", created, **old)


@pytest.mark.parametrize(
    ("statement", "passes"),
    [
        (allow("iam:PassRole"), True),
        (allow("*"), True),
        (allow("iam:passrole", Condition={"StringEquals": {"iam:PassedToService": LAMBDA}}), True),
        (allow("iam:PassRole", Condition={"StringLike": {"iam:PassedToService": ["lambda.*"]}}), True),
        (
            allow("iam:PassRole", Condition={"StringEquals": {"iam:PassedToService": "ec2.amazonaws.com"}}),
            False,
        ),
        (allow("iam:PassRole", "arn:aws:iam::123456789012:role/other-*"), False),
        (allow("s3:*"), False),
        ({"Effect": "Allow", "NotAction": "iam:PassRole", "Resource": "*"}, False),
        (allow("iam:PassRole", Condition={"Bool": {"aws:SecureTransport": "true"}}), False),
    ],
)
def test_the_stack_s_role_must_be_allowed_to_pass_a_role(
    stack: Stack, statement: dict[str, Any], passes: bool
) -> None:
    passed = stack.role(LAMBDA)
    stack.with_role(stack.role("cloudformation.amazonaws.com", statement))
    if passes:
        check_passed(stack.context, passed, LAMBDA)
    else:
        with pytest.raises(ResourceFailure, match="is not authorized to perform: iam:PassRole on resource"):
            check_passed(stack.context, passed, LAMBDA)


def test_aws_s_own_policies_are_read_too(stack: Stack) -> None:
    """The role that `cdk bootstrap` makes for CloudFormation has AdministratorAccess."""
    trust = document(
        {
            "Effect": "Allow",
            "Principal": {"Service": "cloudformation.amazonaws.com"},
            "Action": "sts:AssumeRole",
        }
    )
    created = stack.create(
        "AWS::IAM::Role",
        AssumeRolePolicyDocument=trust,
        ManagedPolicyArns=["arn:aws:iam::aws:policy/AdministratorAccess"],
    )
    passed = stack.role(LAMBDA)
    check_passed(stack.with_role(created.attributes["Arn"]).context, passed, LAMBDA)


def test_a_key_and_its_alias(stack: Stack) -> None:
    policy = {
        "Version": "2012-10-17",
        "Statement": [{"Effect": "Allow", "Principal": "*", "Action": "kms:*", "Resource": "*"}],
    }
    properties = {"KeyPolicy": policy, "EnableKeyRotation": True, "PendingWindowInDays": 7}
    key = stack.create("AWS::KMS::Key", **properties)
    kms = stack.client("kms")
    assert kms.get_key_rotation_status(KeyId=key.physical_id)["KeyRotationEnabled"] is True
    alias = stack.create("AWS::KMS::Alias", AliasName="alias/x", TargetKeyId=key.physical_id)
    assert kms.describe_key(KeyId="alias/x")["KeyMetadata"]["Arn"] == key.attributes["Arn"]
    stack.update("AWS::KMS::Key", key, properties, {**properties, "Enabled": "false"})
    assert kms.describe_key(KeyId=key.physical_id)["KeyMetadata"]["Enabled"] is False
    with pytest.raises(ResourceFailure, match="does not change KeySpec of AWS::KMS::Key"):
        stack.update("AWS::KMS::Key", key, properties, {**properties, "KeySpec": "RSA_2048"})
    stack.delete("AWS::KMS::Alias", alias)
    stack.delete("AWS::KMS::Key", key, **properties)
    stack.delete("AWS::KMS::Key", key, **properties)
    assert kms.describe_key(KeyId=key.physical_id)["KeyMetadata"]["KeyState"] == "PendingDeletion"
