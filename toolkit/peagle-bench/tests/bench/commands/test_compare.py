"""`peagle-sm compare` from command line to exit code: bare servers, and modes on the local SageMaker."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from peagle_bench.results.result_file import read
from tests.bench.scheduled_server import Running, scheduled_server
from tests.cli.conftest import Run
from tests.cli.running import run

SMALL = ("--prompts", "8", "--max-tokens", "20")


@pytest.fixture(scope="module")
def servers() -> Iterator[tuple[Running, Running]]:
    with (
        scheduled_server("--gap-ms", "8", "--ttft-ms", "1") as plain,
        scheduled_server("--gap-ms", "8", "--ttft-ms", "1", "--survival", "0.9,0.9,0.9") as fast,
    ):
        yield plain, fast


def test_two_servers_are_compared(servers: tuple[Running, Running], tmp_path: Path) -> None:
    plain, fast = servers
    path = tmp_path / "r.jsonl"
    arms = (f"none={plain.url}", f"p-eagle={fast.url}")
    result = run("compare", *arms, *SMALL, "--concurrency", "1,2", "--out", path)
    assert result.exit_code == 0, result.stderr
    assert "again (A/A)" in result.stdout
    assert "in this deployment" in result.stdout or "one deployment only" in result.stdout
    assert f"results: {path}" in result.stdout
    results = read(path)
    assert [arm.name for arm in results.arms] == ["none", "p-eagle", "none (A/A)"]
    assert [(comparison.faster, comparison.over, comparison.units) for comparison in results.comparisons] == [
        ("p-eagle", "prompts", 8),
        ("none (A/A)", "prompts", 8),
        ("p-eagle", "blocks", 6),
        ("none (A/A)", "blocks", 6),
    ]
    answer = results.comparisons[0]
    # 160 ms for tokens one by one and some 50 for nearly four at a time: what a busy machine adds is less.
    assert answer.ratio.value > 1
    assert answer.acceptance_ratio is not None
    assert 3 < answer.acceptance_ratio.value < 4
    assert results.header.config["workload"]["prompts"] == 8
    assert results.header.config["repeat"] is True, "8 prompts are too few for 6 blocks at c=2"
    assert "the 8 prompts were sent more than once" in result.stdout
    assert results.arms[1].num_speculative_tokens == 3


def test_too_few_conversations_for_a_verdict_are_named_first(
    servers: tuple[Running, Running], tmp_path: Path
) -> None:
    arms = [f"none={servers[0].url}", f"p-eagle={servers[1].url}"]
    options = ("--prompts", "3", "--max-tokens", "4", "--out", tmp_path / "r.jsonl")
    result = run("compare", *arms, *options)
    assert "3 prompts of 3 conversations" in result.stderr
    assert "a verdict needs at least 8" in result.stderr


def test_json_says_what_is_shown_and_its_verdict(servers: tuple[Running, Running], tmp_path: Path) -> None:
    plain, fast = servers
    options = (*SMALL, "--out", tmp_path / "r.jsonl", "--format", "json")
    result = run("compare", plain.url, fast.url, *options)
    assert result.exit_code == 0, result.stderr
    document = json.loads(result.stdout)
    assert {arm["mode"] for arm in document["arms"]} == {"unknown"}
    # On a busy machine the client can be its own bottleneck: then the comparison is withheld by its name.
    assert len(document["comparisons"]) + len(document["withheld"]) == 2
    for row in document["comparisons"]:
        assert set(row) >= {"ratio", "shown", "verdict", "over", "units", "deployments"}
        excludes_one = row["ratio"]["low"] > 1 or row["ratio"]["high"] < 1
        assert row["shown"] is (excludes_one and not row.get("doubt"))


@pytest.mark.parametrize(
    ("arguments", "code", "expected"),
    [
        ((), 2, "found 0 arm(s); a comparison needs at least 2"),
        (("a",), 2, "found 1 arm(s)"),
        (("a", "a"), 2, "given twice"),
        (("a,b", "c"), 2, "different numbers of deployments"),
        (("=a", "b"), 2, "is not an arm"),
        (("a", "b", "--deployments", "2"), 2, "--deployments: allowed only with --modes"),
        (("a", "--modes", "none,p-eagle"), 2, "--modes deploys the arms, but arms were given too: a"),
        (
            ("--modes", "none,medusa", "--spec", "s.yaml"),
            2,
            "two or more of none, ngram",
        ),
        (("--modes", "none,p-eagle", "--spec", "gone.yaml"), 2, "gone.yaml"),
        (("a", "b", "-w", "nothing-like-it"), 2, "workload or file 'nothing-like-it' not found"),
        (("http://127.0.0.1:9", "http://127.0.0.1:19"), 6, "no server answers at http://127.0.0.1:9"),
    ],
)
def test_bad_input_is_told_before_anything_is_measured(
    in_empty_folder: Path, arguments: tuple[str, ...], code: int, expected: str
) -> None:
    (in_empty_folder / "s.yaml").write_text("name: demo\nmodel: tiny-code\n")
    result = run("compare", *arguments)
    assert (result.exit_code, result.stdout) == (code, "")
    assert expected in result.stderr
    assert list(in_empty_folder.rglob("*.jsonl")) == []


def test_a_label_that_is_another_mode_is_refused(servers: tuple[Running, Running], tmp_path: Path) -> None:
    plain, fast = servers
    path = tmp_path / "r.jsonl"
    result = run("compare", f"none={fast.url}", f"p-eagle={plain.url}", *SMALL, "--out", path)
    assert result.exit_code == 2
    assert "none: expected mode none, but its engine drafts" in result.stderr
    assert not path.exists()


@pytest.mark.slow
def test_modes_are_priced_deployed_measured_and_deleted(peagle: Run, spec: Callable[..., str]) -> None:
    prompts = [{"messages": [{"role": "user", "content": text}], "max_tokens": 4} for text in "ab"]
    Path("prompts.jsonl").write_text("".join(json.dumps(each) + "\n" for each in prompts))
    path = spec("tiny-p-eagle", SCRIPT_INVOKE="chat")
    options = ("compare", "--modes", "none,p-eagle", "--spec", path, "-w", "prompts.jsonl", "--unguarded")
    refused = peagle(*options)
    assert refused.exit_code == 2
    price, _, refusal = refused.stderr.partition("Cannot ask")
    assert "USD" in price
    assert "run this command again with --yes" in refusal
    deep = peagle(*options, "--modes", "none,p-eagle=99", "--yes")
    assert (deep.exit_code, "found 99; allowed: 1 to" in deep.stderr) == (3, True)
    assert "--modes …,p-eagle=K" in deep.stderr
    declined = peagle(*options, answers="n\n")
    assert declined.exit_code == 3
    assert "cmp-tiny-none     none     0.00 USD/hour" in declined.stderr
    assert "a verdict needs at least 8" in " ".join(declined.stderr.split()), "before anything is paid"
    assert "all of these at the same time; each is deleted after the measurement" in declined.stderr
    assert "Deploy cmp-tiny-none, cmp-tiny-p-eagle, measure them and delete them? [y/N]" in declined.stderr
    result = peagle(*options, "--yes", "--out", "r.jsonl")
    assert result.exit_code == 0, result.stderr
    results = read(Path("r.jsonl"))
    assert [(arm.name, arm.mode, arm.deployment) for arm in results.arms] == [
        ("none", "none", "1"),
        ("p-eagle", "p-eagle", "1"),
        ("none (A/A)", "none", "1"),
    ]
    assert [(comparison.faster, comparison.units) for comparison in results.comparisons] == [
        ("p-eagle", 2),
        ("none (A/A)", 2),
    ]
    assert results.header.config["specs"]["none"]["name"] == "cmp-tiny-none"
    assert "small stand-in weights" in result.stdout
    assert peagle("list", "--format", "quiet").stdout == ""


@pytest.mark.slow
def test_all_modes_are_offered_with_their_price_and_with_those_left_out(
    peagle: Run, spec: Callable[..., str]
) -> None:
    path = spec("tiny", SCRIPT_INVOKE="chat")
    options = ("compare", "--modes", "all", "--spec", path, "--prompts", "8", "--unguarded")
    declined = peagle(*options, answers="n\n")
    assert declined.exit_code == 3
    text = " ".join(declined.stderr.split())
    question = "Deploy cmp-tiny-none, cmp-tiny-ngram, cmp-tiny-eagle3, cmp-tiny-p-eagle, measure them"
    assert question in text
    assert "left out" in text
    assert "suffix: speculation.mode: found suffix" in text
    assert "draft-model: mode draft-model: no default draft head" in text
    assert peagle("list", "--format", "quiet").stdout == ""


@pytest.mark.slow
def test_a_mode_that_does_not_come_up_leaves_nothing(peagle: Run, spec: Callable[..., str]) -> None:
    script = {"SCRIPT_PING": "never", "SCRIPT_EXIT_AFTER": "0.3", "SCRIPT_EXIT_LINE": "ValueError: no head"}
    path = spec("tiny", **script)
    result = peagle(
        "compare", "--modes", "none,p-eagle", "--spec", path, "--unguarded", "--yes", "--prompts", "2"
    )
    assert result.exit_code == 7
    assert "ValueError: no head" in result.stderr
    assert peagle("list", "--format", "quiet").stdout == ""
    assert not list(Path().rglob("*.jsonl"))
