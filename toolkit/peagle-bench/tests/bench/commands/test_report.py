"""`peagle-sm report` and `peagle-sm cost` as typed."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from peagle_bench.results.records import Interval, Load, PackRecord, SliceRecord
from tests.bench.report import making
from tests.cli.running import run


@pytest.fixture
def compared(tmp_path: Path) -> Path:
    return making.write(making.compared(), tmp_path / "compare.jsonl")


@pytest.fixture
def stand_in(tmp_path: Path) -> Path:
    return making.write(making.stand_in(), tmp_path / "stand-in.jsonl")


def test_the_summary(stand_in: Path) -> None:
    done = run("report", stand_in)
    assert done.exit_code == 0, done.output
    shown = [" ".join(line.split()) for line in done.stdout.splitlines()]
    assert [line.split(".")[0] for line in shown[:2]] == ["SYNTHETIC DATA", "SMALL STAND-IN WEIGHTS"]
    assert shown[2].endswith("0.98x [0.94, 1.03] at c=1, in this deployment")
    for row in (
        "P-EAGLE EAGLE-3 c=1 0.98x [0.94, 1.03] 96 prompts 1 no significant difference (+-4.7%;",
        "EAGLE-3 no speculation c=1 1.85x [1.76, 1.95] 96 prompts 1 EAGLE-3 is faster",
        "c=1 P-EAGLE 291 63.3 3.43 3.77",
    ):
        assert any(line.startswith(row) for line in shown), row
    assert "3 of 3 points" in shown[-1]


def test_a_page_is_written_with_its_title(tmp_path: Path, compared: Path) -> None:
    tuned = making.write(making.tuned(), tmp_path / "tune.jsonl")
    page = tmp_path / "deep" / "report.html"
    done = run("report", compared, tuned, "--html", page, "--format", "json", "--title", "Nightly <1>")
    assert done.exit_code == 0, done.output
    document = json.loads(done.stdout)
    assert document["html"] == str(page)
    assert document["headline"].startswith("P-EAGLE is 1.36x EAGLE-3")
    assert "Nightly &lt;1&gt;" in page.read_text(encoding="utf-8")
    assert [each.name for each in page.parent.iterdir()] == ["report.html"]


def test_the_data_has_the_scorecard_and_the_slices(tmp_path: Path) -> None:
    rows = (PackRecord("rag", "p-eagle", "none", False, "acceptance 1.20", "identity: 3 of 8 differ"),)
    slower = Interval(0.7, 0.6, 0.8)
    slices = (
        SliceRecord(
            "p-eagle", Load("closed", 1), "script", "han", 40, 40, None, baseline="none", speed_up=slower
        ),
    )
    results = replace(making.compared(), packs=rows, slices=slices)
    document = json.loads(
        run("report", making.write(results, tmp_path / "r.jsonl"), "--format", "json").stdout
    )
    assert [(row["pack"], row["result"], row["why"]) for row in document["packs"]] == [
        ("rag", "fail", "identity: 3 of 8 differ")
    ]
    assert [(row["value"], row["verdict"], row["costs_money"]) for row in document["slices"]] == [
        ("han", "slower", True)
    ]


def test_quiet_names_the_page(tmp_path: Path, stand_in: Path) -> None:
    page = tmp_path / "report.html"
    done = run("report", stand_in, "--html", page, "--format", "quiet")
    assert (done.stdout, done.stderr) == (f"{page}\n", "")


def test_packs_that_were_interrupted_before_the_first_row_say_what_to_run_again(tmp_path: Path) -> None:
    head = replace(
        making.header("packs"),
        config={
            "arms": ["plain", "fast"],
            "packs": ["rag", "agents"],
            "seed": 0,
            "units": 12,
            "context": 576,
        },
    )
    empty = replace(making.compared(), header=head, points=(), comparisons=(), requests=())
    done = run("report", making.write(empty, tmp_path / "packs.jsonl"))
    assert done.exit_code == 2
    message = " ".join(done.stderr.split())
    assert "run `peagle-sm compare plain fast --packs rag,agents --prompts 12 --context 576` again" in message


def test_a_cut_file_is_reported_with_a_warning(tmp_path: Path, stand_in: Path) -> None:
    cut = tmp_path / "cut.jsonl"
    cut.write_bytes(stand_in.read_bytes()[:-20])
    done = run("report", cut)
    assert done.exit_code == 0
    assert "is incomplete and was skipped" in done.stderr


@pytest.mark.parametrize("command", ["report", "cost"])
def test_a_file_without_a_finished_load_ends_with_the_next_step(tmp_path: Path, command: str) -> None:
    cut = replace(making.stand_in(), points=(), comparisons=())
    done = run(command, making.write(cut, tmp_path / "cut.jsonl"))
    assert done.exit_code == 2
    assert "cut.jsonl: no finished load, so nothing is shown" in done.stderr
    assert "192 requests of an interrupted load" in done.stderr
    assert "run `peagle-sm quickstart` again" in done.stderr
    assert done.stdout == ""


def test_a_tuning_is_reported_whole_and_cannot_be_costed(tmp_path: Path) -> None:
    tuned = making.write(making.tuned(), tmp_path / "tune.jsonl")
    done = run("report", tuned)
    assert done.exit_code == 0
    assert done.stdout.count("chosen") == 6
    refused = run("cost", tuned)
    assert refused.exit_code == 2
    assert "has no measured load, so its cost cannot be computed" in refused.stderr
    assert "peagle-sm bench" in refused.stderr


def test_cost_names_the_run_of_rows_that_read_alike(tmp_path: Path, compared: Path) -> None:
    again = making.write(making.compared(), tmp_path / "again.jsonl")
    tuned = making.write(making.tuned(), tmp_path / "tune.jsonl")
    done = run("cost", compared, again, tuned)
    assert "RUN" in done.stdout
    assert "again" in done.stdout
    assert (
        "note: tune.jsonl: a file of `peagle-sm tune` without a measured load, so it has no cost"
        in done.stderr
    )


@pytest.mark.parametrize(
    ("name", "content", "code", "words"),
    [
        ("gone.jsonl", None, 2, "gone.jsonl not found"),
        ("empty.jsonl", b"", 2, "is empty"),
        ("spec.yaml", b"name: demo\nmodel: tiny-code\n", 2, "is not a results file"),
        ("word", b"word", 2, "is not a results file"),
        ("no-kind.jsonl", b'{"a": 1}\n{"kind": "arm"}\n', 2, "is not a results file"),
        ("image.png", b"\x89PNG\n\xff", 2, "is not a results file"),
        ("page.html", b"<html></html>", 2, "is not a results file"),
        ("traffic.jsonl", b'{"schema":"peagle-sm/traffic/1","id":"a"}\n', 2, "acceptance NAME --records"),
    ],
)
def test_what_is_no_results_file(
    tmp_path: Path, name: str, content: bytes | None, code: int, words: str
) -> None:
    path = tmp_path / name
    if content is not None:
        path.write_bytes(content)
    done = run("report", path)
    assert done.exit_code == code, done.output
    assert words in done.stderr
    assert name in done.stderr


def test_a_place_that_cannot_be_written(tmp_path: Path, stand_in: Path) -> None:
    done = run("report", stand_in, "--html", stand_in / "report.html")
    assert done.exit_code == 2
    assert "Give a file in an existing folder." in done.stderr


def test_cost_sizes_a_fleet(compared: Path) -> None:
    done = run("cost", compared, "--otps", "20000", "--goal", "tpot_ms=8")
    assert done.exit_code == 0, done.output
    (row,) = (line.split() for line in done.stdout.splitlines() if line.startswith("c=32  P-EAGLE "))
    assert row[2:5] == ["6,050", "4.20", "0.19"]
    assert row[-5:] == ["0.64", "5", "5", "21.00", "66%"]
    assert (
        "Cheapest for 20,000 tokens/s with 30% headroom: 5 instances (5 GPUs) of P-EAGLE at c=32 each,"
        " 21.00 USD/hour; uses 66% of the measured throughput." in done.stdout
    )
    assert "AWS Price List API, 2026-11-01" in done.stdout


def test_cost_as_json_and_by_requests(compared: Path) -> None:
    done = run("cost", compared, "--requests-per-s", "100", "--format", "json")
    document = json.loads(done.stdout)
    assert document["cheapest"]["arm"] == "gpt-oss-20b-p-eagle"
    assert document["cheapest"]["fleet"]["instances"] == 4
    assert len(document["rows"]) == 21
    assert run("cost", compared, "--format", "quiet").stdout == "gpt-oss-20b-p-eagle c=64\n"


def test_what_was_not_billed_is_priced_only_when_asked(stand_in: Path) -> None:
    assert run("cost", stand_in, "--format", "quiet").stdout == ""
    given = run("cost", stand_in, "--usd-per-hour", "4")
    assert "SMALL STAND-IN WEIGHTS" in given.stdout
    assert "the price given with --usd-per-hour" in given.stdout


def test_a_price_that_is_missing_is_looked_up(tmp_path: Path) -> None:
    created = making.compared()
    bare = replace(created, arms=tuple(replace(each, usd_per_hour=None) for each in created.arms))
    done = run("cost", making.write(bare, tmp_path / "bare.jsonl"))
    assert done.exit_code == 0, done.output
    assert "no AWS credentials were found" in done.stderr  # so the catalogue answers, with its date
    assert "0.14" in done.stdout
    assert "2026-11-20" in done.stdout


def test_two_demands_are_one_too_many(compared: Path) -> None:
    done = run("cost", compared, "--otps", "1", "--requests-per-s", "1")
    assert done.exit_code == 2
    assert "give only one" in done.stderr


@pytest.mark.parametrize(
    "goals", [["ttft=1"], ["ttft_ms"], ["ttft_ms=0"], ["ttft_ms=x"], ["ttft_ms=1", "ttft_ms=2"]]
)
def test_a_wrong_goal_is_refused_with_the_allowed_ones(compared: Path, goals: list[str]) -> None:
    done = run("cost", compared, *(word for goal in goals for word in ("--goal", goal)))
    assert done.exit_code == 2
    assert "ttft_ms, tpot_ms, e2e_ms" in done.stderr


def test_no_load_meets_the_objective(compared: Path) -> None:
    done = run("cost", compared, "--otps", "10", "--goal", "ttft_ms=1")
    assert "No measured load fits 10.0 tokens/s" in done.stdout
