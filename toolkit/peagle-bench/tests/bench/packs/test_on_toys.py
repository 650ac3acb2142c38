"""`compare --packs` on toy engines over plain HTTP: what only a whole run shows, at the model's own limit."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from peagle_bench.load import WorkItem
from peagle_bench.packs.identity import judge_same
from peagle_bench.verify.engines import EnginePair, Options
from peagle_bench.verify.statistics import CheckVerdict
from peagle_sm.core.errors import ServiceFault, SpecError
from tests.bench.packs.making import request
from tests.bench.verify.toy_vllm import CONTEXT, Engine, serving
from tests.cli.running import run


def compare(folder: Path, packs: str, fault: str, *options: str) -> tuple[int, dict[str, Any], str]:
    """Exit code, the rows of the scorecard by pack, and what was said."""
    with serving() as (plain, _), serving(fault) as (fast, _):
        size = ("--prompts", "8", "--out", folder / "r.jsonl", "--format", "json")
        done = run("compare", f"none={plain}", f"fast={fast}", "--packs", packs, *size, *options)
    rows = json.loads(done.stdout)["packs"] if done.stdout.strip() else []
    return done.exit_code, {row["pack"]: row for row in rows}, done.stderr


def checks(row: Mapping[str, Any]) -> dict[str, bool | str | None]:
    return {check["name"]: check["passed"] if check["applicable"] else "n/a" for check in row["checks"]}


def test_an_engine_without_faults_answers_like_the_baseline_up_to_the_limit(tmp_path: Path) -> None:
    code, rows, stderr = compare(tmp_path, "long-context", "")
    result = checks(rows["long-context"])
    assert (code, result["identity"], result["limit"]) == (0, True, True), stderr


@pytest.mark.parametrize(
    ("fault", "check"), [("late", "identity"), ("last token", "identity"), ("ends early", "limit")]
)
def test_a_fault_at_the_model_s_own_limit_is_found_without_a_smaller_context(
    tmp_path: Path, fault: str, check: str
) -> None:
    code, rows, stderr = compare(tmp_path, "long-context", fault)
    assert (code, checks(rows["long-context"])[check]) == (9, False), (rows, stderr)


def test_a_smaller_context_has_no_limit_to_judge(tmp_path: Path) -> None:
    _, rows, _ = compare(tmp_path, "long-context", "ends early", "--context", "480")
    assert checks(rows["long-context"])["limit"] == "n/a"


def test_an_engine_that_does_not_name_its_tokens_ends_no_other_pack(tmp_path: Path) -> None:
    code, rows, stderr = compare(tmp_path, "guardrails,structured-output", "")
    assert code == 0, stderr
    assert "text without its tokens" in rows["guardrails"]["why"]
    assert "structured-output" in rows


def test_without_a_known_baseline_nothing_is_sent_and_the_next_step_names_one(tmp_path: Path) -> None:
    out = tmp_path / "r.jsonl"
    with serving() as (plain, first), serving("late") as (fast, second):
        done = run("compare", f"plain={plain}", f"fast={fast}", "--packs", "rag,agents", "--out", out)
    text = " ".join(done.stderr.split())
    assert done.exit_code == 2, text
    assert "no arm is known to be one: plain (mode unknown), fast (mode unknown)" in text
    assert "as none=NAME" in text
    assert (first.asked, second.asked, out.exists()) == (0, 0, False)


@dataclass
class Direct:
    """A toy engine in this process, which refuses prompts that begin with a token, or fails at them."""

    name: str
    engine: Engine
    refuses: int | None = None
    fails: bool = False
    log_hint: str = ""

    def ask(self, body: Mapping[str, Any]) -> Mapping[str, Any]:
        if body["prompt"][0] == self.refuses:
            raise ServiceFault("gone") if self.fails else SpecError("no room")
        return self.engine.answer(body)

    def stream(self, body: Mapping[str, Any], until: Any = None) -> list[Mapping[str, Any]]:
        raise AssertionError("nothing is streamed here")


def same(fault: str, *, refuses: int | None = None, fails: bool = False, most: int = 8) -> CheckVerdict:
    """The verdict on two prompts that were answered otherwise, the first of which may be refused."""
    items = [
        WorkItem(f"{first}/limit", {"prompt": [first] * (CONTEXT - 24), "max_tokens": 24}) for first in (5, 7)
    ]
    mine = [request(item.prompt_id) for item in items]
    theirs = [replace(check, output_sha256="other") for check in mine]
    plain = Direct("plain", Engine(), refuses, fails)
    pair = EnginePair(plain, Direct("fast", Engine(fault)), Options(concurrency=1))
    return judge_same(mine, theirs, items, pair, CONTEXT, most)


def test_a_prompt_that_is_refused_is_left_out_and_the_others_are_judged() -> None:
    assert same("").passed is True
    assert same("late", refuses=5).passed is False
    left = same("", refuses=5)
    assert left.passed is None
    assert "1 of 2 that differ could not be judged: baseline failed when asked again: no room" in left.summary


def test_the_verdict_says_how_many_of_the_answers_that_differ_were_scored() -> None:
    assert "scored" not in same("").summary
    assert "0 of 2 answers identical" in same("", most=1).summary
    assert "(1 of them were scored)" in same("", most=1).summary


def test_an_engine_that_fails_is_not_asked_for_the_other_prompts() -> None:
    result = same("late", refuses=5, fails=True)
    assert result.passed is None
    assert result.summary.endswith("baseline failed when asked again: gone")
