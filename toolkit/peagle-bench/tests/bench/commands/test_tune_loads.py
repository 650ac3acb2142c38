"""`peagle-sm tune --loads` at its two ends: bad input, and a table from a finished run to an endpoint.

The engines are scripted and ignore K, so the windows of the run in between are made up.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from peagle_bench.results.records import ValidationRecord, WindowRecord
from peagle_bench.results.result_file import read, to_line
from peagle_bench.tune.arms import table_spec
from peagle_sm.core.catalog import load_catalog
from peagle_sm.core.planning import make_plan
from peagle_sm.core.spec.endpoint_spec import parse_spec
from peagle_sm.service.spec_to_plan import load_spec
from tests.bench.tune.test_resumed_tables import LOADS, MAX_K, measured_before, validated
from tests.cli.conftest import Run
from tests.core.support import AWS

CHAT = {"SCRIPT_INVOKE": "chat", "SCRIPT_CHUNK_DELAY": "0.01", "SCRIPT_CHUNKS": "6"}


@pytest.mark.parametrize(
    ("options", "code", "said"),
    [
        (("--loads", "0,4"), 2, "give whole numbers above 0, separated by commas, without duplicates"),
        (("--loads", "4,4"), 2, "give whole numbers above 0, separated by commas, without duplicates"),
        (("--loads", "1,many"), 2, "give whole numbers above 0, separated by commas, without duplicates"),
        (("--loads", "1-4"), 2, "give whole numbers above 0, separated by commas, without duplicates"),
        (("--loads", "1,4", "--max-k", "20"), 2, "--max-k: found 20, too many for p-eagle K=20: "),
        (("--loads", "1,4", "--max-k", "40"), 2, "2<=x<=32"),
        (("--loads", "1,4", "--rounds", "1"), 2, "2<=x<=50"),
    ],
)
def test_bad_loads_are_refused_before_anything_is_deployed(
    peagle: Run, spec: Callable[..., str], options: tuple[str, ...], code: int, said: str
) -> None:
    result = peagle("tune", spec("demo"), "--yes", "--unguarded", *options)
    assert (result.exit_code, result.stdout) == (code, ""), result.stderr
    assert said in result.stderr
    assert not list(Path().glob("results/*.jsonl"))
    assert peagle("list", "--format", "quiet").stdout == ""


TABLE = "num_speculative_tokens_per_batch_size"


@pytest.mark.parametrize(
    ("table", "code", "said"),
    [
        ("[[1, 4, 7], [4, 8, 3]]", 2, "without overlaps or gaps, from 1 on: row 2 must begin with 5"),
        ("[[1, 4, 7], [6, 8, 3]]", 2, "without overlaps or gaps, from 1 on: row 2 must begin with 5"),
        (
            "[[1, 4, 9], [5, 8, 3]]",
            3,
            "speculation.num_speculative_tokens_per_batch_size: found K 9 in the row",
        ),
        ("[[1, 4, 0]]", 2, "at least one row with K above 0"),
    ],
)
@pytest.mark.parametrize("command", ["plan", "deploy", "tune"])
def test_a_bad_table_is_refused_by_each_command(
    peagle: Run, in_empty_folder: Path, command: str, table: str, code: int, said: str
) -> None:
    path = in_empty_folder / "peagle.yaml"
    path.write_text(
        "name: demo\nmodel: tiny-code\n"
        f"speculation: {{mode: p-eagle, num_speculative_tokens: 7, {TABLE}: {table}}}\n"
    )
    options = {"plan": (), "deploy": ("--yes", "--unguarded"), "tune": ("--loads", "1,4", "--dry-run")}
    result = peagle(command, str(path), *options[command])
    if command == "tune" and code == 3:
        assert result.exit_code == 0, result.stderr  # tune replaces the spec's table
    else:
        assert result.exit_code == code, result.output
        assert said in result.output
    assert peagle("list", "--format", "quiet").stdout == ""


@pytest.mark.parametrize(
    ("image", "mode", "check", "said"),
    [
        ("vllm:0.23.0-gpu-py312-cu130", "eagle3", "argument-versions", "needs vLLM 0.24.0 or newer"),
        ("vllm:0.30.0-gpu-py312-cu130", "p-eagle", "k-table", "only this project's own image can change K"),
    ],
)
def test_a_table_on_an_engine_without_it_is_refused(image: str, mode: str, check: str, said: str) -> None:
    """`tune --loads` plans such an endpoint before it creates anything (`tune.job.table_plans`)."""
    head = "draft_head: mine" if mode == "eagle3" else ""
    base = parse_spec(
        "name: demo\nmodel: gpt-oss-20b\nsource: container\nmodel_uri: s3://bucket/target/\n"
        "head_uri: s3://bucket/head/\n"
        f"image: 763104351884.dkr.ecr.us-east-1.amazonaws.com/{image}\n"
        f"speculation: {{mode: {mode}, {head}}}\n"
    )
    arm = table_spec(base, "eagle3" if mode == "eagle3" else "p-eagle", ((1, 1, 7), (2, 2, 1)))
    errors = [one for one in make_plan(arm, AWS, load_catalog()).findings if one.severity == "error"]
    (found,) = [one for one in errors if one.check == check]
    assert said in found.message
    assert found.next_step


def test_from_tune_to_a_deployed_table_in_two_commands(peagle: Run, spec: Callable[..., str]) -> None:
    path, out = spec("demo", **CHAT), Path("r.jsonl")
    loads = ",".join(map(str, LOADS))
    size = ("--max-k", str(MAX_K), "--requests", "4", "--max-tokens", "8")
    command = ("tune", path, "--loads", loads, *size, "--unguarded", "--yes")
    assert peagle(*command, "--out", str(out)).exit_code == 2  # the scripted engine ignores K
    windows, table = measured_before()
    checks = validated(table, ("as fast", "as fast", "as fast"))
    with out.open("a") as file:
        file.writelines(f"{to_line(one)}\n" for one in windows)
        file.writelines(f"{to_line(one)}\n" for one in checks)

    result = peagle(*command, "--resume", str(out), "--format", "json")
    assert result.exit_code == 0, result.stderr
    (told,) = json.loads(result.stdout)["tables"]
    assert told["accepted"]
    written = load_spec(path)
    assert written.speculation.num_speculative_tokens_per_batch_size == table.rows
    assert written.speculation.num_speculative_tokens == max(k for _, _, k in table.rows)
    assert f"# tuned: K by load: {table.rows[0][2]} (1 to {table.rows[0][1]})" in Path(path).read_text()

    assert peagle("deploy", path, "--unguarded", "--yes").exit_code == 0
    plan = json.loads(peagle("plan", path, "--format", "json").stdout)
    assert TABLE in json.dumps(plan)
    assert "demo" in peagle("list", "--format", "quiet").stdout
    kinds = {type(one) for one in (*read(out).windows, *read(out).validations)}
    assert kinds == {WindowRecord, ValidationRecord}
