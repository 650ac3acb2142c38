"""The stack as the CDK makes it: equal to what ships, and without a finding that nobody explained."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from aws_cdk import App

from peagle_sm.core import guard
from stacks.guard import functions, guard_stack, policies
from stacks.guard.guard_stack import GuardStack
from tests.stacks.nag import findings


@pytest.fixture(scope="module")
def fresh() -> dict[str, Any]:
    return guard_stack.template()


def test_the_shipped_template_is_what_the_stack_makes(fresh: dict[str, Any]) -> None:
    written = guard_stack.TEMPLATE.read_text(encoding="utf-8")
    assert written == guard_stack.text(fresh), "run scripts/lib/guard-template"


def test_the_cdk_deploys_the_same_with_the_package_from_its_own_bucket(fresh: dict[str, Any]) -> None:
    by_cdk = guard_stack.template(shipped=False)
    codes = []
    for template in (by_cdk, json.loads(json.dumps(fresh))):
        for resource in template["Resources"].values():
            if resource["Type"] == "AWS::Lambda::Function":
                codes.append(resource["Properties"].pop("Code"))
        for name in ("AssetBucket", "AssetKey"):
            template["Parameters"].pop(name, None)
        template.pop("Rules", None)
    assert by_cdk["Resources"] == _without_code(fresh)["Resources"]
    assert by_cdk["Outputs"] == fresh["Outputs"]
    assert all(code["S3Key"].endswith(".zip") for code in codes[:4])


def _without_code(template: dict[str, Any]) -> dict[str, Any]:
    copy: dict[str, Any] = json.loads(json.dumps(template))
    for resource in copy["Resources"].values():
        resource["Properties"].pop("Code", None)
    return copy


@pytest.mark.slow
def test_cdk_nag_finds_nothing_that_has_no_reason(tmp_path: Path) -> None:
    assert findings(tmp_path, lambda app: GuardStack(app, shipped=True)) == []


@pytest.mark.slow
def test_cdk_nag_finds_a_planted_permission(tmp_path: Path) -> None:
    def planted(app: App) -> None:
        everything = policies.allow("Planted", ["iam:PassRole", "ecr:GetAuthorizationToken"], ["*"])
        stack = GuardStack(app, shipped=True)
        functions.role(stack, "Planted", "peagle-planted-", "lambda", "planted", [everything])

    assert findings(tmp_path, planted) == [f"AwsSolutions-IAM5[Resource::*] {guard.GUARD_STACK}/Planted"]
