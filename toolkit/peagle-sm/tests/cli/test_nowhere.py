"""Without an account, a server or a spec: each says what to do next."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from peagle_sm.core.checks import SPEC_CHECKS
from peagle_sm.core.guard import execution_role
from tests.cli.running import run

SPEC = "name: demo\nmodel: tiny-code\n"


def test_a_spec_that_is_not_there(in_empty_folder: Path) -> None:
    result = run("plan")
    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr == (
        "error: peagle.yaml: cannot be read: No such file or directory\n"
        "  next: Give an existing spec file, or write one with `peagle-sm init`.\n"
    )


def test_a_models_name_in_the_place_of_a_spec_leads_to_init(in_empty_folder: Path) -> None:
    for words in (["deploy", "tiny-code", "--yes"], ["plan", "tiny-code"], ["doctor", "tiny-code"]):
        result = run(*words)
        assert result.exit_code == 2
        assert "peagle-sm init tiny-code" in result.stderr


def test_each_line_of_several_faults_ends_in_a_word(in_empty_folder: Path) -> None:
    (in_empty_folder / "q.yaml").write_text("name: q\nmodel: tiny-code\nkk: 3\npp: 4\n")
    for output in ("table", "json"):
        lines = run("plan", "q.yaml", "--format", output).stderr.replace("\\n", "\n").splitlines()
        assert len(lines) > 2
        assert all(line == line.rstrip() != "" for line in lines), lines


@pytest.mark.parametrize(
    ("words", "command"),
    [("ls", "list"), ("rm", "delete"), ("stop", "pause"), ("guard rm", "uninstall"), ("local stop", "down")],
)
def test_the_words_of_other_tools_lead_to_the_command(words: str, command: str) -> None:
    result = run(*words.split())
    assert result.exit_code == 2
    assert f"Did you mean '{command}'?" in result.stderr


def test_a_bad_spec_names_the_field(in_empty_folder: Path) -> None:
    Path("peagle.yaml").write_text("name: demo\nmodle: tiny-code\n")
    result = run("plan", "--local")
    assert result.exit_code == 2
    assert result.stderr.startswith("error: peagle.yaml:")
    assert "modle" in result.stderr
    assert "next: " in result.stderr


def test_a_deploy_that_nobody_can_confirm_is_refused_before_anything_is_looked_up(
    in_empty_folder: Path,
) -> None:
    Path("peagle.yaml").write_text(SPEC)
    result = run("deploy")
    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr.startswith(
        "error: Cannot ask for confirmation: stdin is not a terminal and --yes was not given."
    )


def test_a_spec_from_stdin() -> None:
    result = run("plan", "-", stdin="name: 1\n")
    assert result.exit_code == 2
    assert "stdin" in result.stderr


@pytest.mark.parametrize("words", [["list"], ["local", "status"], ["delete", "x", "--yes"]])
def test_no_local_server_is_exit_code_4_and_says_how_to_start_one(
    words: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))  # other tests' server may run by now
    result = run(*words, environ={"PEAGLE_SM_LOCAL": "1"})
    assert result.exit_code == 4
    assert "peagle-sm local up --detach" in result.stderr


@pytest.mark.parametrize("words", [["local", "status"], ["list"]])
def test_the_port_of_the_environment_is_looked_for_and_implies_local(words: list[str]) -> None:
    result = run(*words, environ={"PEAGLE_SM_LOCAL_PORT": "9"}, stdin="")
    assert (result.exit_code, "no local SageMaker is running on port 9" in result.stderr) == (4, True)


@pytest.mark.parametrize("text", ["abc", "0", "70000"])
def test_a_port_of_the_environment_that_is_none_is_refused(text: str) -> None:
    result = run("list", environ={"PEAGLE_SM_LOCAL_PORT": text})
    assert result.exit_code == 2
    assert f"error: PEAGLE_SM_LOCAL_PORT: found '{text}'; allowed: a port from 1 to 65535" in result.stderr
    assert "next: " in result.stderr


def test_nothing_to_end_is_no_error() -> None:
    result = run("local", "down", "--local-port", "9")
    assert (result.exit_code, result.stdout) == (0, "no local server was running\n")
    assert json.loads(run("local", "down", "--local-port", "9", "--format", "json").stdout) == {"ended": []}


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["list"], "region"),
        (["list", "--region", "us-nowhere-7"], "us-nowhere-7"),
        (["list", "--region", "us-east-1", "--profile", "nobody"], "nobody"),
        (["list", "--region", "us-east-1"], "credentials"),
    ],
)
def test_no_account_is_exit_code_5_with_a_remedy(words: list[str], message: str) -> None:
    result = run(*words)
    assert result.exit_code == 5
    assert message in result.stderr.lower()
    assert "next: " in result.stderr


@pytest.mark.parametrize(
    "words", [["plan"], ["plan", "--dry-run"], ["plan", "--stack"], ["deploy", "--dry-run"]]
)
def test_a_complete_spec_is_planned_without_an_account(root: Path, words: list[str]) -> None:
    result = run(*words, root / "docs/examples/gpt-oss-20b.yaml", "--region", "us-east-1")
    assert result.exit_code == 0, result.stderr
    assert "123456789012" in result.stdout


@pytest.mark.parametrize(
    "words", [["plan"], ["plan", "--dry-run"], ["plan", "--stack"], ["deploy", "--dry-run"]]
)
def test_the_first_plan_needs_neither_account_nor_region_and_names_its_assumptions(
    in_empty_folder: Path, words: list[str]
) -> None:
    assert run("init", "gpt-oss-20b").exit_code == 0
    result = run(*words)
    assert result.exit_code == 0, result.stderr
    everything = result.stdout + result.stderr
    for fact in ("us-east-1", "AWS_REGION", "000000000000", "no AWS credentials were found"):
        assert fact in everything
    assert f"arn:aws:iam::000000000000:role/{execution_role('us-east-1')}" in run("plan", "--dry-run").stdout


def test_a_plan_as_json_lists_its_assumptions(in_empty_folder: Path) -> None:
    Path("peagle.yaml").write_text("name: demo\nmodel: gpt-oss-20b\n")
    document = json.loads(run("plan", "--format", "json", "--region", "eu-west-1").stdout)
    (assumption,) = document["assumed"]
    assert (document["account"], document["region"]) == ("000000000000", "eu-west-1")
    assert "000000000000" in assumption


def test_a_deploy_assumes_nothing(in_empty_folder: Path) -> None:
    Path("peagle.yaml").write_text("name: demo\nmodel: gpt-oss-20b\n")
    assert run("deploy", "--yes").exit_code == 5
    assert run("deploy", "--yes", "--region", "us-east-1").exit_code == 5


@pytest.mark.parametrize("options", [[], ["--region", "us-east-1"], ["--profile", "nobody"]])
def test_doctor_checks_the_spec_without_an_account(in_empty_folder: Path, options: list[str]) -> None:
    Path("peagle.yaml").write_text(
        "name: demo\nmodel: gpt-oss-20b\nplacement: {instance_types: [ml.g5.12xlarge]}\n"
    )
    result = run("doctor", "peagle.yaml", "--format", "json", *options)
    assert result.exit_code == 5
    checked = {each["check"]: each["status"] for each in json.loads(result.stdout)}
    assert checked["credentials"] == "error"
    assert {each.id for each in SPEC_CHECKS} <= checked.keys()
    unchecked = "did not run" in result.stdout or "unknown" in checked.values()
    assert unchecked  # the checks of the account are not left out without a word


def test_the_catalogue_needs_nothing() -> None:
    models = json.loads(run("models", "--format", "json").stdout)
    ids = {each["id"] for each in models}
    assert {"smollm2-135m-instruct", "gpt-oss-20b"} <= ids
    assert "tiny-code" not in ids, "the model of the tests is not for users"
    assert run("models", "--format", "quiet").stdout.splitlines() == [each["id"] for each in models]
    assert run("models").stdout.splitlines()[0].split()[:2] == ["MODEL", "SOURCE"]
