"""The simulation of policies, decision by decision, and over HTTP."""

from __future__ import annotations

import json
from typing import Any

import pytest
from botocore.exceptions import ClientError
from hypothesis import given
from hypothesis import strategies as st

from sagemaker_local.other_services.policies import Decision, condition_keys, decide
from tests.local.serving import Server

ROLE = "arn:aws:iam::123456789012:role/simulated"
PASS = {"Effect": "Allow", "Action": "iam:PassRole", "Resource": ROLE}
GRANT = {"Effect": "Allow", "Action": "kms:CreateGrant", "Resource": "*"}
GRANT_KEY = "kms:GrantIsForAWSResource"
FOR_AWS = {"Bool": {GRANT_KEY: "true"}}
WITHOUT = {"Null": {GRANT_KEY: "true"}}
TO_SAGEMAKER = {"StringEquals": {"iam:PassedToService": "sagemaker.amazonaws.com"}}


def _policy(*statements: dict[str, Any]) -> list[dict[str, Any]]:
    return [{"Version": "2012-10-17", "Statement": list(statements)}]


@pytest.mark.parametrize(
    ("statement", "action", "resource", "context", "decision"),
    [
        ({"Effect": "Allow", "Action": "s3:Get*", "Resource": "*"}, "s3:GetObject", "a", {}, "allowed"),
        ({"Effect": "Allow", "Action": "S3:getobject", "Resource": "*"}, "s3:GetObject", "a", {}, "allowed"),
        ({"Effect": "Allow", "Action": "s3:*", "Resource": "b/*"}, "s3:GetObject", "a/x", {}, "implicitDeny"),
        ({"Effect": "Allow", "Action": "s3:*", "Resource": "A"}, "s3:GetObject", "a", {}, "implicitDeny"),
        ({"Effect": "Allow", "NotAction": "iam:*", "Resource": "*"}, "s3:GetObject", "a", {}, "allowed"),
        ({"Effect": "Allow", "NotAction": "s3:*", "Resource": "*"}, "s3:GetObject", "a", {}, "implicitDeny"),
        ({**PASS, "Condition": TO_SAGEMAKER}, "iam:PassRole", ROLE, {}, "implicitDeny"),
        (
            {**PASS, "Condition": TO_SAGEMAKER},
            "iam:PassRole",
            ROLE,
            {"iam:PassedToService": "sagemaker.amazonaws.com"},
            "allowed",
        ),
        (
            {**PASS, "Condition": TO_SAGEMAKER},
            "iam:PassRole",
            ROLE,
            {"iam:PassedToService": "ec2.amazonaws.com"},
            "implicitDeny",
        ),
        (
            {**PASS, "Condition": {"StringLikeIfExists": {"iam:PassedToService": "sage*"}}},
            "iam:PassRole",
            ROLE,
            {},
            "allowed",
        ),
        ({**GRANT, "Condition": FOR_AWS}, "kms:CreateGrant", "k", {GRANT_KEY: "true"}, "allowed"),
        ({**GRANT, "Condition": FOR_AWS}, "kms:CreateGrant", "k", {GRANT_KEY: "false"}, "implicitDeny"),
        ({**GRANT, "Condition": FOR_AWS}, "kms:CreateGrant", "k", {}, "implicitDeny"),
        ({**GRANT, "Condition": WITHOUT}, "kms:CreateGrant", "k", {}, "allowed"),
        ({**GRANT, "Condition": WITHOUT}, "kms:CreateGrant", "k", {GRANT_KEY: "true"}, "implicitDeny"),
    ],
)
def test_a_statement_allows_or_does_not(
    statement: dict[str, Any], action: str, resource: str, context: dict[str, str], decision: str
) -> None:
    assert decide(_policy(statement), action, resource, context).decision == decision


def test_a_deny_goes_before_every_allow_and_the_keys_of_all_policies_are_named() -> None:
    every = {"Effect": "Allow", "Action": "*", "Resource": "*"}
    deny = {"Effect": "Deny", "Action": "s3:*", "Resource": "*"}
    assert decide(_policy(every, deny), "s3:GetObject", "a", {}) == Decision("explicitDeny")
    conditional = {**PASS, "Condition": TO_SAGEMAKER}
    assert condition_keys(_policy(deny, conditional)) == ["iam:PassedToService"]


IN_REGION = {"StringNotEquals": {"aws:RequestedRegion": ["us-east-1", "eu-west-1"]}}
TAGGED = {"ForAllValues:StringEquals": {"aws:TagKeys": ["a", "b"]}}


@pytest.mark.parametrize(
    ("condition", "context", "holds"),
    [
        (IN_REGION, {"aws:RequestedRegion": ("us-east-1",)}, False),
        (IN_REGION, {"aws:RequestedRegion": ("us-west-2",)}, True),
        (IN_REGION, {}, True),  # a negated operator holds without a value
        ({"NotIpAddress": {"aws:SourceIp": "10.0.0.0/8"}}, {"aws:SourceIp": ("10.1.2.3",)}, False),
        ({"IpAddress": {"aws:SourceIp": ["10.0.0.0/8"]}}, {"aws:SourceIp": ("10.1.2.3",)}, True),
        (TAGGED, {"aws:TagKeys": ("a",)}, True),
        (TAGGED, {"aws:TagKeys": ("a", "c")}, False),
        ({"ForAnyValue:StringEquals": {"aws:TagKeys": ["a"]}}, {"aws:TagKeys": ("a", "c")}, True),
        ({"BoolIfExists": {"aws:MultiFactorAuthPresent": "false"}}, {}, True),
    ],
)
def test_a_condition_holds_as_on_aws(
    condition: dict[str, Any], context: dict[str, tuple[str, ...]], holds: bool
) -> None:
    deny = {"Effect": "Deny", "Action": "*", "Resource": "*", "Condition": condition}
    assert (decide(_policy(deny), "s3:GetObject", "a", context).decision == "explicitDeny") is holds


@given(st.lists(st.sampled_from(["s3:GetObject", "s3:*", "ecr:*"]), min_size=1))
def test_what_is_not_allowed_anywhere_is_denied(actions: list[str]) -> None:
    policy = _policy({"Effect": "Allow", "Action": actions, "Resource": "*"})
    assert decide(policy, "iam:PassRole", ROLE, {}).decision == "implicitDeny"
    assert (decide(policy, "s3:GetObject", "a", {}).decision == "allowed") == any(
        each.startswith("s3") for each in actions
    )


def test_a_principal_is_simulated_over_http(server: Server) -> None:
    iam = server.client("iam")
    trust = json.dumps({"Statement": [{"Effect": "Allow", "Principal": "*", "Action": "sts:AssumeRole"}]})
    arn = iam.create_role(RoleName="simulated-over-http", AssumeRolePolicyDocument=trust)["Role"]["Arn"]
    policy = json.dumps(_policy({"Effect": "Allow", "Action": "s3:*", "Resource": "arn:aws:s3:::mine/*"})[0])
    created = iam.create_policy(PolicyName="simulated-over-http", PolicyDocument=policy)["Policy"]["Arn"]
    iam.attach_role_policy(RoleName="simulated-over-http", PolicyArn=created)
    answer = iam.simulate_principal_policy(
        PolicySourceArn=arn,
        ActionNames=["s3:GetObject", "s3:GetObjectVersion"],
        ResourceArns=["arn:aws:s3:::mine/x", "arn:aws:s3:::theirs/x"],
    )
    rows = answer["EvaluationResults"]  # one an action; the decision is the worst of its resources
    assert [row["EvalDecision"] for row in rows] == ["implicitDeny", "implicitDeny"]
    for row in rows:
        results = [each["EvalResourceDecision"] for each in row["ResourceSpecificResults"]]
        assert results == ["allowed", "implicitDeny"]
        assert row["MissingContextValues"] == []
    with pytest.raises(ClientError, match="require different authorization information") as caught:
        iam.simulate_principal_policy(PolicySourceArn=arn, ActionNames=["s3:GetObject", "s3:PutObject"])
    assert caught.value.response["Error"]["Code"] == "InvalidInput"
    with pytest.raises(ClientError, match="cannot be found") as caught:
        iam.simulate_principal_policy(PolicySourceArn=f"{arn}-none", ActionNames=["s3:GetObject"])
    assert caught.value.response["Error"]["Code"] == "NoSuchEntity"


def test_quotas_of_a_new_account(server: Server) -> None:
    quotas = server.client("service-quotas")
    pages = quotas.get_paginator("list_service_quotas").paginate(ServiceCode="sagemaker")
    read = list(pages)
    assert len(read) > 1
    by_name = {row["QuotaName"]: row for page in read for row in page["Quotas"]}
    assert by_name["ml.p6-b200.48xlarge for endpoint usage"]["Value"] == 0
    assert by_name["ml.g5.xlarge for endpoint usage"]["Value"] > 0
    assert by_name["Number of instances across active endpoints"]["Value"] > 0
    assert by_name["ml.p5.48xlarge for spot training job usage"]["Value"] == 0
    assert by_name["ml.m5.large for training job usage"]["Value"] > 0
    assert quotas.list_aws_default_service_quotas(ServiceCode="vpc")["Quotas"]
