"""`peagle-sm bench` from command line to exit code: a bare server, and endpoints of the local SageMaker.

The machine that runs the tests may be too busy for the client to keep up; the figures are then withheld and
the exit code is 1, while what is written down is the same.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from click.testing import Result

from peagle_bench.results.result_file import read
from tests.bench.scheduled_server import Running, scheduled_server
from tests.cli.conftest import Run
from tests.cli.running import run

SMALL = ("--prompts", "6", "--max-tokens", "8")


@pytest.fixture(scope="module")
def vllm() -> Iterator[Running]:
    with scheduled_server("--gap-ms", "2", "--ttft-ms", "2", "--survival", "0.8,0.5") as server:
        yield server


def bench(*arguments: str | Path) -> Result:
    return run("bench", *arguments)


def test_a_bare_server_is_measured(vllm: Running, tmp_path: Path) -> None:
    path = tmp_path / "r.jsonl"
    options = (vllm.url, *SMALL, "--concurrency", "1,3", "--goal", "ttft_ms=500")
    first = bench(*options, "--out", path, "--usd-per-hour", "1.5")
    assert first.exit_code in (0, 1), first.stderr
    assert "HumanEval: 6 prompts; licence: MIT" in first.stderr
    assert "1.50 USD/hour" in first.stderr
    assert f"results: {path}" in first.stdout
    results = read(path)
    assert [point.load.label for point in results.points] == ["c=1", "c=3"]
    assert results.arms[0].num_speculative_tokens == 2
    assert {request.output_tokens for request in results.requests} == {8}
    document = json.loads(bench(*options, "--out", tmp_path / "s.jsonl", "--format", "json").stdout)
    assert [point["load"] for point in document["points"]] == ["c=1", "c=3"]
    for point in document["points"]:
        assert point["published"] is ("otps" in point)


@pytest.mark.parametrize(
    ("options", "code", "expected"),
    [
        (("--concurrency", "0"), 2, "whole numbers above 0"),
        (("--concurrency", "2,2"), 2, "without duplicates"),
        (("--prompts", "6", "--concurrency", "7"), 2, "concurrency 7 with 6 requests"),
        (("--requests", "3", "--seconds", "1"), 2, "both given"),
        (("--goal", "ttft=5"), 2, "allowed: ttft_ms, tpot_ms, e2e_ms"),
        (("-w", "nothing-like-it"), 2, "workload or file 'nothing-like-it' not found"),
        (
            ("-w", "synthetic:40000/9", "--prompts", "2", "--concurrency", "1"),
            2,
            "does not fit into the endpoint's context",
        ),
    ],
)
def test_bad_input_is_told_before_anything_is_measured(
    vllm: Running, in_empty_folder: Path, options: tuple[str, ...], code: int, expected: str
) -> None:
    result = bench(vllm.url, *options)
    assert (result.exit_code, result.stdout) == (code, "")
    assert expected in result.stderr
    assert list(in_empty_folder.rglob("*.jsonl")) == []


def test_a_server_that_dies_is_told_with_what_was_saved(tmp_path: Path) -> None:
    path = tmp_path / "mine.jsonl"
    bodies: list[dict[str, object]] = [{"prompt": "the longest works", "max_tokens": 8}]
    bodies += [{"prompt": f"{n:04}", "max_tokens": 8, "scheduled": {"fault": "cut"}} for n in range(60)]
    path.write_text("".join(json.dumps(body) + "\n" for body in bodies))
    with scheduled_server("--gap-ms", "2", "--ttft-ms", "2") as server:
        result = bench(server.url, "-w", path, "--concurrency", "20", "--out", tmp_path / "r.jsonl")
    assert result.exit_code == 6, result.stderr
    assert "saved in" in result.stderr


@pytest.mark.slow
def test_endpoints_of_sagemaker_are_measured_or_refused(peagle: Run, spec: Callable[..., str]) -> None:
    def measured(name: str, *options: str) -> Result:
        return peagle("bench", name, "-w", "chats.jsonl", *SMALL, "--concurrency", "2", *options)

    row = {"messages": [{"role": "user", "content": "hi"}]}
    Path("chats.jsonl").write_text("".join(json.dumps(row | {"id": str(n)}) + "\n" for n in range(6)))

    absent = measured("nobody")
    assert absent.exit_code == 4
    assert "does not exist" in absent.stderr
    path = spec("demo", SCRIPT_INVOKE="chat", SCRIPT_CHUNKS="4")
    assert peagle("deploy", path, "--yes", "--unguarded", "--format", "quiet").exit_code == 0
    result = measured("demo", "--out", "r.jsonl")
    assert result.exit_code in (0, 1), result.stderr
    results = read(Path("r.jsonl"))
    assert results.header.stand_in_weights
    assert results.header.provenance["endpoint"]["spec_sha256"]
    assert results.header.provenance["endpoint"]["target"]
    assert {request.output_tokens for request in results.requests} == {4}
    assert len(results.points) == 1
    assert results.arms[0].deployment is not None
    assert "acceptance unknown" in result.stdout + result.stderr
