"""`peagle-sm compare --gate` on bare servers: what fails, what is refused, and JUnit."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from click.testing import Result

from peagle_bench.results.records import ClientHealth, RequestRecord
from peagle_bench.results.result_file import Results, read, records_of, to_line
from tests.bench.scheduled_server import Running, scheduled_server
from tests.cli.conftest import Run
from tests.cli.running import run

SMALL = ("--prompts", "16", "--max-tokens", "20")
HEALTHY = ClientHealth(True, None, 0.1, 0.1, 10.0, bottleneck=False)


@pytest.fixture(scope="module")
def servers() -> Iterator[dict[str, Running]]:
    speed = ("--gap-ms", "2", "--ttft-ms", "20")
    with (
        scheduled_server(*speed) as plain,
        scheduled_server(*speed, "--survival", "0.9,0.8,0.7") as fast,
        scheduled_server(*speed, "--survival", "0.6,0.3,0.2") as worse,
        scheduled_server(*speed, "--survival", "0.9,0.8") as shorter,
    ):
        yield {"none": plain, "p-eagle": fast, "worse": worse, "shorter": shorter}


def write(path: Path, results: Results, *, change: Any = lambda record: record) -> Path:
    """Write a record; however busy this machine was, its client kept up."""
    points = tuple(replace(point, client=HEALTHY, seconds=9.0) for point in results.points)
    healthy = replace(results, points=points)
    path.write_text("".join(f"{to_line(change(record))}\n" for record in records_of(healthy)))
    return path


@pytest.fixture(scope="module")
def measured(servers: dict[str, Running], tmp_path_factory: pytest.TempPathFactory) -> Results:
    path = tmp_path_factory.mktemp("first") / "r.jsonl"
    arms = [f"{mode}={servers[mode].url}" for mode in ("none", "p-eagle")]
    result = run("compare", *arms, *SMALL, "--out", path)
    assert result.exit_code == 0, result.stderr
    return read(path)


def gate(servers: dict[str, Running], record: Path, *more: str | Path, fast: str = "p-eagle") -> Result:
    arms = (f"none={servers['none'].url}", f"p-eagle={servers[fast].url}")
    out = ("--out", record.with_name("now.jsonl"), "--gate", record, "--format", "json")
    return run("compare", *arms, *SMALL, *out, *more)


def of_check(result: Result, mode: str, name: str) -> str:
    checks = json.loads(result.stdout)["gate"]["checks"]
    (found,) = [each["result"] for each in checks if (each["mode"], each["name"]) == (mode, name)]
    return str(found)


def test_an_unchanged_run_has_the_answers_and_the_acceptance_of_its_record(
    servers: dict[str, Running], measured: Results, tmp_path: Path
) -> None:
    record = write(tmp_path / "record.jsonl", measured)
    result = gate(servers, record)
    assert result.exit_code in (0, 9, 10), result.stderr  # of the speed, this machine may be too busy
    answers = [of_check(result, mode, "answers") for mode in ("none", "p-eagle")]
    assert [*answers, of_check(result, "p-eagle", "acceptance")] == ["pass", "pass", "pass"]
    speed = of_check(result, "p-eagle", "speed")
    assert result.exit_code == {"pass": 0, "FAIL": 9, "undecided": 10}[speed]


def test_a_changed_answer_and_less_acceptance_fail_with_their_figures_in_junit(
    servers: dict[str, Running], measured: Results, tmp_path: Path
) -> None:
    changed = next(
        each.prompt_id for each in measured.requests if (each.arm, each.phase) == ("p-eagle", "measured")
    )
    record = write(
        tmp_path / "record.jsonl",
        measured,
        change=lambda each: (
            replace(each, output_sha256="f" * 64)
            if isinstance(each, RequestRecord) and (each.arm, each.prompt_id) == ("p-eagle", changed)
            else each
        ),
    )
    junit = tmp_path / "reports" / "gate.xml"
    result = gate(servers, record, "--junit", junit, fast="worse")
    assert result.exit_code == 9
    assert of_check(result, "p-eagle", "acceptance") == "FAIL"
    assert of_check(result, "p-eagle", "answers") == "FAIL"
    assert of_check(result, "none", "answers") == "pass"
    assert "p-eagle: acceptance; p-eagle: answers" in result.stderr
    (suite,) = ElementTree.parse(junit).getroot()
    cases = {(case.get("classname"), case.get("name")): case for case in suite.iter("testcase")}
    failure = cases["peagle-sm.p-eagle", "answers at c=1"].find("failure")
    assert failure is not None
    assert changed in (failure.text or "")
    assert cases["peagle-sm.none", "answers at c=1"].find("failure") is None
    assert int(suite.get("tests", 0)) == len(cases) == 4
    assert int(suite.get("failures", 0)) == len(list(suite.iter("failure"))) >= 2


def test_a_record_is_smaller_than_the_results_and_judges_as_they_do(
    servers: dict[str, Running], tmp_path: Path
) -> None:
    arms = (f"none={servers['none'].url}", f"p-eagle={servers['p-eagle'].url}")
    record, full = tmp_path / "kept" / "record.jsonl", tmp_path / "full.jsonl"
    result = run("compare", *arms, *SMALL, "--out", full, "--record", record)
    if result.exit_code == 10:  # on a busy machine nothing could be judged by it
        assert "no record was written" in result.stderr
        assert not record.exists()
        return
    assert result.exit_code == 0, result.stderr
    assert record.stat().st_size < full.stat().st_size
    kept = read(record)
    assert {request.phase for request in kept.requests} == {"measured"}
    assert {request.text for request in kept.requests} == {None}
    assert run("report", record).exit_code == 0


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (("--prompts", "17"), "number of prompts: 16 in the record, now 17"),
        (("--max-tokens", "21"), "--max-tokens: 20 in the record, now 21"),
        (("--temperature", "0.5"), "temperature: 0.0 in the record, now 0.5"),
        (("--concurrency", "2"), "loads: c=1 in the record, now c=2"),
        (("-w", "synthetic:8/20"), "requests (their prompts, limits or order): differ"),
        (("--changed", "head"), "--changed: found head; allowed: k, engine, instance"),
    ],
)
def test_a_run_that_cannot_be_compared_is_refused_before_anything_is_sent(
    servers: dict[str, Running],
    measured: Results,
    tmp_path: Path,
    arguments: tuple[str, ...],
    expected: str,
) -> None:
    record = write(tmp_path / "record.jsonl", measured)
    before = {name: server.truth()["chunks"] for name, server in servers.items()}
    result = gate(servers, record, *arguments)
    assert (result.exit_code, result.stdout) == (2, "")
    assert expected in result.stderr
    assert {name: server.truth()["chunks"] for name, server in servers.items()} == before
    assert not (tmp_path / "now.jsonl").exists()


def test_a_mode_that_the_record_lacks_is_refused_before_anything_is_sent(
    servers: dict[str, Running], measured: Results, tmp_path: Path
) -> None:
    record = write(tmp_path / "record.jsonl", measured)
    before = servers["p-eagle"].truth()["chunks"]
    arms = (f"none={servers['none'].url}", f"eagle3={servers['p-eagle'].url}")
    result = run("compare", *arms, *SMALL, "--out", tmp_path / "now.jsonl", "--gate", record)
    assert result.exit_code == 2
    assert "mode eagle3: not in the record" in result.stderr
    assert "mode p-eagle: in the record, but not in this run" in result.stderr
    assert servers["p-eagle"].truth()["chunks"] == before
    assert not (tmp_path / "now.jsonl").exists()


def test_what_only_the_run_shows_is_refused_after_it_and_its_figures_stay(
    servers: dict[str, Running], measured: Results, tmp_path: Path
) -> None:
    record = write(tmp_path / "record.jsonl", measured)
    result = gate(servers, record, fast="shorter")
    assert result.exit_code == 2
    assert "mode p-eagle: K 3 in the record, now 2" in result.stderr
    document = json.loads(result.stdout)
    assert "gate" not in document
    assert document["modes"]
    tested = gate(servers, record, "--changed", "k", "--out", tmp_path / "tested.jsonl", fast="shorter")
    assert tested.exit_code in (0, 9, 10)
    assert of_check(tested, "p-eagle", "acceptance") == "not applicable"
    assert of_check(tested, "p-eagle", "answers") == "pass"


def test_endpoints_whose_modes_are_not_known_cannot_be_a_record(
    servers: dict[str, Running], tmp_path: Path
) -> None:
    before = servers["none"].truth()["chunks"]
    record = tmp_path / "record.jsonl"
    urls = (servers["none"].url, servers["p-eagle"].url)
    result = run("compare", *urls, *SMALL, "--out", tmp_path / "r.jsonl", "--record", record)
    assert result.exit_code == 2
    assert "the mode of an arm is not known" in result.stderr
    assert servers["none"].truth()["chunks"] == before
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (("--gate", "gone.jsonl"), "record gone.jsonl not found"),
        (("--gate", "text.jsonl"), "not a results file"),
        (("--gate", "bench.jsonl"), "a results file of bench"),
        (("--gate", "record.jsonl", "--record", "./record.jsonl"), "found record.jsonl twice"),
        (("--junit", "out.xml"), "--junit: allowed only with --gate"),
        (("--margin", "3", "--rates"), "--margin, --rates: allowed only with --gate"),
        (("--gate", "record.jsonl", "--packs", "rag"), "--gate cannot be used with --packs"),
        (("--record", "new.jsonl", "--packs", "rag"), "--record cannot be used with --packs"),
        (("--gate", "record.jsonl", "--margin", "60"), "60"),
        (("--gate", "few.jsonl"), "nothing can be judged by this record"),
        (("--gate", "cut.jsonl"), "the run of this record was interrupted: 1 of 2 loads"),
    ],
)
def test_bad_input_is_refused(
    in_empty_folder: Path, measured: Results, arguments: tuple[str, ...], expected: str
) -> None:
    write(Path("record.jsonl"), measured)
    Path("text.jsonl").write_text("a text\n")
    other = replace(measured, header=replace(measured.header, command="bench"))
    write(Path("bench.jsonl"), other)
    write(Path("few.jsonl"), replace(measured, points=()))
    loads = {**measured.header.config, "loads": ["c=1", "c=8"]}  # Ctrl-C before the second was measured
    write(Path("cut.jsonl"), replace(measured, header=replace(measured.header, config=loads)))
    result = run("compare", "none=http://127.0.0.1:9", "p-eagle=http://127.0.0.1:19", *arguments)
    assert (result.exit_code, result.stdout) == (2, "")
    assert expected in result.stderr


@pytest.mark.slow
def test_deployed_modes_are_those_of_their_record_and_another_k_is_refused_before_they_are_deployed(
    peagle: Run, spec: Callable[..., str]
) -> None:
    path = spec("tiny", SCRIPT_INVOKE="chat")
    prompts = [{"messages": [{"role": "user", "content": text}], "max_tokens": 4} for text in "abcdefgh"]
    Path("prompts.jsonl").write_text("".join(json.dumps(each) + "\n" for each in prompts))
    options = ("compare", "--spec", path, "-w", "prompts.jsonl", "--temperature", "0", "--unguarded", "--yes")
    first = peagle(*options, "--modes", "none,p-eagle", "--out", "first.jsonl")
    assert first.exit_code == 0, first.stderr
    measured = read(Path("first.jsonl"))
    (k,) = [arm.num_speculative_tokens for arm in measured.arms if arm.mode == "p-eagle"]
    write(Path("record.jsonl"), measured)
    gated = (*options, "--gate", "record.jsonl", "--format", "json")
    again = peagle(*gated, "--modes", "none,p-eagle", "--out", "now.jsonl")
    assert again.exit_code in (0, 10), again.stderr  # the script's answers are too short for a speed
    assert of_check(again, "p-eagle", "answers") == of_check(again, "none", "answers") == "pass"
    other = peagle(*gated, "--modes", "none,p-eagle=3", "--out", "k.jsonl")
    assert other.exit_code == 2
    assert f"mode p-eagle: K {k} in the record, now 3" in other.stderr
    assert "--changed k" in other.stderr
    missing = peagle(*gated, "--modes", "none,eagle3", "--out", "k.jsonl")
    assert missing.exit_code == 2
    assert "mode p-eagle: in the record, but not in this run" in missing.stderr
    assert not Path("k.jsonl").exists()
    assert peagle("list", "--format", "quiet").stdout == ""
