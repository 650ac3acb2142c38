"""What an AWS review runs: cdk-nag, cfn-lint, and aws-cdk-lib's own validation of the templates."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest
from aws_cdk import App, Validations
from cdk_nag import AwsSolutionsChecks
from cfnlint.api import lint_all

from stacks.endpoint_stack import EndpointStack
from tests.stacks.support import EMAIL, EXAMPLES, ROOT, plan_of, specs, template

pytestmark = pytest.mark.slow
NAMES = sorted(specs())


def test_cdk_nag_finds_nothing(tmp_path: Path) -> None:
    app = App(outdir=str(tmp_path), analytics_reporting=False)
    Validations.of(app).add_plugins(AwsSolutionsChecks())
    for name in NAMES:
        EndpointStack(app, plan_of(name), EMAIL)
    with suppress(RuntimeError):  # findings that are errors stop the synthesis; the report has them all
        app.synth()
    report = json.loads((tmp_path / "validation-report.json").read_text())
    assert [
        f"{found['ruleName']} {construct['constructPath']}"
        for part in report["pluginReports"]
        for found in part["violations"]
        for construct in found["violatingConstructs"]
    ] == []


@pytest.mark.parametrize("name", NAMES)
def test_cfn_lint_finds_nothing(name: str) -> None:
    assert [str(match) for match in lint_all(json.dumps(template(name)))] == []


def test_cfn_lint_would_find_the_field_that_cloudformation_lacks() -> None:
    planted = template("tiny-none")
    container = planted["Resources"]["Model"]["Properties"]["PrimaryContainer"]
    container["AdditionalModelDataSources"] = []
    assert [match.rule.id for match in lint_all(json.dumps(planted))] == ["E3002"]


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
    made = {path.name.removesuffix(".template.json") for path in tmp_path.glob("*.template.json")}
    examples = {
        json.loads(path.read_text())["Outputs"]["EndpointName"]["Value"] for path in tmp_path.glob("Peagle-*")
    }
    assert made == {"PeagleGuard", *(f"Peagle-{name}" for name in examples)}
    assert len(examples) == len(EXAMPLES)
