"""What an AWS review runs: cdk-nag, cfn-lint, and aws-cdk-lib's own validation of the templates."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from aws_cdk import App
from cfnlint.api import ManualArgs, lint

from peagle_sm.service.spec_to_plan import load_spec
from stacks.endpoint_stack import EndpointStack
from tests.stacks.nag import findings
from tests.stacks.support import EMAIL, EXAMPLES, REGION, ROOT, plan_of, specs, template

pytestmark = pytest.mark.slow
NAMES = sorted(specs())
COVERING = ("everything", "keyed", "scaling", "zero")
"""Together they have every property of every resource."""


def test_cdk_nag_finds_nothing(tmp_path: Path) -> None:
    def add_stacks(app: App) -> None:
        for name in NAMES:
            EndpointStack(app, plan_of(name), EMAIL)

    assert findings(tmp_path, add_stacks) == []


@pytest.mark.parametrize("name", COVERING)
def test_cfn_lint_finds_nothing(name: str) -> None:
    matches = lint(json.dumps(template(name)), config=ManualArgs(regions=[REGION]))
    assert [str(match) for match in matches] == []


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
