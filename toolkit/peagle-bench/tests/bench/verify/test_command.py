"""`peagle-sm verify` against toy engines over plain HTTP: each fault ends in the check that covers it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from peagle_bench.results.result_file import read
from tests.bench.verify.toy_vllm import serving
from tests.cli.running import run

WORDS = [
    *("alpha", "beta", "gamma", "delta", "epsilon", "zeta"),
    *("eta", "theta", "iota", "kappa", "lambda", "mu"),
]
ALL = ["greedy", "sampled", "parameters", "logprobs", "stop-strings", "streaming"]
ALL += ["json-schema", "tool-calls", "long-context"]


@pytest.fixture
def prompts(tmp_path: Path) -> Path:
    path = tmp_path / "prompts.jsonl"
    rows = [{"id": f"{a}-{n}", "prompt": f"{a} {n} {a[::-1]}"} for n in range(2) for a in WORDS]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


@pytest.fixture(autouse=True)
def _results_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Results files go below the working directory unless --out is given."""
    monkeypatch.chdir(tmp_path)


def verify(
    prompts: Path, fault: str, *options: str, baseline_fault: str = ""
) -> tuple[int, dict[str, Any], str]:
    with serving(baseline_fault) as (baseline, _), serving(fault, seed=1) as (candidate, _):
        words = ("--workload", str(prompts), "--quick", "--max-tokens", "32", "--format", "json", *options)
        done = run("verify", candidate, "--baseline", baseline, *words)
    document = json.loads(done.stdout) if done.stdout.strip() else {}
    return done.exit_code, document, done.stderr


def results(document: dict[str, Any]) -> dict[str, bool | None]:
    return {check["name"]: check["passed"] for check in document["checks"]}


def test_a_sound_engine_passes_every_check_and_the_file_says_so(prompts: Path, tmp_path: Path) -> None:
    out = tmp_path / "verify.jsonl"
    code, document, stderr = verify(prompts, "", "--out", str(out))
    assert (code, document["passed"]) == (0, True), (document, stderr)
    assert results(document) == dict.fromkeys(ALL, True)
    assert all(check["power"] for check in document["checks"])
    written = read(out)
    assert [check.name for check in written.checks] == ALL
    assert written.header.command == "verify"
    assert [arm.transport for arm in written.arms] == ["http", "http"]


@pytest.mark.parametrize(
    ("fault", "check"),
    [
        ("runner-up", "greedy"),
        ("hot", "sampled"),
        ("logprobs", "logprobs"),
        ("leaks", "stop-strings"),
        ("loses chunks", "streaming"),
        ("broken json", "json-schema"),
        ("broken json", "tool-calls"),
        ("no tools", "tool-calls"),
        ("late", "long-context"),
        ("other text", "greedy"),
        ("other text", "streaming"),
        ("swaps", "sampled"),
        ("ignores top_p", "parameters"),
        ("refuses top_p", "parameters"),
        ("ignores top_k", "parameters"),
        ("ignores min_p", "parameters"),
        ("ignores temperature", "parameters"),
    ],
)
def test_each_fault_fails_the_check_that_covers_it(prompts: Path, fault: str, check: str) -> None:
    code, document, stderr = verify(prompts, fault, "--checks", check)
    assert (code, results(document)) == (9, {check: False}), stderr
    assert document["checks"][0]["examples"]
    assert "OutputsDiffer" in stderr


def test_tool_calls_are_not_applicable_where_neither_side_has_a_tool_parser(
    prompts: Path, tmp_path: Path
) -> None:
    """As with the small stand-in weights: the rest decides, and the refusal is printed once."""
    with serving("no tools") as (baseline, _), serving("no tools", seed=1) as (candidate, _):
        words = ["--workload", str(prompts), "--quick", "--max-tokens", "32"]
        done = run("verify", candidate, "--baseline", baseline, *words)
    assert done.exit_code == 0, done.stderr
    assert "tool-calls    not applicable  neither endpoint has a tool parser: " in done.stdout
    assert (done.stdout + done.stderr).count("--tool-call-parser") == 1
    assert "8 of 8 checks passed; not applicable: tool-calls" in done.stdout.splitlines()[-2]
    (out,) = (tmp_path / "results").glob("verify-http---127-0-0-1-*.jsonl")
    assert done.stdout.splitlines()[-1] == f"results: results/{out.name}"
    assert [check.name for check in read(out).checks if not check.applicable] == ["tool-calls"]
    assert [check.name for check in read(out).checks if check.passed] == [n for n in ALL if n != "tool-calls"]
    shown = run("report", out)
    assert "8 of 8 checks passed; not applicable: tool-calls" in shown.stdout


def test_min_p_is_not_applicable_where_the_engine_refuses_it_with_speculation(prompts: Path) -> None:
    """As vLLM 0.32 does: the user sees a 400, and no answer is changed."""
    code, document, stderr = verify(prompts, "no min_p", "--checks", "parameters")
    assert (code, results(document)) == (0, {"parameters": True}), stderr
    summary = document["checks"][0]["summary"]
    assert "top_p is applied; top_k is applied; " in summary
    assert summary.endswith("min_p is not applicable: not yet supported with speculative decoding")


def test_nothing_applicable_is_never_a_pass(prompts: Path) -> None:
    code, document, stderr = verify(prompts, "no tools", "--checks", "tool-calls", baseline_fault="no tools")
    assert (code, document["passed"], results(document)) == (10, None, {"tool-calls": None})
    assert "Nothing was checked; not applicable: tool-calls" in stderr


def test_what_the_baseline_alone_cannot_do_is_undecided_and_never_a_pass(prompts: Path) -> None:
    with serving("no tools") as (baseline, _), serving(seed=1) as (candidate, _):
        words = ["--workload", str(prompts), "--prompts", "4", "--quick"]
        words += ["--checks", "tool-calls,json-schema"]
        done = run("verify", candidate, "--baseline", baseline, *words)
        allowed = run("verify", candidate, "--baseline", baseline, *words, "--allow-undecided", "--out", "b")
    assert done.exit_code == 10, done.stderr
    assert "undecided  could not be decided: the baseline refuses tools" in done.stdout
    assert "--tool-call-parser" in done.stdout
    conclusion = "1 of 2 checks passed; undecided: tool-calls"
    assert (done.stdout + done.stderr).count(conclusion) == 1
    assert "--allow-undecided" in done.stderr
    assert allowed.exit_code == 0
    assert conclusion in allowed.stdout


def test_chats_of_one_s_own_are_verified_too(tmp_path: Path) -> None:
    path = tmp_path / "chats.jsonl"
    rows = [{"id": word, "messages": [{"role": "user", "content": word}]} for word in WORDS]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    code, document, stderr = verify(path, "", "--checks", "greedy,stop-strings")
    assert (code, results(document)) == (0, {"greedy": True, "stop-strings": True}), stderr


def test_an_engine_that_dies_in_a_check_is_told_with_the_check(prompts: Path, tmp_path: Path) -> None:
    out = tmp_path / "verify.jsonl"
    words = ("--checks", "greedy,json-schema,tool-calls", "--out", str(out))
    code, _, stderr = verify(prompts, "dies at json", *words)
    assert code == 6
    assert "stopped answering during the check 'json-schema'" in stderr
    assert [check.name for check in read(out).checks] == ["greedy"]


def test_a_check_that_does_not_exist_is_refused_before_anything_is_asked(prompts: Path) -> None:
    with serving() as (url, engine):
        done = run("verify", url, "--baseline", url, "--workload", prompts, "--checks", "greedy,speed")
    assert (done.exit_code, engine.asked) == (2, 0)
    assert "found speed; allowed: greedy, sampled" in done.stderr


def test_the_notice_counts_only_what_the_chosen_checks_ask(prompts: Path) -> None:
    _, _, one = verify(prompts, "", "--checks", "greedy", "--prompts", "4")
    assert "about 128 output tokens" in one  # 4 prompts of 32 tokens
    _, _, two = verify(prompts, "", "--checks", "streaming", "--prompts", "4")
    assert "about 256 output tokens" in two  # the greedy answers come in any case


def test_a_file_that_is_there_is_not_written_over(prompts: Path) -> None:
    with serving() as (url, engine):
        done = run("verify", url, "--baseline", url, "--workload", prompts, "--out", prompts)
    assert (done.exit_code, engine.asked) == (2, 0)
    assert "give another file (--out)" in done.stderr
