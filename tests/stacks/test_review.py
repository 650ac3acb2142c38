"""What an AWS review runs: cdk-nag, cfn-lint, and aws-cdk-lib's own validation of the templates."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from aws_cdk import App, Stack
from aws_cdk import aws_sns as sns
from cfnlint.api import ManualArgs, lint
from cfnlint.match import Match

from peagle_sm.service.spec_to_plan import load_spec
from stacks.endpoint_stack import EndpointStack
from tests.stacks.nag import findings
from tests.stacks.support import EMAIL, EXAMPLES, REGION, ROOT, plan_of, specs, template

pytestmark = pytest.mark.slow
NAMES = sorted(specs())
COVERING = ("everything", "keyed", "scaling", "zero")
"""Together they have every property of every resource; the others are linted with --all."""


def _findings(folder: Path, names: list[str], plant: Callable[[Stack], None]) -> list[str]:
    def add_stacks(app: App) -> None:
        for name in names:
            plant(EndpointStack(app, plan_of(name), EMAIL))

    return findings(folder, add_stacks)


def test_cdk_nag_finds_nothing(tmp_path: Path) -> None:
    assert _findings(tmp_path, NAMES, lambda stack: None) == []


def test_cdk_nag_would_find_a_topic_that_speaks_without_tls(tmp_path: Path) -> None:
    def plant(stack: Stack) -> None:
        sns.CfnTopic(stack, "Planted")

    assert _findings(tmp_path, ["tiny-none"], plant) == ["AwsSolutions-SNS3 Peagle-tiny-none/Planted"]


def _linted(template: dict[str, Any]) -> list[Match]:
    return list(lint(json.dumps(template), config=ManualArgs(regions=[REGION])))


@pytest.mark.parametrize(
    "name", [name if name in COVERING else pytest.param(name, marks=pytest.mark.campaign) for name in NAMES]
)
def test_cfn_lint_finds_nothing(name: str) -> None:
    assert [str(match) for match in _linted(template(name))] == []


def _properties(value: Any, path: str = "") -> Iterator[str]:
    """Yield the path of each property; the variables of a container are values."""
    if isinstance(value, dict) and not path.endswith(".Environment"):
        for name, inner in value.items():
            yield f"{path}.{name}"
            yield from _properties(inner, f"{path}.{name}")
    elif isinstance(value, list):
        for inner in value:
            yield from _properties(inner, path)


def test_the_templates_that_each_run_lints_have_every_property() -> None:
    by_name = {
        name: {
            path
            for resource in template(name)["Resources"].values()
            for path in _properties(resource.get("Properties", {}), resource["Type"])
        }
        for name in NAMES
    }
    assert set().union(*by_name.values()) == set().union(*(by_name[name] for name in COVERING))


def test_cfn_lint_would_find_the_field_that_cloudformation_lacks() -> None:
    planted = template("tiny-none")
    container = planted["Resources"]["Model"]["Properties"]["PrimaryContainer"]
    container["AdditionalModelDataSources"] = []
    assert [match.rule.id for match in _linted(planted)] == ["E3002"]


def test_the_cdks_own_validation_lets_all_examples_through(tmp_path: Path) -> None:
    """The app as `cdk synth` runs it, with the guard and with validation on."""
    context = json.loads((ROOT / "cdk.json").read_text())["context"]
    context["spec"] = ",".join(str(path) for path in EXAMPLES)
    ran = subprocess.run(
        [sys.executable, "app.py"],
        cwd=ROOT,
        env={
            **os.environ,
            "CDK_VALIDATION": "true",
            "CDK_CONTEXT_JSON": json.dumps(context),
            "CDK_OUTDIR": str(tmp_path),
        },
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr
    names = {path.name.removesuffix(".template.json") for path in tmp_path.glob("*.template.json")}
    examples = {load_spec(path).name for path in EXAMPLES}
    assert names == {"PeagleGuard", *(f"Peagle-{name}" for name in examples)}
