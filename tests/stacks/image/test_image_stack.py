"""The stack that builds the image: what a review finds, what the build may do, and what it sends."""

from __future__ import annotations

import json
import re
import zipfile
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml
from aws_cdk import App
from cfnlint.api import ManualArgs, lint

from stacks.image_stack import BASE_PATTERN, ImageStack
from tests.stacks.nag import findings
from tests.stacks.support import REGION, ROOT


@cache
def _text() -> str:
    app = App(analytics_reporting=False)
    ImageStack(app)
    return json.dumps(app.synth().stacks[0].template)


def template() -> dict[str, Any]:
    document = json.loads(_text())
    assert isinstance(document, dict)
    return document


def properties(name: str) -> dict[str, Any]:
    result: dict[str, Any] = template()["Resources"][name]["Properties"]
    return result


@pytest.mark.slow
def test_cdk_nag_and_the_cdks_own_validation_find_nothing(tmp_path: Path) -> None:
    assert findings(tmp_path, ImageStack) == []


@pytest.mark.slow
def test_cfn_lint_finds_nothing() -> None:
    assert list(lint(_text(), config=ManualArgs(regions=[REGION]))) == []


def test_a_tag_names_one_image_for_ever_and_each_is_scanned_and_encrypted() -> None:
    repository = properties("Repository")
    assert repository["ImageTagMutability"] == "IMMUTABLE"
    assert repository["ImageScanningConfiguration"] == {"ScanOnPush": True}
    assert repository["EncryptionConfiguration"]["EncryptionType"] == "KMS"


def test_no_image_that_a_paused_endpoint_may_need_expires() -> None:
    """ECR does not know SageMaker's models, and a paused endpoint pulls nothing: no rule may select a tag."""
    rules = json.loads(properties("Repository")["LifecyclePolicy"]["LifecyclePolicyText"])["rules"]
    assert [rule["selection"]["tagStatus"] for rule in rules] == ["untagged"]


def test_what_endpoints_still_need_outlives_the_stack() -> None:
    kept = {
        name
        for name, resource in template()["Resources"].items()
        if resource.get("DeletionPolicy") == "Retain"
    }
    assert kept == {"Key", "Repository", "Records"}


def test_the_build_may_push_to_one_repository_and_write_one_prefix() -> None:
    (policy,) = properties("BuildRole")["Policies"]
    statements = policy["PolicyDocument"]["Statement"]
    wide = [statement["Action"] for statement in statements if statement["Resource"] == "*"]
    assert wide == ["ecr:GetAuthorizationToken"] or wide == [["ecr:GetAuthorizationToken"]]
    actions = {action for statement in statements for action in _list(statement["Action"])}
    assert not {action for action in actions if "*" in action or "Delete" in action or "PassRole" in action}
    trust = properties("BuildRole")["AssumeRolePolicyDocument"]["Statement"][0]
    assert set(trust["Condition"]) == {"StringEquals", "ArnLike"}


def _list(value: Any) -> list[str]:
    return value if isinstance(value, list) else [value]


def test_the_build_gets_what_its_spec_reads() -> None:
    given = {entry["Name"] for entry in properties("Project")["Environment"]["EnvironmentVariables"]}
    spec = (ROOT / "container" / "buildspec.yml").read_text(encoding="utf-8")
    commands = "\n".join(
        text for phase in yaml.safe_load(spec)["phases"].values() for text in phase["commands"]
    )
    read = set(re.findall(r"\$\{?([A-Z_]+)", commands))
    assigned = set(re.findall(r"^([A-Z_]+)=", commands, re.MULTILINE))
    assert {name for name in read - assigned if not name.startswith("CODEBUILD_")} == given


def test_the_source_is_what_the_build_needs_and_no_more(tmp_path: Path) -> None:
    app = App(outdir=str(tmp_path), analytics_reporting=False)
    ImageStack(app)
    app.synth()
    (folder,) = [path for path in tmp_path.iterdir() if path.name.startswith("asset.")]
    assert not zipfile.is_zipfile(folder)
    sent = {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()}
    assert {"Dockerfile", ".dockerignore", "buildspec.yml", "serve", "check_base.py"} <= sent
    assert {"peagle_gate/asgi.py", "plugins/peagle_runtime_k/pyproject.toml"} <= sent
    assert not [name for name in sent if "cpu_fixes" in name or name.endswith((".pyc", ".lock"))]
    assert (folder / "serve").stat().st_mode & 0o111


@pytest.mark.parametrize(
    ("base", "is_valid"),
    [
        ("vllm/vllm-openai:v0.33.0", True),
        ("public.ecr.aws/deep-learning-containers/vllm:0.40-gpu", True),
        ("vllm/vllm-openai@sha256:" + "0a" * 32, True),
        ("vllm/vllm-openai", False),
        ("vllm/vllm-openai:v1; rm -rf /", False),
        ("$(id):v1", False),
        ("", False),
    ],
)
def test_what_the_base_may_be(base: str, is_valid: bool) -> None:
    parameter = template()["Parameters"]["BaseImage"]
    assert "Default" not in parameter
    assert parameter["AllowedPattern"] == BASE_PATTERN
    assert bool(re.match(BASE_PATTERN, base)) == is_valid
