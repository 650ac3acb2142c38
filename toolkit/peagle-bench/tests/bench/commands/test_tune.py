"""`peagle-sm tune` from command line to exit code, on the local SageMaker with scripted engines.

A scripted engine says nothing of its drafts and ignores K, so the figures mean nothing here; what is looked
at is what is deployed, told, written and deleted.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from peagle_bench.results.records import Reading
from peagle_bench.results.result_file import from_line, read
from peagle_sm.service.spec_to_plan import load_spec
from tests.cli.conftest import Run

SMALL = ("--requests", "4", "--concurrency", "1", "--max-k", "2", "--unguarded")
CHAT = {"SCRIPT_INVOKE": "chat", "SCRIPT_CHUNK_DELAY": "0.01", "SCRIPT_CHUNKS": "6"}


def test_a_tuning_deploys_measures_writes_and_leaves_nothing(peagle: Run, spec: Callable[..., str]) -> None:
    path = spec("demo", **CHAT)
    out = Path("r.jsonl")
    result = peagle("tune", path, *SMALL, "--by", "deployments", "--yes", "--out", str(out))
    assert result.exit_code == 0, result.stderr
    assert "nothing is billed" in result.stderr  # before
    assert "window 1 of about 4: none c=1: " in result.stderr
    assert "nothing was billed" in result.stdout  # after
    results = read(out)
    (record,) = results.fits
    assert record.deployments == 2
    assert [point.k for point in record.points] == [0, 1, 2]
    assert {arm.name for arm in results.arms} == {"none", "p-eagle K=1", "p-eagle K=2"}
    assert load_spec(path).speculation.num_speculative_tokens == record.best_k
    assert "# tuned: K=" in Path(path).read_text()
    for each in (result.stdout, record.reason, Path(path).read_text()):
        assert "no speculation: " in each
    assert "of an earlier run" not in result.stderr
    assert "no endpoints" in peagle("list").stdout + peagle("list").stderr


def test_an_engine_that_does_not_take_k_by_request_is_told(peagle: Run, spec: Callable[..., str]) -> None:
    result = peagle("tune", spec("demo", **CHAT), *SMALL, "--yes", "--out", "r.jsonl")
    assert result.exit_code == 2, result.stderr
    assert "ignores num_speculative_tokens in requests" in result.stderr
    assert "--by deployments" in result.stderr
    assert "tune-demo" not in peagle("list", "--format", "quiet").stdout


def test_a_dry_run_prints_the_requests_and_does_nothing(peagle: Run, spec: Callable[..., str]) -> None:
    path = spec("demo")
    document = json.loads(peagle("tune", path, "--dry-run", "--by", "deployments").stdout)
    assert list(document) == ["none", "p-eagle K=11"]
    assert peagle("list", "--format", "quiet").stdout == ""


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        (("--max-k", "40"), "2<=x<=32"),
        (("--max-k", "20"), "--max-k: found 20, too many for p-eagle K=20: "),
        (("--modes", "none"), "--modes: found 'none'"),
        (("--concurrency", "4,4"), "separated by commas, without duplicates"),
    ],
)
def test_bad_input_is_told_before_anything_is_deployed(
    peagle: Run, spec: Callable[..., str], options: tuple[str, ...], expected: str
) -> None:
    result = peagle("tune", spec("demo"), "--yes", *options)
    assert (result.exit_code, result.stdout) == (2, "")
    assert expected in result.stderr
    assert peagle("list", "--format", "quiet").stdout == ""


def test_a_spec_without_speculation_needs_a_mode(peagle: Run, in_empty_folder: Path) -> None:
    path = in_empty_folder / "none.yaml"
    path.write_text("name: demo\nmodel: tiny-code\nspeculation:\n  mode: none\n")
    result = peagle("tune", str(path), "--yes")
    assert result.exit_code == 2
    assert "which has no K to tune" in result.stderr


def test_without_a_terminal_the_price_is_shown_and_nobody_is_asked(
    peagle: Run, in_empty_folder: Path
) -> None:
    path = in_empty_folder / "peagle.yaml"
    path.write_text("name: priced\nmodel: tiny-code\nspeculation: {mode: p-eagle}\n")
    result = peagle("tune", str(path))
    assert result.exit_code == 2
    price, _, refusal = result.stderr.partition("Cannot ask 'Continue (")
    assert "nothing is billed" in price
    assert "--yes was not given. Nothing was changed." in refusal


OTHERS = {
    ("--max-k", "3"): "max_k was 2, now 3",
    ("--requests", "5"): "requests was 4, now 5",
    ("--concurrency", "2"): "concurrencies was [1], now [2]",
}


def test_an_interrupted_tuning_continues_from_its_results_file(peagle: Run, spec: Callable[..., str]) -> None:
    """Cut after K=2's window and in the middle of K=1's: K=2 is neither deployed nor measured again."""
    path, out = spec("demo", **CHAT), Path("r.jsonl")
    command = ("tune", path, *SMALL, "--by", "deployments", "--yes", "--no-write")
    assert peagle(*command, "--out", str(out)).exit_code == 0
    whole = out.read_text().splitlines(keepends=True)
    first = next(i for i, line in enumerate(whole) if '"kind":"window"' in line and '"k":2,' in line)
    out.write_text("".join(whole[: first + 4]))  # two requests of the next window
    before = read(out)
    assert [(window.mode, window.k) for window in before.windows] == [("none", 0), ("p-eagle", 2)]

    for options, expected in OTHERS.items():
        other = peagle(*command, "--resume", str(out), *options)
        assert (other.exit_code, other.stdout) == (2, ""), other.stderr
        assert expected in other.stderr
        assert "resume with the same options" in other.stderr
        assert read(out).windows == before.windows

    result = peagle(*command, "--resume", str(out), "--out", "s.jsonl")
    assert result.exit_code == 0, result.stderr
    assert "2 windows of r.jsonl are not measured again" in result.stderr
    assert "p-eagle K=2: already measured" in result.stderr
    assert "p-eagle K=2 c=1:" not in result.stderr
    assert "window 3 of about 4: p-eagle K=1 c=1:" in result.stderr
    after = read(Path("s.jsonl"))
    assert after.windows[:2] == before.windows
    assert [(window.mode, window.k) for window in after.windows] == [
        (window.mode, window.k) for window in windows_of(whole)
    ]
    measured = [request for request in after.requests if request.phase == "measured"]
    assert {(request.arm, request.block) for request in measured} == {("p-eagle K=1", 1), ("none", 1)}
    assert len(measured) == 2 * 4
    (fit,) = after.fits
    assert [point.k for point in fit.points] == [0, 1, 2]
    assert peagle("list", "--format", "quiet").stdout == ""

    again = peagle(*command, "--resume", "s.jsonl")
    assert again.exit_code == 2
    assert "is already finished" in again.stderr


def windows_of(lines: list[str]) -> list[Reading]:
    records = [from_line(line) for line in lines]
    return [record for record in records if isinstance(record, Reading)]


def test_what_is_no_tuning_is_not_continued(peagle: Run, spec: Callable[..., str]) -> None:
    path, out = spec("demo", **CHAT), Path("r.jsonl")
    out.write_text(
        '{"kind":"header","run_id":"b","command":"bench","config":{},"provenance":{},'
        '"stand_in_weights":true,"schema":"peagle-sm/results/1"}\n'
    )
    result = peagle("tune", path, *SMALL, "--yes", "--resume", str(out))
    assert (result.exit_code, result.stdout) == (2, "")
    assert "r.jsonl is a results file of bench; tune can continue only its own files" in result.stderr
    missing = peagle("tune", path, *SMALL, "--yes", "--resume", "none.jsonl")
    assert missing.exit_code == 2, missing.stderr
    assert "results file none.jsonl not found" in missing.stderr
