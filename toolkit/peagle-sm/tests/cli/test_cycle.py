"""The commands against a real local server with scripted engines: what a user sees of one endpoint's life."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from peagle_sm.core.catalog import load_catalog
from tests.cli.conftest import Run
from tests.local.serving import Server

Spec = Callable[..., str]
pytestmark = pytest.mark.slow


def test_plan_shows_and_dry_run_prints_the_exact_requests(peagle: Run, spec: Spec) -> None:
    path = spec()
    shown = peagle("plan", path)
    assert shown.exit_code == 0
    assert "Plan for demo in us-east-1, the local SageMaker" in shown.stdout
    assert "small stand-in weights" in shown.stdout
    exact = json.loads(peagle("plan", path, "--dry-run").stdout)
    assert [(each["service"], each["operation"]) for each in exact] == [
        ("scheduler", "create_schedule"),
        ("sagemaker", "create_model"),
        ("sagemaker", "create_endpoint_config"),
        ("logs", "create_log_group"),
        ("logs", "put_retention_policy"),
        ("sagemaker", "create_endpoint"),
    ]
    assert peagle("deploy", path, "--dry-run").exit_code == 0
    assert json.loads(peagle("list", "--format", "json").stdout) == []


def test_more_draft_tokens_than_the_head_was_trained_for_is_exit_code_3(peagle: Run, spec: Spec) -> None:
    path = Path(spec())
    path.write_text(path.read_text() + "speculation: {mode: p-eagle, num_speculative_tokens: 30}\n")
    for command in (["plan"], ["plan", "--dry-run"], ["deploy", "--unguarded", "--yes"]):
        result = peagle(*command, str(path))
        assert result.exit_code == 3
        details = json.loads(peagle(*command, str(path), "--format", "json").stderr)["error"]["details"]
        message = next(each["message"] for each in details["findings"] if each["severity"] == "error")
        assert (result.stdout + result.stderr).count(message) == 1
        assert "next: " in result.stderr
        error = json.loads(peagle(*command, str(path), "--format", "json").stderr)["error"]
        assert error["type"] == "PlanRefused"
        assert any(finding["severity"] == "error" for finding in error["details"]["findings"])


def test_without_a_terminal_and_yes_nothing_is_created(server: Server, peagle: Run, spec: Spec) -> None:
    path = spec()
    result = peagle("deploy", path)
    assert result.exit_code == 2
    assert (result.stdout, result.stderr) == (
        "",
        "error: Cannot ask for confirmation: stdin is not a terminal and --yes was not given. "
        "Nothing was changed.\n"
        f"  next: check with `peagle-sm plan {path} --local-port {server.status.port}`, "
        "then run this command again with --yes\n",
    )
    assert peagle("list", "--format", "quiet").stdout == ""


def test_no_at_the_question_creates_nothing(peagle: Run, spec: Spec) -> None:
    result = peagle("deploy", spec(), "--unguarded", answers="n\n")
    assert result.exit_code == 3
    assert "error:" not in result.stderr
    assert "Create demo for 0.00 USD/hour? [y/N]" in result.stderr
    assert peagle("list", "--format", "quiet").stdout == ""


def test_yes_at_the_question_deploys_and_follows(peagle: Run, spec: Spec) -> None:
    result = peagle("deploy", spec(), "--unguarded", answers="y\n")
    assert result.exit_code == 0, result.stderr
    assert "lifetime schedule created" in result.stderr
    assert "endpoint demo is in service" in result.stderr
    assert "status       InService" in result.stdout
    assert "try it:     peagle-sm invoke demo -p 'def fibonacci(n):' --temperature 0 --local" in result.stdout


def test_each_line_of_stderr_is_json_when_json_is_asked(peagle: Run, spec: Spec) -> None:
    result = peagle("deploy", spec(), "--unguarded", "--yes", "--format", "json")
    lines = [json.loads(line) for line in result.stderr.splitlines()]
    assert lines[0]["plan"]["name"] == "demo"
    assert [each["progress"]["phase"] for each in lines[1:]][-1] == "ready"
    document = json.loads(result.stdout)
    assert (document["name"], document["status"], document["stand_in_weights"]) == ("demo", "InService", True)


def test_a_deploy_without_waiting_returns_while_it_is_created(peagle: Run, spec: Spec) -> None:
    result = peagle("deploy", spec(SCRIPT_PING="2"), "--unguarded", "--yes", "--no-wait")
    assert result.exit_code == 0, result.stderr
    assert "status       Creating" in result.stdout
    assert "check it:   peagle-sm status demo" in result.stdout


def test_list_and_status(peagle: Run, deployed: str) -> None:
    header, row = peagle("list").stdout.splitlines()
    assert header.split() == ["NAME", "STATUS", "MODE", "INSTANCE", "AGE", "USD/HOUR", "SPENT", "EXPIRES"]
    k = load_catalog().models["tiny-code"].default_num_speculative_tokens["p-eagle"]
    assert row.split()[:5] == ["demo", "InService", "p-eagle", f"K={k}", "1"]
    assert peagle("list", "--format", "quiet").stdout == "demo\n"
    status = peagle("status", deployed)
    assert "weights      small stand-in weights" in status.stdout
    assert "overrides    scripted: no model is loaded" in status.stdout
    assert peagle("status", deployed, "--format", "quiet").stdout == "demo\n"


def test_invoke_streams_to_stdout_and_its_figures_go_to_stderr(peagle: Run, deployed: str) -> None:
    result = peagle("invoke", deployed, "-p", "x")
    assert result.exit_code == 0, result.stderr
    assert result.stdout == "token0 token1 token2 token3 token4 \n"
    assert "TTFT" in result.stderr
    assert "small stand-in weights" in result.stderr
    # The scripted engine reports none.
    assert result.stderr.count("note: the engine speculates but reported no acceptance length") == 1
    piped = json.loads(peagle("invoke", deployed, "--format", "json", stdin='{"prompt": "x"}').stdout)
    assert piped["text"] == "token0 token1 token2 token3 token4 "
    assert piped["stand_in_weights"] is True


def test_a_body_over_the_limit_is_refused_before_it_is_sent(peagle: Run, deployed: str) -> None:
    result = peagle("invoke", deployed, stdin="x" * (6 * 1024 * 1024 + 1))
    assert result.exit_code == 2
    assert "6,291,456" in result.stderr
    assert len(result.stderr) < 1000


def test_a_cut_stream_keeps_its_text_and_is_exit_code_9(peagle: Run, spec: Spec) -> None:
    peagle("deploy", spec("cut", SCRIPT_INVOKE="cut"), "--unguarded", "--yes", "--format", "quiet")
    result = peagle("invoke", "cut", "-p", "x")
    assert result.exit_code == 6
    assert result.stdout.startswith("token0 ")
    assert result.stderr.startswith("error: ")


def test_logs(peagle: Run, deployed: str) -> None:
    assert "scripted engine" in peagle("logs", deployed).stdout
    line = json.loads(peagle("logs", deployed, "--tail", "1", "--format", "json").stdout)
    assert line["message"].startswith("scripted engine")
    assert "scripted engine" in peagle("local", "logs", deployed).stdout


def test_delete_shows_asks_deletes_and_proves(peagle: Run, deployed: str) -> None:
    refused = peagle("delete", "dem*")
    assert refused.exit_code == 2
    assert "    endpoint/demo\n" in refused.stderr
    kept = peagle("delete", "dem*", answers="\n")
    assert kept.exit_code == 3
    assert peagle("list", "--format", "quiet").stdout == "demo\n"
    gone = peagle("delete", "dem*", answers="yes\nno\n")
    assert gone.exit_code == 0, gone.stderr
    assert "To be deleted:\n  demo (InService, 0.00 USD/hour)\n" in gone.stderr
    assert gone.stdout.splitlines()[0] == "deleted  endpoint/demo"
    proven = gone.stdout.splitlines().index("checked  no resource of demo remains except the log group")
    assert gone.stdout.splitlines()[proven + 1] == "kept     log group /aws/sagemaker/Endpoints/demo"
    empty = peagle("list")
    assert (empty.stdout, empty.stderr) == ("", "no endpoints in us-east-1\n")


def test_delete_keeps_the_logs_and_shows_the_command_that_deletes_them(peagle: Run, deployed: str) -> None:
    group = "/aws/sagemaker/Endpoints/demo"
    gone = peagle("delete", "demo", answers="yes\n")
    assert gone.exit_code == 0, gone.stderr
    assert f"    log-group/{group}: kept\n" in gone.stderr
    assert f"`aws logs delete-log-group --log-group-name {group} --endpoint-url http://" in gone.stdout
    # What a stack of this name would make, and AWS refuses to make twice.
    again = peagle("delete", "demo", "--yes")
    assert again.exit_code == 0
    assert f"`aws logs delete-log-group --log-group-name {group} --endpoint-url http://" in again.stdout


def test_delete_shows_what_it_would_delete_and_what_is_gone_is_no_error(peagle: Run, deployed: str) -> None:
    shown = peagle("delete", deployed, "nope", "--dry-run")
    assert (shown.exit_code, shown.stderr) == (0, "")
    assert "  demo (InService" in shown.stdout
    assert "    endpoint/demo\n" in shown.stdout
    assert peagle("status", deployed).exit_code == 0
    rows = json.loads(peagle("delete", deployed, "--dry-run", "--format", "json").stdout)
    assert [(row["name"], row["status"]) for row in rows] == [("demo", "InService")]
    gone = peagle("delete", deployed, "nope", "--yes")
    assert gone.exit_code == 0
    assert "deleted  endpoint/demo" in gone.stdout
    assert "absent   'nope' matches nothing that peagle-sm created" in gone.stdout
    again = peagle("delete", deployed, "--yes", "--format", "json")
    assert again.exit_code == 0
    assert list(json.loads(again.stdout)["absent"]) == ["demo"]
    assert peagle("delete", deployed, "--dry-run").stdout == "To be deleted: nothing\n"


def test_delete_as_json(peagle: Run, deployed: str) -> None:
    result = peagle("delete", deployed, "--yes", "--format", "json")
    document = json.loads(result.stdout)
    assert document["names"] == ["demo"]
    assert document["leftovers"] == []
    assert len(document["deleted"]) == 4
    assert json.loads(result.stderr.splitlines()[0])["deleting"][0]["name"] == "demo"


def test_an_engine_that_dies_is_told_with_its_last_words_and_cleaned_up(peagle: Run, spec: Spec) -> None:
    path = spec("dies", SCRIPT_PING="never", SCRIPT_EXIT_AFTER="0.3", SCRIPT_EXIT_LINE="ValueError: no head")
    result = peagle("deploy", path, "--unguarded", "--yes")
    assert result.exit_code == 7
    assert "ValueError: no head" in result.stderr
    assert "Traceback" not in result.stderr
    assert peagle("list", "--format", "quiet").stdout == ""


@pytest.mark.parametrize("words", [["status"], ["logs"], ["invoke", "-p", "x"], ["pause", "--yes"]])
def test_an_endpoint_that_does_not_exist_is_exit_code_4(peagle: Run, words: list[str]) -> None:
    result = peagle(words[0], "nobody", *words[1:])
    assert result.exit_code == 4
    assert "nobody" in result.stderr
    assert "next: " in result.stderr
    as_json = peagle(words[0], "nobody", *words[1:], "--format", "json")
    error = json.loads(as_json.stderr.splitlines()[-1])["error"]
    assert (error["type"], error["exit_code"]) == ("NotFound", 4)


def test_local_status_repeats_what_a_script_needs(peagle: Run) -> None:
    document = json.loads(peagle("local", "status", "--format", "json").stdout)
    assert {"endpoint_url", "region", "role_arn", "image_uris", "artifacts"} <= document.keys()
    assert {"target", "eagle3", "p-eagle", "smollm2"} <= document["artifacts"].keys()
    assert peagle("local", "status", "--format", "quiet").stdout == document["endpoint_url"] + "\n"
    assert "artifacts     smollm2: s3://" in peagle("local", "status").stdout


def test_the_local_clock_moves(peagle: Run) -> None:
    result = peagle("local", "clock", "advance", "90s", "--format", "json")
    assert json.loads(result.stdout)["advanced_seconds"] == 90


def test_another_region_than_the_local_servers_is_refused(peagle: Run) -> None:
    result = peagle("list", "--region", "eu-west-1")
    assert result.exit_code == 5
    assert "us-east-1" in result.stderr
