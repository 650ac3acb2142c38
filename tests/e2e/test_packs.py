"""Packs on the real engine: a scorecard from the command line, clean passes, and the seeded faults found.

The large number of runs is that of `scripts/bench-packs`, whose record is docs/reference/packs/runs.json.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path

import pytest

from scripts.bench.local_stack import LocalStack
from scripts.bench.packs.arms import CLEAN, OTHER, PLAIN, SHORT, specs, write_files
from scripts.bench.packs.campaign import PackRuns
from scripts.bench.packs.cases import CASES, needed
from scripts.bench.packs.page import did_what_it_must
from tests.cli.running import run

pytestmark = [pytest.mark.engine, pytest.mark.slow, pytest.mark.campaign]
SEED = 1000  #: not one of the recorded campaign
#: `scripts/bench-packs` runs the rest, such as the pack adversarial: it compares speeds; no test may do that.
CLEAN_RUNS = ("rag", "long-context", "guardrails", "structured-output")
FAULTS = (
    ("rag", SHORT),
    ("long-context", OTHER),
    ("agents", SHORT),
    ("guardrails", "draft-tokens"),
    ("guardrails", "keeps-generating"),
    ("structured-output", "no-format"),
)


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalStack]:
    """The endpoints of all packs that are tried here."""
    every = specs(write_files(tmp_path_factory.mktemp("plugin")))
    wanted = needed([*((pack, CLEAN) for pack in CLEAN_RUNS), *FAULTS])
    with LocalStack(lambda line: print(line, file=sys.stderr)) as stack:
        stack.deploy({name: every[name] for name in every if name in wanted}, together=False)
        yield stack
        assert stack.delete_all() == []
    assert stack.left == []


@pytest.fixture(scope="module")
def runs(stack: LocalStack, tmp_path_factory: pytest.TempPathFactory) -> PackRuns:
    return PackRuns(stack, print, tmp_path_factory.mktemp("runs"))


@pytest.mark.parametrize("pack", CLEAN_RUNS)
def test_a_clean_run_passes(runs: PackRuns, pack: str) -> None:
    found = runs.run(CASES[pack], CLEAN, SEED)
    assert found.result == "pass", found


@pytest.mark.parametrize(("pack", "fault"), FAULTS)
def test_a_seeded_fault_is_found(runs: PackRuns, pack: str, fault: str) -> None:
    found = runs.run(CASES[pack], fault, SEED)
    assert did_what_it_must(asdict(found)), found


def test_the_scorecard_from_the_command_line(stack: LocalStack, tmp_path: Path) -> None:
    port = (stack.session.local_url or "").rpartition(":")[2]
    size = ("--context", "480", "--prompts", str(CASES["rag"].units), "--out", tmp_path / "r.jsonl")
    packs = ["rag", "reasoning-effort"]
    arms = (PLAIN, CLEAN, "--packs", ",".join(packs))
    result = run("compare", *arms, *size, "--local-port", port, "--format", "json")
    assert result.exit_code == 0, result.stderr
    told = json.loads(result.stdout)
    assert sorted(row["pack"] for row in told["packs"]) == packs
    by_name = {row["pack"]: row for row in told["packs"]}
    assert by_name["rag"]["result"] == "pass", by_name["rag"]
    assert by_name["reasoning-effort"]["result"] == "not measured"
    assert told["stand_in_weights"] is True
    both = ("--packs", "rag,speed-bench", "--out", tmp_path / "refused.jsonl")
    refused = run("compare", PLAIN, CLEAN, *both, "--local-port", port)
    assert refused.exit_code == 2
    assert "494 of the 880 public rows are placeholders" in refused.stderr
    assert "requests; tokens/s" not in refused.stderr  # before anything is measured
    page = tmp_path / "packs.html"
    assert run("report", tmp_path / "r.jsonl", "--html", page).exit_code == 0
    assert "Workload packs" in page.read_text()


def test_bench_takes_a_pack_as_its_workload(stack: LocalStack, tmp_path: Path) -> None:
    port = (stack.session.local_url or "").rpartition(":")[2]
    size = ("--context", "480", "--prompts", "8", "--concurrency", "1,2", "--out", tmp_path / "b.jsonl")
    result = run("bench", CLEAN, "--workload", "pack:rag", *size, "--local-port", port, "--format", "json")
    (row,) = json.loads(result.stdout)["packs"]
    assert row["pack"] == "rag"
    assert row["baseline"] is None
    assert {check["name"] for check in row["checks"]} == {"answered", "acceptance by length"}
    again = run(
        "bench",
        CLEAN,
        "--workload",
        "pack:rag",
        *size[:-2],
        "--resume",
        tmp_path / "b.jsonl",
        "--local-port",
        port,
    )
    assert "belongs to a run with other settings" not in again.output
