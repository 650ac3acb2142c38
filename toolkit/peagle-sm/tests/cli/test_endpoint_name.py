"""NAME may be left out where ./peagle.yaml names the endpoint; the region of that file is used too."""

from __future__ import annotations

import json
from pathlib import Path

import click
import pytest

from peagle_sm.cli.arguments import endpoint_argument, open_session
from peagle_sm.cli.base import State
from tests.cli.running import run

ONE_ENDPOINT = ("status", "wait", "logs", "invoke", "chat", "pause", "resume", "delete", "keep 2h")
SPEC = (
    "name: from-file\nmodel: gpt-oss-20b\nplacement: {region: eu-west-1, instance_types: [ml.g7e.2xlarge]}\n"
)


@click.command()
@endpoint_argument
@click.pass_obj
def show(state: State, name: str) -> None:
    click.echo(f"{name} {open_session(state).region}")


def _shown(*arguments: str) -> tuple[str, str]:
    from click.testing import CliRunner

    result = CliRunner().invoke(show, list(arguments), obj=State(environ={"AWS_REGION": ""}))
    return result.stdout, result.stderr


def test_the_name_and_the_region_come_from_the_spec(in_empty_folder: Path) -> None:
    (in_empty_folder / "peagle.yaml").write_text(SPEC)
    assert _shown() == ("from-file eu-west-1\n", "note: endpoint from-file (name from ./peagle.yaml)\n")


def test_a_name_that_is_given_counts_and_nothing_is_read(
    in_empty_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_DEFAULT_REGION", "us-west-2")
    (in_empty_folder / "peagle.yaml").write_text("not: [a spec")
    assert _shown("other") == ("other us-west-2\n", "")


@pytest.mark.parametrize("command", ONE_ENDPOINT)
def test_without_a_spec_the_name_is_asked_for(command: str, in_empty_folder: Path) -> None:
    result = run(*command.split())
    assert result.exit_code == 2
    assert "No NAME was given, and there is no ./peagle.yaml to read it from." in result.stderr


@pytest.mark.parametrize("command", ONE_ENDPOINT)
def test_every_command_reads_the_name_from_the_spec(command: str, in_empty_folder: Path) -> None:
    (in_empty_folder / "peagle.yaml").write_text("name: [1]\nmodel: gpt-oss-20b\n")
    result = run(*command.split(), "--format", "json")
    error = json.loads(result.stderr)["error"]
    assert (error["type"], error["details"]["problems"][0]["field"]) == ("SpecError", "name")


@pytest.mark.parametrize("command", ["status", "keep", "delete"])
def test_help_needs_no_spec(command: str, in_empty_folder: Path) -> None:
    assert run(command, "--help").exit_code == 0


def test_keep_takes_a_name_and_a_duration(in_empty_folder: Path) -> None:
    (in_empty_folder / "peagle.yaml").write_text(SPEC)
    assert "'demo' is not a duration" in run("keep", "demo").stderr
    assert "allowed: [NAME] DURATION" in run("keep", "a", "2h", "b").stderr
