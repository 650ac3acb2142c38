"""checkov with this project's settings finds planted faults."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from sagemaker_local.engine.locked_env import ensure_locked
from scripts.lib.security.check import LOCK, checkov_faults, say

pytestmark = pytest.mark.campaign


def test_planted_faults_are_found(tmp_path: Path) -> None:
    python = ensure_locked("security", LOCK, "about a minute, 300 MB", say)
    statement = {"Effect": "Allow", "Action": "iam:PassRole", "Resource": "*"}
    resources = {
        "Model": {
            "Type": "AWS::SageMaker::Model",
            "Properties": {"ExecutionRoleArn": "arn:aws:iam::1:role/x"},
        },
        "Policy": {
            "Type": "AWS::IAM::ManagedPolicy",
            "Properties": {"PolicyDocument": {"Version": "2012-10-17", "Statement": [statement]}},
        },
        "Logs": {"Type": "AWS::Logs::LogGroup", "Properties": {}},
    }
    (tmp_path / "planted.template.json").write_text(json.dumps({"Resources": resources}))
    (tmp_path / "Dockerfile").write_text("FROM x@sha256:1\nADD https://example.com/x /x\nUSER root\n")
    names = {fault.split()[1] for fault in checkov_faults(python, tmp_path)}
    # Network isolation, PassRole to any role, retention of logs, ADD, root.
    assert {"CKV_AWS_370", "CKV_AWS_109", "CKV_AWS_66", "CKV_DOCKER_4", "CKV_DOCKER_8"} <= names


def test_a_folder_without_files_is_not_a_pass(tmp_path: Path) -> None:
    python = ensure_locked("security", LOCK, "about a minute, 300 MB", say)
    assert checkov_faults(python, tmp_path)
