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
from peagle_learn.core.jobs import TRAINING_JOB, Job
from peagle_learn.core.spec import LearnSpec
from peagle_learn.report import training_page
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
    trained = command(
        local, project, "train", "--yes", "--unguarded", "--report", "page.html", "--format", "json"
    )
    assert trained.returncode == 0, trained.stderr
    told = json.loads(trained.stdout)
    assert (told["job"], told["status"]) == (request["TrainingJobName"], "Completed")
    assert request["TrainingJobName"] in (project / "page.html").read_text()
    shown = command(local, project, "status", told["job"])
    assert told["artifact"] in shown.stdout
    assert max(map(len, shown.stdout.splitlines())) < 200
    assert command(local, project, "stop", told["job"]).returncode == 0
    assert command(local, project, "stop", "no-such-job").returncode == 4


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
    jobs.stop(local, TRAINING_JOB, first.job)


def test_without_a_terminal_and_without_yes_nothing_is_done(local: Session, project: Path) -> None:
    refused = command(local, project, "train")
    assert refused.returncode == 2
    assert "Nothing was changed" in refused.stderr


def test_the_page_has_the_curves_and_the_facts() -> None:
    lines = [
        f"peagle-train step={n}/4 loss={3 - n / 2} accuracy_1=0.{n} tokens_per_second=500" for n in (1, 2, 4)
    ]
    job = Job(TRAINING_JOB, "a-<b>", "arn", "InProgress", NOW)
    page = training_page(jobs.JobState(job, "a", 60.0, 1.5, 90.0, tuple(lines)), NOW)
    assert "a-&lt;b&gt;" in page
    assert "<b>" not in page
    assert all(title in page for title in ("Loss by step", "for each drafted token", "Tokens a second"))
    empty = training_page(jobs.JobState(job, "a", 0.0, None, None), NOW)
    assert "has not written a step yet" in empty


def failing(local: Session, folder: Path, make_spec: Callable[..., LearnSpec], name: str) -> str:
    """Start a job that trains a step and fails; return its name."""
    plan = learning.plan_training(make_spec(name), local, folder)
    plan = scripted(plan, say="peagle-train step=1/4 loss=2.5", fail="line 3 is empty", exit="2")
    start(local, plan)
    return plan.job


def test_a_job_that_failed_has_its_page(
    local: Session, folder: Path, make_spec: Callable[..., LearnSpec]
) -> None:
    job, page = failing(local, folder, make_spec, "page"), folder / "page.html"
    told = run("learn", "status", job, "--follow", "--report", str(page), *local.command_flags().split())
    assert told.exit_code != 0
    assert "line 3 is empty" in told.output
    assert job in page.read_text()


def test_a_page_that_could_not_be_written_is_refused_before_anything_is_asked(
    local: Session, project: Path
) -> None:
    page = project / "nowhere" / "page.html"
    told = run("learn", "train", project / "learn.yaml", "--report", page, "--local-port", "1")
    assert told.exit_code == 2
    assert f"Make {page.parent}" in " ".join(told.output.split())


def test_a_name_in_no_job_is_not_found(local: Session) -> None:
    told = run("learn", "status", "nothere", *local.command_flags().split())
    assert told.exit_code == 4
    assert "nothere" in told.output


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("tiny-code", "--sequence-length", "16000"), "allowed: at most 8192, the context of tiny-code"),
        (("s3://bucket/model/",), "write its s3:// folder into target.model of learn.yaml"),
    ],
)
def test_the_sizes_of_what_cannot_be_trained_so_are_refused(words: tuple[str, ...], said: str) -> None:
    told = run("learn", "plan", *words)
    assert told.exit_code == 2
    assert said in " ".join(told.output.split())
