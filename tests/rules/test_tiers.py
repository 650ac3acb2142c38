"""The two tiers of the suite: what guards a change, and the campaigns that `--all` adds."""

from __future__ import annotations

import ast
import subprocess
import sys

import pytest

from conftest import APART, tier
from tests.rules.files import ROOT

#: What decides about money, safety or truth is tried through each front door in every run.
IN_EVERY_RUN = {
    "the command line": "toolkit/peagle-sm/tests/cli/test_guarded_cycle.py",
    "boto3": "toolkit/sagemaker-local/tests/local/test_front_cycle.py",
    "the AWS CLI": "tests/e2e/test_aws_cli.py",
    "the CDK": "toolkit/sagemaker-local/tests/local/cloudformation/test_cdk.py",
    "the SageMaker SDK": "tests/sagemaker_sdk/test_bridges.py",
    "the production page": "tests/e2e/test_production.py",
    "the quickstart": "tests/scripts/bench/test_quickstart.py",
    "the wheel, with a real engine": "tests/e2e/test_wheel.py",
    "the guard": "tests/guard/simulator/test_guard_in_worlds.py",
    "the gate": "tests/container/test_real_gate.py",
}


def collected(folder: str, *options: str) -> set[str]:
    """The tests that a run would run."""
    command = [
        sys.executable,
        "-m",
        "pytest",
        "--collect-only",
        "-q",
        "-p",
        "no:cacheprovider",
        folder,
        *options,
    ]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode in (0, 5), done.stdout + done.stderr
    return {line for line in done.stdout.splitlines() if "::" in line}


def test_each_test_is_in_one_tier_and_all_runs_both(request: pytest.FixtureRequest) -> None:
    items = request.session.items
    first, campaigns = tier(items, everything=False)
    assert sorted(item.nodeid for item in [*first, *campaigns]) == sorted(item.nodeid for item in items)
    assert not any(item.get_closest_marker("campaign") for item in first)
    assert all(item.get_closest_marker("campaign") for item in campaigns)
    assert tier(items, everything=True) == (items, [])


def test_a_campaign_waits_for_all() -> None:
    """In a folder that has both: what is left out is what is marked, and `--all` has it again."""
    folder = "tests/faults"
    first, marked = collected(folder), collected(folder, "--all", "-mcampaign")
    assert first
    assert marked
    assert not first & marked


@pytest.mark.parametrize("path", IN_EVERY_RUN.values(), ids=IN_EVERY_RUN)
def test_a_front_door_is_tried_in_every_run(path: str) -> None:
    names = [
        node.attr
        for node in ast.walk(ast.parse((ROOT / path).read_text()))
        if isinstance(node, ast.Attribute)
    ]
    assert "campaign" not in names


def test_the_files_that_any_process_may_take_start_no_engine() -> None:
    files = (ROOT / "tests" / "e2e").glob("test_*.py")
    without = {str(path.relative_to(ROOT)) for path in files if "mark.engine" not in path.read_text()}
    assert without == APART


def test_ci_runs_both_tiers() -> None:
    assert "./scripts/test --all" in (ROOT / ".ci" / "run").read_text()
