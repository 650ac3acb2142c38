"""`deploy --dry-run` refuses what `deploy` refuses, and no more."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml

from tests.cli.running import run
from tests.service.setting import make_spec

WHERE = ("--dry-run", "--region", "us-east-1")


@pytest.mark.parametrize(
    ("changes", "last"),
    [
        ({"autoscaling": {"max_instances": 3}}, "put_scaling_policy"),
        ({"lifecycle": {"idle": "scale-to-zero"}}, "put_metric_alarm"),
    ],
    ids=["autoscaling", "scale-to-zero"],
)
def test_scaling_needs_no_stack(tmp_path: Path, changes: dict[str, object], last: str) -> None:
    path = tmp_path / "peagle.yaml"
    path.write_text(yaml.safe_dump(make_spec().model_dump(mode="json", exclude_unset=True) | changes))
    for command in ("plan", "deploy"):
        result = run(command, path, *WHERE)
        assert result.exit_code == 0, result.stderr
        sent = [request["operation"] for request in json.loads(result.stdout)]
        assert sent.index("create_endpoint") < sent.index("register_scalable_target")
        assert sent[-1] == last
    shown = run("plan", path, "--region", "us-east-1")
    assert "register_scalable_target" in shown.stdout


@pytest.mark.parametrize("command", ["deploy", "plan"])
def test_a_dry_run_prints_the_plans_warnings_beside_the_requests(command: str, tmp_path: Path) -> None:
    """It printed the requests alone, so a spec with a warning looked as good as one without."""
    fields = make_spec().model_dump(mode="json", exclude_unset=True)
    path = tmp_path / "peagle.yaml"
    path.write_text(yaml.safe_dump({**fields, "serving": {"env": {"NEW_NAME": "1"}}}))
    shown = run("plan", path, "--region", "us-east-1", "--format", "json")
    warnings = [one for one in json.loads(shown.stdout)["findings"] if one["severity"] == "warning"]
    assert warnings
    result = run(command, path, *WHERE)
    assert result.exit_code == 0, result.stderr
    assert json.loads(result.stdout)[-1]["operation"] == "create_endpoint"
    for one in warnings:
        assert f"warning: {one['check']}: {one['message']}" in result.stderr
    notes = [
        json.loads(line)["note"]
        for line in run(command, path, *WHERE, "--format", "json").stderr.splitlines()
    ]
    assert len(notes) == len(warnings)
    assert run(command, path, *WHERE, "--format", "quiet").stderr == ""


def test_a_check_that_is_skipped_warns_of_nothing_in_a_dry_run(tmp_path: Path) -> None:
    fields = make_spec().model_dump(mode="json", exclude_unset=True)
    path = tmp_path / "peagle.yaml"
    path.write_text(yaml.safe_dump({**fields, "serving": {"env": {"NEW_NAME": "1"}}}))
    checks = {
        line.split(": ")[1]
        for line in run("deploy", path, *WHERE).stderr.splitlines()
        if line.startswith("warning")
    }
    skipped = [word for check in checks for word in ("--skip-check", check)]
    assert "warning" not in run("deploy", path, *WHERE, *skipped).stderr
