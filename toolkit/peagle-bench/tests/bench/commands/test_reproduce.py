"""`peagle-sm reproduce`: the list, the plan without an account, refusals, and the side-by-side text."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from peagle_bench.commands.reproduce import render_reproduction
from peagle_bench.compare.published import line_up
from peagle_bench.published import load_published
from peagle_bench.results.result_file import ResultWriter, read
from peagle_sm.core.catalog import load_catalog
from tests.bench.compare.test_published import STATED, arms, compared, header, measured
from tests.cli.conftest import Run
from tests.cli.running import run
from tests.local.scripted_engine import ScriptedLauncher

HERE = ("--region", "us-east-1")
STAGE = "peagle-sm heads stage gpt-oss-20b --head gpt-oss-20b-p-eagle --to s3://your-bucket/published/gpt-oss-20b/"


def test_without_a_name_it_lists_the_tables() -> None:
    result = run("reproduce")
    assert result.exit_code == 0, result.stderr
    lines = result.stdout.splitlines()
    assert lines[:2] == [
        "NAME                         GPU   K        C        FIGURES  DATE",
        "gpt-oss-20b-mt-bench         B200  3 / 7    1 to 64       11  2026-03-13",
    ]
    assert max(map(len, lines)) <= 92
    told = json.loads(run("reproduce", "--format", "json").stdout)
    assert [row["name"] for row in told["tables"]] == list(load_published().tables)
    assert set(told["sources"]) == set(load_published().sources)
    assert run("reproduce", "--format", "quiet").stdout.split() == list(load_published().tables)


def test_a_dry_run_shows_set_up_price_and_staging_without_an_account() -> None:
    result = run("reproduce", "gpt-oss-120b-card-mt-bench", "--dry-run", *HERE)
    assert result.exit_code == 0, result.stderr
    assert result.stdout == (
        "published  GPT-OSS 120B, MT-Bench, acceptance length of the head's card\n"
        "set-up     GPU not stated; MXFP4 weights, FP8 KV cache; p-eagle K=5\n"
        "workload   mt-bench, 80 prompts, at most 2,048 output tokens each\n"
        "loads      c=1\n"
        "\n"
        "ENDPOINT                                MODE             PRICE\n"
        "cmp-gpt-oss-120b-card-mt-bench-none     none     4.20 USD/hour\n"
        "cmp-gpt-oss-120b-card-mt-bench-p-eagle  p-eagle  4.20 USD/hour\n"
        "\n"
        "deploys     all of these at the same time; each is deleted after the measurement\n"
        "price       8.40 USD/hour for all of them\n"
        "likely      about 99 minutes, 13.86 USD\n"
        "at most     33.60 USD, if all of them run until the end of their lifetime\n"
        "price from  ml.g7e.2xlarge in us-east-1: SageMaker on demand, public instance table of SageMaker "
        "serving examples, 2026-11-20\n"
        "\n"
        "Copy the files first:\n"
        "  peagle-sm heads stage gpt-oss-120b --head gpt-oss-120b-p-eagle --to "
        "s3://your-bucket/published/gpt-oss-120b/ --region us-east-1\n"
    )


def test_a_dry_run_as_json_has_the_specs_with_the_published_flags() -> None:
    options = ("--concurrency", "1", "--instance-type", "ml.g7e.2xlarge", "--artifacts", "s3://mine/p")
    result = run("reproduce", "gpt-oss-20b-mt-bench", "--dry-run", *options, *HERE, "--format", "json")
    told = json.loads(result.stdout)
    assert told["loads"] == ["c=1"]
    assert told["prompts"] == 80
    spec = told["specs"]["eagle3"]
    assert spec["placement"] == {"instance_types": ["ml.g7e.2xlarge"]}
    assert spec["head_uri"] == "s3://mine/p/gpt-oss-20b-eagle3/"
    assert spec["model_uri"] == "s3://mine/p/gpt-oss-20b/"
    assert spec["serving"]["kv_cache_dtype"] == "fp8"
    assert spec["serving"]["extra_args"]["enable_chunked_prefill"] is False
    assert [each["speculation"].get("num_speculative_tokens") for each in told["specs"].values()] == [
        None,
        3,
        7,
    ]
    assert told["plan"]["usd_per_hour"] == pytest.approx(12.6)


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (("gpt-oss-20b-mtbench",), 2, "Did you mean 'gpt-oss-20b-mt-bench'?"),
        (("gpt-oss-20b-mt-bench",), 2, f"next: {STAGE} --region us-east-1"),
        (("gpt-oss-20b-mt-bench", "--modes", "none,medusa"), 2, "two or three of none, eagle3, p-eagle"),
        (
            ("gpt-oss-120b-card-mt-bench", "--modes", "none,eagle3", "--dry-run"),
            2,
            "--modes: found eagle3; this table has none, p-eagle.",
        ),
        (("gpt-oss-20b-mt-bench", "--k", "none=3", "--dry-run"), 2, "--k: found 'none=3'"),
        (("gpt-oss-20b-mt-bench", "--k", "p-eagle=11", "--dry-run"), 3, "Lower --k p-eagle=K."),
        (("gpt-oss-20b-mt-bench", "--concurrency", "0"), 2, "whole numbers above 0"),
        (("gpt-oss-20b-mt-bench", "--instance-type", "ml.p6.48xlarge", "--dry-run"), 3, "ml.p6.48xlarge"),
        (("gpt-oss-20b-mt-bench", "--artifacts", "bucket/x", "--dry-run"), 2, "model_uri"),
        (("gpt-oss-20b-mt-bench", "--results", "gone.jsonl"), 2, "gone.jsonl"),
    ],
)
def test_bad_input_is_told_before_anything_is_measured(
    in_empty_folder: Path, arguments: tuple[str, ...], code: int, said: str
) -> None:
    result = run("reproduce", *arguments, *HERE)
    assert (result.exit_code, result.stdout) == (code, ""), result.output
    assert said in result.stderr
    assert list(in_empty_folder.iterdir()) == []


def speed_bench(folder: Path, hidden: int) -> Path:
    """A split of four prompts of code and one of mathematics, some without their text."""
    rows: list[dict[str, Any]] = [
        {"question_id": f"q{n}", "category": "coding" if n < 4 else "math", "turns": [f"write {n}"]}
        for n in range(5)
    ]
    for row in rows[:hidden]:
        row["turns"] = ["FULL BENCHMARK DATA SHOULD BE FETCHED FROM THE SOURCE"]
    path = folder / "qualitative.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def test_speed_bench_without_all_its_texts_is_refused_with_their_number(tmp_path: Path) -> None:
    file = ("--workload-file", speed_bench(tmp_path, hidden=3), "--artifacts", "s3://bucket/p/")
    result = run("reproduce", "gpt-oss-20b-speed-bench", *file, *HERE)
    assert result.exit_code == 2
    assert "speed-bench:qualitative, coding: 3 of 4 prompts have no text in the public rows" in result.stderr
    assert "next: Run NVIDIA's prepare script for SPEED-Bench" in result.stderr


def test_a_results_file_of_another_command_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "r.jsonl"
    with ResultWriter(path) as writer:
        writer.append(header(published="gpt-oss-20b-humaneval"))
    result = run("reproduce", "gpt-oss-20b-mt-bench", "--results", path)
    assert result.exit_code == 2
    assert "is of `reproduce gpt-oss-20b-humaneval`" in result.stderr


def test_the_text_side_by_side_fits_80_columns_and_names_what_is_different() -> None:
    published = load_published()
    table = published.table("gpt-oss-20b-mt-bench")
    results = measured(compared(1.2, 1.4), arms_=arms("ml.g7e.2xlarge"))
    text = render_reproduction(published, table, line_up(table, results, load_catalog()), stand_in=False)
    lines = text.splitlines()
    assert lines[:6] == [
        "Published and measured: GPT-OSS 20B, MT-Bench, concurrency 1 to 64",
        "",
        "FIGURE               C   PUBLISHED  MEASURED     X  95% OF X      RESULT",
        "p-eagle over eagle3  1        1.55      1.30  0.84  [0.77, 0.90]  other set-up",
        "p-eagle over eagle3  2        1.29         -     -  -             not measured",
        "p-eagle over eagle3  4        1.35         -     -  -             not measured",
    ]
    assert "note: p-eagle over eagle3: not measured at c=2, 4, 8, 16, 32, 64" in lines
    assert "hardware" in text
    assert "ml.g7e.2xlarge (RTX PRO 6000 Blackwell)" in text
    assert "so no figure shows whether the published one can be reproduced" in text
    assert "https://vllm.ai/blog/2026-03-13-p-eagle" in text
    assert "differs" not in text


def test_the_text_of_the_published_set_up_says_whether_it_agrees() -> None:
    text = render_reproduction(
        load_published(),
        STATED,
        line_up(STATED, measured(compared(1.5, 1.6)), load_catalog()),
        stand_in=False,
    )
    assert "agrees: the published figure is in the measured interval" in text
    assert "not as published" not in text.lower()


@pytest.mark.slow
def test_on_the_local_server_it_says_loudly_what_it_is_and_leaves_nothing(peagle: Run) -> None:
    declined = peagle("reproduce", "gpt-oss-20b-humaneval", "--unguarded", answers="n\n")
    assert declined.exit_code == 3
    assert "warning: these are the small stand-in weights on this machine's CPU" in declined.stderr
    assert "cmp-gpt-oss-20b-humaneval-eagle3   eagle3   0.00 USD/hour" in declined.stderr
    planned = peagle("reproduce", "gpt-oss-20b-humaneval", "--dry-run")
    assert "workload   humaneval, 8 prompts, at most 64 output tokens each" in planned.stdout
    assert "loads      c=1, c=2" in planned.stdout
    assert "heads stage" not in planned.stdout


@pytest.mark.slow
def test_an_engine_that_does_not_stream_ends_the_measurement_and_nothing_is_left(peagle: Run) -> None:
    failed = peagle("reproduce", "gpt-oss-20b-humaneval", "--unguarded", "--yes", "--modes", "none,p-eagle")
    assert failed.exit_code not in (0, 2)
    assert peagle("list", "--format", "quiet").stdout == ""


@pytest.fixture
def chatting() -> Iterator[None]:
    """Scripted engines stream chat completions: `reproduce` writes its own specs, without a script."""
    ScriptedLauncher.usual["SCRIPT_INVOKE"] = "chat"
    yield
    ScriptedLauncher.usual.clear()


@pytest.mark.slow
@pytest.mark.usefixtures("chatting")
def test_from_the_command_line_to_the_figures_side_by_side(peagle: Run) -> None:
    size = ("--prompts", "4", "--concurrency", "1", "--modes", "none,p-eagle", "--k", "p-eagle=3")
    done = peagle("reproduce", "gpt-oss-20b-humaneval", *size, "--unguarded", "--yes", "--out", "r.jsonl")
    assert done.exit_code == 0, done.output
    assert "results: r.jsonl" in done.stdout
    assert "Published and measured: GPT-OSS 20B, HumanEval, concurrency 1 to 64" in done.stdout
    assert "warning: these are the small stand-in weights" in done.stdout
    assert "p-eagle over eagle3: mode eagle3 was not measured" in done.stdout
    assert "agrees" not in done.stdout.partition("Published and measured")[2].partition("note:")[0]
    results = read(Path("r.jsonl"))
    assert results.header.command == "compare"
    assert results.header.config["published"] == "gpt-oss-20b-humaneval"
    assert results.header.config["workload"]["prompts"] == 4
    assert [(arm.name, arm.num_speculative_tokens) for arm in results.arms] == [
        ("none", None),
        ("p-eagle", 3),
        ("none (A/A)", None),
    ]
    assert peagle("list", "--format", "quiet").stdout == ""
    again = peagle("reproduce", "gpt-oss-20b-humaneval", "--results", "r.jsonl", "--format", "json")
    told = json.loads(again.stdout)
    assert {row["result"] for row in told["figures"]} == {"not measured"}
    assert {row["what"] for row in told["differences"]} >= {"model", "hardware", "precision", "prompts"}
    report = peagle("report", "r.jsonl", "--markdown")
    assert report.exit_code == 0, report.stderr
