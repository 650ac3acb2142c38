"""Results files: written and read back, cut, broken."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from peagle_bench.results import records
from peagle_bench.results.records import KINDS, Load, Record
from peagle_bench.results.result_file import ResultWriter, demand_same_config, from_line, read, to_line
from peagle_sm.aws.files import CannotWrite
from peagle_sm.core.errors import SpecError
from tests.disks import file_limit

CLOSED = Load("closed", concurrency=8)
CONFIG: dict[str, Any] = {"workload": {"name": "humaneval", "prompts": 9}, "concurrency": [1, 8], "seed": 7}
HEADER = records.Header("r1", "bench", CONFIG, {"vllm": "0.32.0"}, stand_in_weights=True)
ARM = records.ArmRecord("a", "p-eagle", 7, "endpoint-a")


def request(prompt_id: str = "p/1", **changed: Any) -> records.RequestRecord:
    values: dict[str, Any] = {
        "arm": "a", "load": CLOSED, "prompt_id": prompt_id, "phase": "measured", "due_s": 0.0,
        "sent_s": 0.1, "first_s": 0.2, "last_s": 0.9, "done_s": 1.0, "input_tokens": 12,
        "output_tokens": 34, "chunks": 9, "gaps_ms": (1.5, 2.0), "histogram": (1, 2, 3),
    }  # fmt: skip
    return records.RequestRecord(**{**values, **changed})


def point() -> records.PointRecord:
    return records.PointRecord(
        arm="a", load=CLOSED, seconds=10.0, requests=4, errors={"StreamError": 1}, input_tokens=None,
        output_tokens=120, otps=12.0, otps_per_request=3.5, requests_per_s=0.4,
        ttft_ms=records.Percentiles(1, 2.0, 3.0, 1.5, 3), tpot_ms=None, itl_ms=None, e2e_ms=None,
        acceptance=records.Acceptance("per-request", 3.5, 3.4, (0.9, 0.5), 100, 250),
        client=records.ClientHealth(True, None, 0.4, 0.2, 18.0), temperature=0.0,
    )  # fmt: skip


def comparison() -> records.ComparisonRecord:
    ratio = records.Interval(1.2, 1.1, 1.3)
    return records.ComparisonRecord(
        "a", "b", CLOSED, ratio, "prompts", 164, 1, None, ratio, identical_outputs=3
    )


RECORDS: dict[str, Record] = {
    "header": HEADER,
    "arm": ARM,
    "request": request(),
    "point": point(),
    "comparison": comparison(),
    "fit": records.FitRecord("p-eagle", CLOSED, (records.KPoint(7, 4.3, 8.6, 497, True),), 7, "why", 1, None),
    "window": records.Reading(7, 8, 3.4, (0.9, 0.5), 8.6, 497.0, 100, "drafts", 1, "p-eagle", "late"),
    "slice": records.SliceRecord(
        "p-eagle",
        Load("closed", concurrency=1),
        "script",
        "han",
        9,
        9,
        records.Interval(2.0, 1.8, 2.2),
        "none",
        records.Interval(0.8, 0.7, 0.9),
        9,
        9,
        0.998,
    ),
    "pack": records.PackRecord(
        "rag",
        "p-eagle",
        "none",
        False,
        "acceptance 4.10",
        "falls",
        (records.CheckRecord("identity", "p-eagle", "none", False, "said", "all", {"gap": 0.01}, ("x",)),),
        ("scaled down",),
        90,
        1.5,
        3,
        ("x",),
    ),
    "check": records.CheckRecord("greedy", "a", "b", None, "said", "none", {"gap": 0.01}, ("x",)),
}


def write(path: Path, *written: Record) -> Path:
    with ResultWriter(path) as writer:
        for record in written:
            writer.append(record)
    return path


@pytest.mark.parametrize("kind", KINDS)
def test_a_record_of_each_kind_comes_back_as_it_was(kind: str) -> None:
    line = to_line(RECORDS[kind])
    assert "\n" not in line
    assert from_line(line) == RECORDS[kind]


def test_a_file_comes_back_sorted_by_kind(tmp_path: Path) -> None:
    result = read(write(tmp_path / "deep" / "r.jsonl", *RECORDS.values(), request("p/2")))
    assert result.header == HEADER
    assert [request.prompt_id for request in result.requests] == ["p/1", "p/2"]
    assert (result.arms, result.points, result.comparisons) == ((ARM,), (point(),), (comparison(),))
    assert result.warnings == ()


def test_a_figure_that_is_not_finite_is_refused() -> None:
    with pytest.raises(ValueError, match="Out of range"):
        to_line(request(done_s=float("nan")))


@given(cut=st.integers(min_value=0, max_value=1500))
@settings(max_examples=150, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_a_file_cut_anywhere_keeps_its_whole_lines(tmp_path: Path, cut: int) -> None:
    written: list[Record] = [HEADER, ARM, request(text="naïve ☃"), point(), request("p/2")]
    whole = b"".join(to_line(record).encode() + b"\n" for record in written)
    path = tmp_path / "cut.jsonl"
    path.write_bytes(whole[:cut])
    complete = [record for n, record in enumerate(written) if _ends(written, n) - 1 <= cut]
    if not complete:
        with pytest.raises(SpecError, match=r"empty|no complete line|not a results file"):
            read(path)
        return
    result = read(path)
    assert len(result.arms) + len(result.requests) + len(result.points) + 1 == len(complete)
    beyond = cut - _ends(written, len(complete) - 1)
    assert bool(result.warnings) is (beyond > 0 and cut < len(whole))


def _ends(written: list[Any], n: int) -> int:
    return sum(len(to_line(record).encode()) + 1 for record in written[: n + 1])


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("{", "line 2"),
        ('{"kind": "request"}', "'arm' is missing"),
        ('{"kind": "nonsense"}', "unknown kind 'nonsense'; allowed: header, arm"),
        ("[]", 'expected a JSON object with a "kind"'),
        (to_line(ARM).replace('"p-eagle"', '"medusa"'), "mode: expected one of 'none', 'ngram'"),
        (to_line(request()).replace('"chunks":9', '"chunks":"9"'), "chunks: expected int, found '9'"),
        (to_line(request()).replace("[1.5,2.0]", "[1.5,null]"), "gaps_ms: expected float, found None"),
        (to_line(request()).replace('"concurrency":8', '"concurrency":true'), "load: concurrency: expected"),
    ],
)
def test_a_bad_line_in_the_middle_is_told_with_its_number(tmp_path: Path, line: str, expected: str) -> None:
    path = tmp_path / "r.jsonl"
    path.write_text(f"{to_line(HEADER)}\n{line}\n{to_line(ARM)}\n")
    with pytest.raises(SpecError) as raised:
        read(path)
    assert "line 2" in raised.value.message
    assert expected in raised.value.message
    assert raised.value.next_step


def test_a_file_without_header_or_of_another_schema_is_refused(tmp_path: Path) -> None:
    path = write(tmp_path / "headless.jsonl", ARM)
    with pytest.raises(SpecError, match='found kind "arm"; expected "header"'):
        read(path)
    path.write_text(to_line(HEADER).replace("results/1", "results/9") + "\n")
    with pytest.raises(SpecError, match="found schema 'peagle-sm/results/9'"):
        read(path)
    with pytest.raises(SpecError):
        read(tmp_path / "none.jsonl")


def test_fields_of_a_later_version_are_ignored() -> None:
    assert from_line(to_line(ARM)[:-1] + ',"later":[1]}') == ARM


def test_a_new_run_never_overwrites_an_old_one_unasked(tmp_path: Path) -> None:
    path = write(tmp_path / "r.jsonl", HEADER)
    with pytest.raises(SpecError, match="exists already") as raised:
        ResultWriter(path)
    assert "--out" in (raised.value.next_step or "")
    with ResultWriter(path, overwrite=True) as writer:
        writer.append(RECORDS["header"])
        writer.append(ARM)
    assert read(path).arms == (ARM,)


def test_resuming_with_another_config_says_what_differs(tmp_path: Path) -> None:
    path = write(tmp_path / "r.jsonl", HEADER)
    with pytest.raises(SpecError) as raised:
        demand_same_config(
            path,
            CONFIG,
            {"workload": {"name": "mt-bench", "prompts": 9}, "concurrency": [1, 8], "rate": None},
        )
    message = raised.value.message
    assert 'workload.name was "humaneval", now "mt-bench"' in message
    assert "prompts" not in message
    assert "seed was 7, now not set" in message
    assert "rate was not set, now null" in message
    assert "concurrency" not in message


def test_two_runs_never_write_the_same_file(tmp_path: Path) -> None:
    path = write(tmp_path / "r.jsonl", HEADER)
    with (
        ResultWriter(path, overwrite=True),
        pytest.raises(SpecError, match="another run is writing"),
    ):
        ResultWriter(path, overwrite=True)


def test_a_full_disk_leaves_whole_lines_and_says_how_to_go_on(tmp_path: Path) -> None:
    path = tmp_path / "r.jsonl"
    with ResultWriter(path) as writer:
        writer.append(HEADER)
        before = path.read_bytes()
        with file_limit(len(before) + 20), pytest.raises(CannotWrite, match="File too large") as full:
            writer.append(ARM)
        assert path.read_bytes() == before
        assert f"`peagle-sm report {path}`" in (full.value.next_step or "")
        writer.append(ARM)
    assert read(path).arms == (ARM,)


def test_a_disk_that_is_full_from_the_start_leaves_no_file(tmp_path: Path) -> None:
    path = tmp_path / "results" / "r.jsonl"
    with ResultWriter(path) as writer, file_limit(20), pytest.raises(CannotWrite):
        writer.append(HEADER)
    assert list(path.parent.iterdir()) == []


def test_a_result_folder_that_cannot_be_made(tmp_path: Path) -> None:
    (tmp_path / "taken").write_text("")
    with pytest.raises(CannotWrite, match=r"taken/r\.jsonl: cannot be written: File exists"):
        ResultWriter(tmp_path / "taken" / "r.jsonl")
