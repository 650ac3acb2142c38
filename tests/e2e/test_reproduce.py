"""`peagle-sm reproduce --local`: the whole path of a published table, on the real engine."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from peagle_bench.results.result_file import read
from scripts.bench.local_stack import LocalStack
from tests.cli.running import run

pytestmark = [pytest.mark.engine, pytest.mark.slow, pytest.mark.campaign]
TABLE = "gpt-oss-20b-humaneval"


@pytest.fixture(scope="module")
def port() -> Iterator[str]:
    with LocalStack(lambda line: print(line, file=sys.stderr)) as stack:
        yield (stack.session.local_url or "").rpartition(":")[2]
        assert stack.delete_all() == []
    assert stack.left == []


def test_a_published_table_is_measured_beside_its_figures(port: str, tmp_path: Path) -> None:
    out = tmp_path / "r.jsonl"
    size = ("--prompts", "4", "--max-tokens", "32")
    done = run("reproduce", TABLE, *size, "--unguarded", "--yes", "--out", out, "--local-port", port)
    assert done.exit_code == 0, done.output
    print(done.stderr, done.stdout)
    assert "these are the small stand-in weights on this machine's CPU" in done.stderr
    assert "Published and measured: GPT-OSS 20B, HumanEval" in done.stdout
    results = read(out)
    assert results.header.config["published"] == TABLE
    assert [arm.mode for arm in results.arms if not arm.control] == ["none", "eagle3", "p-eagle"]
    assert [arm.num_speculative_tokens for arm in results.arms if not arm.control] == [None, 3, 7]
    again = run("reproduce", TABLE, "--results", out, "--format", "json")
    told = json.loads(again.stdout)
    assert told["stand_in_weights"] is True
    by_label = {(row["label"], row["figure"]["concurrency"]): row for row in told["figures"]}
    accepted = by_label["AL p-eagle, K=7", None]
    assert accepted["result"] == "other set-up"
    assert accepted["measured"] > 1
    assert accepted["interval"]["low"] <= accepted["measured"] <= accepted["interval"]["high"]
    assert by_label["AL p-eagle, K=3", None]["reason"] == "p-eagle ran with K=7; add --k p-eagle=3"
    assert by_label["p-eagle over eagle3", 64]["reason"] == "c=64 was not measured"
    assert {row["result"] for row in told["figures"]} == {"other set-up", "not measured"}
    assert {row["what"] for row in told["differences"]} >= {
        "model",
        "hardware",
        "precision",
        "prompts",
        "vLLM",
    }
    assert run("list", "--format", "quiet", "--local-port", port).stdout == ""
