"""The stack of training jobs: what a review finds, and what its role may do and may not."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from aws_cdk import App
from cfnlint.api import ManualArgs, lint

from sagemaker_local.other_services.policies import ALLOWED, decide
from stacks.training_stack import TrainingStack
from tests.stacks.iam.calls import ACCOUNT, arn
from tests.stacks.iam.roles import policies
from tests.stacks.nag import findings
from tests.stacks.support import REGION

OURS = "arn:aws:s3:::team-learn"
KEY = f"arn:aws:kms:{REGION}:{ACCOUNT}:key/11111111-2222-3333-4444-555555555555"
LOG = arn("logs", "log-group:/aws/sagemaker/TrainingJobs:log-stream:team-a-0123456789/algo-1-17")
TRAFFIC = "arn:aws:s3:::team-traffic"
INTERFACE = arn("ec2", "network-interface/eni-1")


@cache
def _text() -> str:
    app = App(analytics_reporting=False)
    TrainingStack(app)
    return json.dumps(app.synth().stacks[0].template)


def _may(action: str, resource: str, keys: dict[str, str] | None = None, **given: str) -> bool:
    sent = {"Bucket": "team-learn", "Prefix": "peagle", **given}
    documents = policies(json.loads(_text()), sent)["TrainingRole"]
    return bool(decide(documents, action, resource, keys or {}).decision == ALLOWED)


@pytest.mark.parametrize(
    ("action", "resource", "keys"),
    [
        ("s3:GetObject", f"{OURS}/peagle/team-a/data/training/train.tokens.jsonl", {}),
        ("s3:PutObject", f"{OURS}/peagle/team-a/jobs/j/output/model.tar.gz", {}),
        ("s3:DeleteObject", f"{OURS}/peagle/team-a/checkpoints/j/step-1", {}),
        ("s3:ListBucket", OURS, {"s3:prefix": "peagle/team-a/data/training/"}),
        ("s3:GetObject", f"arn:aws:s3:::jumpstart-cache-prod-{REGION}/openai/config.json", {}),
        ("ecr:BatchGetImage", arn("ecr", "repository/peagle-trainer"), {}),
        ("ecr:GetAuthorizationToken", "*", {}),
        ("logs:PutLogEvents", LOG, {}),
        ("cloudwatch:PutMetricData", "*", {"cloudwatch:namespace": "/aws/sagemaker/TrainingJobs"}),
    ],
)
def test_a_job_may_do_what_it_needs(action: str, resource: str, keys: dict[str, str]) -> None:
    assert _may(action, resource, keys)


@pytest.mark.parametrize(
    ("action", "resource", "keys"),
    [
        ("s3:GetObject", f"{OURS}/payroll.csv", {}),
        ("s3:GetObject", f"{OURS}/peagle-others/data", {}),
        ("s3:PutObject", "arn:aws:s3:::another/peagle/x", {}),
        ("s3:PutObject", f"arn:aws:s3:::jumpstart-cache-prod-{REGION}/x", {}),
        ("s3:ListBucket", OURS, {"s3:prefix": ""}),
        ("s3:ListBucket", OURS, {"s3:prefix": "peagle-others/"}),
        ("s3:DeleteBucket", OURS, {}),
        ("ecr:BatchGetImage", arn("ecr", "repository/payments"), {}),
        ("ecr:PutImage", arn("ecr", "repository/peagle-trainer"), {}),
        ("logs:PutLogEvents", arn("logs", "log-group:/aws/lambda/others:log-stream:x"), {}),
        ("cloudwatch:PutMetricData", "*", {"cloudwatch:namespace": "Billing"}),
        ("sagemaker:CreateTrainingJob", arn("sagemaker", "training-job/x"), {}),
        ("iam:PassRole", f"arn:aws:iam::{ACCOUNT}:role/admin", {}),
        ("s3:GetObject", f"{TRAFFIC}/endpoint/a.jsonl", {}),
        ("sagemaker:CreateProcessingJob", arn("sagemaker", "processing-job/x"), {}),
        ("sagemaker:InvokeEndpoint", arn("sagemaker", "endpoint/x"), {}),
        ("kms:Decrypt", KEY, {}),
        ("ec2:CreateNetworkInterface", INTERFACE, {}),
    ],
)
def test_a_job_may_do_nothing_else(action: str, resource: str, keys: dict[str, str]) -> None:
    assert not _may(action, resource, keys)


def test_a_key_and_a_vpc_are_allowed_where_the_parameters_ask_for_them() -> None:
    assert _may("kms:Decrypt", KEY, KeyArn=KEY)
    assert not _may("kms:Decrypt", KEY.replace("1111", "2222"), KeyArn=KEY)
    assert _may("ec2:CreateNetworkInterface", INTERFACE, Vpc="yes")


@pytest.mark.slow
def test_cdk_nag_and_the_cdks_own_validation_find_nothing(tmp_path: Path) -> None:
    assert findings(tmp_path, TrainingStack) == []


@pytest.mark.slow
def test_cfn_lint_finds_nothing() -> None:
    assert list(lint(_text(), config=ManualArgs(regions=[REGION]))) == []


def test_only_sagemaker_of_this_account_takes_the_role() -> None:
    role: dict[str, Any] = json.loads(_text())["Resources"]["TrainingRole"]["Properties"]
    (trusted,) = role["AssumeRolePolicyDocument"]["Statement"]
    assert trusted["Principal"] == {"Service": "sagemaker.amazonaws.com"}
    assert "aws:SourceAccount" in trusted["Condition"]["StringEquals"]
