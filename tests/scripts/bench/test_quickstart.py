"""What the quickstart writes and how it ends, from samples made up."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import accumulate
from pathlib import Path
from typing import Any

import pytest

from peagle_sm.measure.report.files import extract
from peagle_sm.measure.report.page import html_page
from peagle_sm.measure.results.records import ArmRecord
from peagle_sm.measure.results.result_file import Results, read
from peagle_sm.measure.workloads.public_datasets import Prompt
from scripts.bench import quickstart
from scripts.bench.comparison.run import Run
from scripts.bench.quickstart_results import REST, THIRD, results_of
from tests.scripts.bench.comparison.test_report import ARMS, made


def run(different: bool = False) -> Run:
    """One answer after the other, in a process that took a tenth of a second for all of them."""
    samples = made(different)
    ends = accumulate(sample.seconds for sample in samples)
    turns = [replace(one, started_at=end - one.seconds) for one, end in zip(samples, ends, strict=True)]
    return Run("made up", tuple(ARMS), tuple(turns), (0.5, 0.75), client_cpu_s=0.1)


def test_the_file_has_the_names_that_others_read() -> None:
    document = quickstart.document(run(), [], {"seed": 0}, {"deploy": 1.5}, {"ttft_ms": 9.0})
    found = json.loads(json.dumps(document))
    assert found["stand_in_weights"] is True
    assert found["prompts"] == 6
    assert found["identical_outputs"] is True
    assert found["leftovers"] == []
    names = ("otps", "acceptance_length", "num_speculative_tokens")
    assert {mode: [figures[name] for name in names] for mode, figures in found["modes"].items()} == {
        "none": [pytest.approx(200), 1.0, None],
        "eagle3": [pytest.approx(400), 3.5, 5],
        "p-eagle": [pytest.approx(400), 2.75, 7],
    }
    assert found["load"] == {"before": 0.5, "after": 0.75}
    assert found["least_repetitive_third"]["prompts"] == 2
    assert found["seconds"] == {"deploy": 1.5}
    assert len(found["samples"]) == 18


RECORDS = [
    ArmRecord(arm.name, arm.mode, arm.num_speculative_tokens, arm.name, usd_per_hour=0.0) for arm in ARMS
]
ORIGIN = {"date": "2026-11-20T12:00:00+00:00", "seed": 0}


def results(run: Run) -> Results:
    return results_of(run, RECORDS, config={"seed": 0}, origin=ORIGIN)


def test_the_results_file_says_what_the_table_says() -> None:
    report, found = run().report(), results(run())
    assert [point.otps for point in found.points] == pytest.approx([arm.otps for arm in report.arms])
    lengths = [point.acceptance.per_step for point in found.points if point.acceptance]
    assert lengths == pytest.approx([3.5, 2.75])
    for row in found.comparisons:
        said = report.speed_ups[row.faster][row.slower]
        found_here = [row.ratio.value, row.ratio.low, row.ratio.high]
        assert found_here == pytest.approx([said.value, said.low, said.high])
        assert (row.over, row.units, row.deployments) == ("prompts", 6, 1)
        assert (row.identical_outputs, row.compared_outputs) == (6, 6)
        assert set(row.categories) == {THIRD, REST}
    assert len(found.comparisons) == 3


def test_the_results_file_tells_no_address_process_or_path_of_the_machine() -> None:
    engine = {
        "endpoint": "tiny-none",
        "engine_version": "0.32.0",
        "pid": 7,
        "url": "http://127.0.0.1:21408",
        "overrides": ["/opt/ml: /tmp/x stands for it", "port: 21408", "enforce_eager: true"],
    }
    origin = {**ORIGIN, "engine": [engine]}
    header = results_of(run(), RECORDS, config={}, origin=origin).header
    kept = {"endpoint": "tiny-none", "engine_version": "0.32.0", "overrides": ["enforce_eager: true"]}
    assert header.provenance["engine"] == [kept]


def test_one_answer_that_differs_is_counted() -> None:
    rows = {(row.faster, row.slower): row for row in results(run(different=True)).comparisons}
    assert [row.identical_outputs for row in rows.values()] == [6, 5, 5]


def test_a_machine_shared_with_the_engines_withholds_nothing() -> None:
    """The client waits for one answer at a time, without an event loop that could be late."""
    busy = replace(run(), load=(9.0, 12.5))
    health = [point.client for point in results(busy).points]
    assert [(one.trusted, one.bottleneck, one.lag_p99_ms) for one in health] == [(True, False, None)] * 3
    assert health[0].cpu_share == pytest.approx(0.1, abs=0.05)
    assert "Nothing to publish" not in html_page([results(busy)])


def test_the_report_stands_beside_the_figures_and_its_place_is_said(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    options = quickstart.arguments(["--output", str(tmp_path / "sub" / "q.json"), "--prompts", "6"])
    made = results_of(run(), RECORDS, config=quickstart.settings(options, 164), origin=ORIGIN)
    for _ in range(2):  # a second run takes the place of the first
        quickstart.write_report(options, made)
    page = tmp_path / "sub" / "q.html"
    assert capsys.readouterr().out.startswith(f"report: {page} (open it in a browser; `peagle-sm report ")
    assert extract(page.read_text()) == [made] == [read(tmp_path / "sub" / "q.jsonl")]
    assert "HumanEval" in page.read_text().split("<script")[0]


def test_the_same_outputs_and_nothing_left_is_success(capsys: pytest.CaptureFixture[str]) -> None:
    assert quickstart.verdict(run(), []) == 0
    assert capsys.readouterr().err == ""


def test_a_different_output_fails_the_run_and_says_where(capsys: pytest.CaptureFixture[str]) -> None:
    assert quickstart.verdict(run(different=True), []) == 1
    assert "outputs differ between modes on 1 prompts: p4" in capsys.readouterr().err


def test_anything_left_fails_the_run_and_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    assert quickstart.verdict(run(), ["endpoint/tiny-none", "process/7 vllm"]) == 1
    assert "left behind: endpoint/tiny-none, process/7 vllm" in capsys.readouterr().err


@dataclass
class Chunk:
    text: str


@dataclass
class Summary:
    ttft_ms: float | None = 12.25
    otps: float | None = 300.0
    output_tokens: int | None = 2
    acceptance_length: float | None = None


class Stream:
    text = "    return 1"
    summary = Summary()

    def __iter__(self) -> Iterator[Chunk]:
        yield from (Chunk("    return"), Chunk(" 1"))


class ScriptedEndpoint:
    def invoke(self, body: Mapping[str, Any] | None = None) -> Any:
        raise AssertionError("the last completion is streamed")

    def stream(self, body: Mapping[str, Any] | None = None) -> Stream:
        assert body is not None
        assert body["temperature"] == 0
        return Stream()


def test_a_completion_is_shown_as_it_comes_with_its_figures(capsys: pytest.CaptureFixture[str]) -> None:
    figures = quickstart.stream_live(ScriptedEndpoint(), Prompt("HumanEval/1", "def one():"))
    shown = capsys.readouterr().out
    assert shown.startswith("HumanEval/1, streamed:\ndef one():    return 1\n")
    assert shown.endswith("[ttft_ms 12.2, otps 300.0, output_tokens 2.0]\n")
    assert figures["ttft_ms"] == 12.25
