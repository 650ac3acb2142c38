"""The GitHub Actions workflow of docs/how-to/pipeline.md: its commands exist, and nothing stays."""

from __future__ import annotations

import re
import shlex
import subprocess
from itertools import pairwise
from typing import Any

import click
import pytest
import yaml

from peagle_bench.compare.arms import name_of
from peagle_sm.cli.app import app
from tests.rules.files import ROOT

PAGE = ROOT / "docs" / "how-to" / "pipeline.md"


@pytest.fixture(scope="module")
def workflow() -> dict[str, Any]:
    (block,) = re.findall(r"^```yaml\n(.*?)^```", PAGE.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
    # YAML 1.1 reads the key `on` as true; GitHub reads it as text.
    document: dict[str, Any] = yaml.load(block, Loader=yaml.BaseLoader)
    return document


@pytest.fixture(scope="module")
def job(workflow: dict[str, Any]) -> dict[str, Any]:
    (job,) = workflow["jobs"].values()
    return dict(job)


def commands(job: dict[str, Any]) -> list[list[str]]:
    """Return the words of every command of peagle-sm in the steps."""
    commands = []
    for step in job["steps"]:
        for line in re.split(r"\|\||&&|;|\n", step.get("run", "")):
            words = shlex.split(line, comments=True)
            if words and words[0] == "peagle-sm":
                commands.append(words[1:])
    return commands


def test_it_has_what_github_needs(workflow: dict[str, Any], job: dict[str, Any]) -> None:
    assert set(workflow) <= {"name", "on", "permissions", "concurrency", "env", "jobs"}
    assert {"pull_request", "workflow_dispatch"} == set(workflow["on"])
    assert set(job) <= {"runs-on", "timeout-minutes", "steps", "env", "environment"}
    for step in job["steps"]:
        assert ("uses" in step) != ("run" in step)
        assert set(step) <= {"name", "uses", "with", "run", "if", "timeout-minutes", "env"}
        assert "uses" not in step or re.fullmatch(r"[\w-]+/[\w-]+@v\d+", step["uses"])


def test_it_stores_no_key_and_its_token_may_read_alone(workflow: dict[str, Any], job: dict[str, Any]) -> None:
    assert workflow["permissions"] == {"contents": "read", "id-token": "write"}
    assert "secrets." not in yaml.safe_dump(workflow)
    (login,) = [step for step in job["steps"] if "configure-aws-credentials" in step.get("uses", "")]
    assert set(login["with"]) == {"role-to-assume", "aws-region", "role-duration-seconds"}
    assert int(login["with"]["role-duration-seconds"]) >= 60 * int(job["timeout-minutes"])


def test_what_compare_deploys_is_deleted_in_any_case(workflow: dict[str, Any], job: dict[str, Any]) -> None:
    steps = job["steps"]
    runs = [step.get("run", "") for step in steps]
    measuring = next(at for at, run in enumerate(runs) if run.startswith("peagle-sm compare"))
    deleting = next(at for at, run in enumerate(runs) if run.startswith("peagle-sm delete"))
    assert deleting > measuring
    assert steps[deleting]["if"] == "always()"
    limits = [int(steps[at]["timeout-minutes"]) for at in (measuring, deleting)]
    assert sum(limits) < int(job["timeout-minutes"]), "the job's limit would end the deletion"
    (compare,) = [words for words in commands(job) if words[0] == "compare"]
    values = dict(pairwise(compare))
    endings = ["", *(str(number) for number in range(2, int(values["--deployments"]) + 1))]
    name = workflow["env"]["NAME"]
    deployed = {name_of(name, mode, ending) for mode in values["--modes"].split(",") for ending in endings}
    # The names of the runner's shell: no pattern that could match what others deployed.
    shell = ["bash", "-c", f"NAME={name}; printf '%s\\n' {runs[deleting].removeprefix('peagle-sm')}"]
    words = subprocess.run(shell, capture_output=True, text=True, check=True).stdout.split()
    assert set(words) == {"delete", "--yes"} | deployed
    assert workflow["concurrency"]["cancel-in-progress"] == "false"
    assert "--yes" in runs[measuring]


def test_each_command_and_option_exists(job: dict[str, Any]) -> None:
    lines = commands(job)
    assert {words[0] for words in lines} >= {"compare", "delete"}
    context = click.Context(app, info_name="peagle-sm")
    for words in lines:
        command = app.get_command(context, words[0])
        assert command is not None, words
        options = {option for param in command.params for option in (*param.opts, *param.secondary_opts)}
        given = {word for word in words[1:] if word.startswith("--")}
        assert given <= options, words


def test_its_gate_writes_what_it_uploads(job: dict[str, Any]) -> None:
    (compare,) = [words for words in commands(job) if words[0] == "compare"]
    values = dict(pairwise(compare))
    assert values["--gate"] == "record.jsonl"
    (upload,) = [step for step in job["steps"] if "upload-artifact" in step.get("uses", "")]
    assert upload["if"] == "always()"
    for option in ("--junit", "--html", "--record", "--out"):
        assert values[option].startswith(upload["with"]["path"])
