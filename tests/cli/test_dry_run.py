"""`deploy --dry-run` refuses what `deploy` refuses, and no more."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml

from tests.cli.running import run
from tests.service.setting import make_spec


@pytest.fixture
def deep(tmp_path: Path) -> Path:
    """A spec that asks for more draft tokens than its draft head was trained for."""
    fields = make_spec().model_dump(mode="json", exclude_unset=True)
    fields["speculation"] = {"mode": "p-eagle", "num_speculative_tokens": 30}
    path = tmp_path / "peagle.yaml"
    path.write_text(yaml.safe_dump(fields))
    return path


def test_a_check_that_is_skipped_does_not_refuse_a_dry_run(deep: Path) -> None:
    where = ("deploy", deep, "--dry-run", "--region", "us-east-1")
    refused = run(*where)
    assert refused.exit_code == 3, refused.stderr
    assert "trained-depth: " in refused.stderr
    skipped = run(*where, "--skip-check", "trained-depth")
    assert skipped.exit_code == 0, skipped.stderr
    assert json.loads(skipped.stdout)[-1]["operation"] == "create_endpoint"


def test_a_check_that_does_not_exist_is_refused(deep: Path) -> None:
    result = run("deploy", deep, "--dry-run", "--region", "us-east-1", "--skip-check", "nope")
    assert result.exit_code == 2
    assert "--skip-check: found nope; allowed: an id of a check" in result.stderr
