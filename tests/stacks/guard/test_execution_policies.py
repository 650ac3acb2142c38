"""The policies for `cdk bootstrap --cloudformation-execution-policies`: what they must not allow.

`tests/stacks/iam/test_handlers.py` tests that they allow what the stacks need, and that each part is used.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import pytest

FOLDER = Path(__file__).parents[3] / "stacks" / "guard" / "execution-policies"
ACCOUNT = "123456789012"
IAM_LIMIT = 6144
"""Characters of a managed policy, white space not counted (IAM's quotas)."""

FORBIDDEN = [
    ("iam:CreateUser", f"arn:aws:iam::{ACCOUNT}:user/mallory"),
    ("iam:CreateRole", f"arn:aws:iam::{ACCOUNT}:role/admin"),
    ("iam:AttachRolePolicy", f"arn:aws:iam::{ACCOUNT}:role/peagle-guard-switch-us-east-1"),
    ("iam:PassRole", f"arn:aws:iam::{ACCOUNT}:role/admin"),
    ("lambda:UpdateFunctionCode", f"arn:aws:lambda:us-east-1:{ACCOUNT}:function:payroll"),
    ("s3:PutObject", "arn:aws:s3:::anything/x"),
    ("s3:GetObject", "arn:aws:s3:::payroll/x"),
    ("dynamodb:DeleteTable", f"arn:aws:dynamodb:us-east-1:{ACCOUNT}:table/payroll"),
    ("ec2:RunInstances", f"arn:aws:ec2:us-east-1:{ACCOUNT}:instance/*"),
    ("sagemaker:CreateTrainingJob", f"arn:aws:sagemaker:us-east-1:{ACCOUNT}:training-job/x"),
    ("cloudwatch:DeleteAlarms", f"arn:aws:cloudwatch:us-east-1:{ACCOUNT}:alarm:billing"),
    ("secretsmanager:GetSecretValue", f"arn:aws:secretsmanager:us-east-1:{ACCOUNT}:secret:x"),
]
POLICIES = ("endpoint", "guard", "image", "training")
# AWS defines no resource for these, so they are on all; the reason is in docs/reference/stacks-guard.md.
ON_ALL = {
    "cloudwatch:GetMetricData",
    "sns:GetSubscriptionAttributes",
    "sns:SetSubscriptionAttributes",
    "sns:Unsubscribe",
}


def _policy(name: str) -> list[dict[str, Any]]:
    statements: list[dict[str, Any]] = json.loads((FOLDER / f"{name}.json").read_text())["Statement"]
    return statements


def _matching(name: str, action: str, resource: str) -> Iterator[dict[str, Any]]:
    """The statements that speak of an action on a resource, whatever their conditions."""
    for statement in _policy(name):
        if action in statement["Action"] and any(
            fnmatchcase(resource, pattern) for pattern in statement["Resource"]
        ):
            yield statement


@pytest.mark.parametrize("name", POLICIES)
@pytest.mark.parametrize(("action", "resource"), FORBIDDEN)
def test_what_is_not_ours_is_out_of_reach(name: str, action: str, resource: str) -> None:
    assert not any(_matching(name, action, resource))


@pytest.mark.parametrize("name", POLICIES)
def test_every_action_is_spelled_out(name: str) -> None:
    statements = _policy(name)
    assert not [action for each in statements for action in each["Action"] if "*" in action]
    for each in statements:
        if "*" in each["Resource"]:
            reading = all(
                action.partition(":")[2].startswith(("Describe", "List")) or action in ON_ALL
                for action in each["Action"]
            )
            assert reading or "aws:RequestTag/peagle-sm:" in str(each["Condition"])


@pytest.mark.parametrize("name", POLICIES)
def test_roles_are_passed_to_the_services_that_use_them(name: str) -> None:
    passing = [each for each in _policy(name) if "iam:PassRole" in each["Action"]]
    assert bool(passing) is (name != "training")  # its role is passed by whoever starts a job
    for each in passing:
        assert each["Condition"]["StringEquals"]["iam:PassedToService"]
        assert all(":role/peagle" in resource.lower() for resource in each["Resource"])


def test_endpoints_are_made_changed_and_deleted_as_ours_only() -> None:
    for each in _policy("endpoint"):
        changing = [
            action for action in each["Action"] if action.startswith(("sagemaker:Create", "sagemaker:Delete"))
        ]
        assert not changing or "peagle-sm:managed-by" in str(each["Condition"])


def test_whoever_deploys_endpoints_alone_needs_no_right_to_make_roles() -> None:
    granted = {
        action
        for statement in _policy("endpoint")
        for action in statement["Action"]
        if action.startswith("iam:")
    }
    assert granted == {"iam:PassRole", "iam:CreateServiceLinkedRole"}


@pytest.mark.parametrize("name", POLICIES)
def test_iam_takes_it_as_one_managed_policy(name: str) -> None:
    assert len("".join((FOLDER / f"{name}.json").read_text().split())) <= IAM_LIMIT
