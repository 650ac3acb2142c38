"""`peagle-sm learn`: the front door, against the local SageMaker."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import pytest
import yaml

from peagle_learn import jobs
from peagle_learn import train as learning
from peagle_learn.core.spec import LearnSpec
from peagle_sm.aws.session.session import Session
from tests.cli.running import run
from tests.learn.conftest import WEIGHTS
from tests.learn.test_train import scripted, start

NOW = datetime(2026, 11, 24, 12, tzinfo=UTC)


def command(local: Session, folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    program = [sys.executable, "-m", "peagle_sm", "learn", *words, *local.command_flags().split()]
    return subprocess.run(program, cwd=folder, capture_output=True, text=True, timeout=300)


@pytest.fixture
def project(folder: Path) -> Path:
    document = {
        "name": "front-door",
        "target": {"model": "tiny-code", "uri": f"{WEIGHTS}target/"},
        "head": f"{WEIGHTS}p-eagle/",
        "bucket": "s3://learn-tests/front",
        "train": {"training": "training.tokens.jsonl", "validation": "validation.tokens.jsonl"},
    }
    (folder / "learn.yaml").write_text(yaml.safe_dump(document))
    return folder


@pytest.mark.slow
def test_dry_run_train_status_and_stop(local: Session, project: Path) -> None:
    dry = command(local, project, "train", "--dry-run")
    assert dry.returncode == 0, dry.stderr
    request = json.loads(dry.stdout)
    assert "needed" in dry.stderr
    trained = command(local, project, "train", "--yes", "--unguarded", "--format", "json")
    assert trained.returncode == 0, trained.stderr
    told = json.loads(trained.stdout)
    assert (told["job"], told["status"]) == (request["TrainingJobName"], "Completed")
    shown = command(local, project, "status", told["job"])
    assert told["artifact"] in shown.stdout
    assert max(map(len, shown.stdout.splitlines())) < 200
    assert command(local, project, "stop", told["job"]).returncode == 0
    for word in ("stop", "status"):
        unknown = command(local, project, word, "no-such-job")
        assert unknown.returncode == 4
        assert "no-such-job" in unknown.stderr


def test_a_dry_run_names_the_job_of_the_same_spec_that_runs(
    local: Session, project: Path, make_spec: Callable[..., LearnSpec]
) -> None:
    spec = make_spec("front-door", learning_rate=2e-4)
    first = scripted(learning.plan_training(spec, local, project), hold="always")
    start(local, first)
    words, flags = ("learn", "train", project / "learn.yaml", "--dry-run"), local.command_flags()
    told = run(*words, *flags.split())
    assert told.exit_code == 0, told.output
    assert f"peagle-sm learn stop {first.job}{flags}" in " ".join(told.output.split())
    shown = json.loads(run(*words, "--format", "json", *flags.split()).stdout)
    assert [first.job in one["message"] for one in shown["findings"] if one["check"] == "running-job"] == [
        True
    ]
    assert first.job in run("learn", "status", "--follow", *flags.split()).output, (
        "without a job: all that run"
    )
    jobs.stop(local, first.job)


def test_without_a_terminal_and_without_yes_nothing_is_done(local: Session, project: Path) -> None:
    refused = command(local, project, "train")
    assert refused.returncode == 2
    assert "Nothing was changed" in refused.stderr


def test_the_sizes_of_an_unknown_model_are_refused() -> None:
    told = run("learn", "plan", "s3://bucket/model/")
    assert told.exit_code == 2
    assert "write its s3:// folder into target.model of learn.yaml" in " ".join(told.output.split())
