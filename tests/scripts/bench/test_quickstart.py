"""What the quickstart prints and writes, and how it ends, from results made up."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from peagle_bench.commands.report import render_report
from peagle_bench.load import WorkItem
from peagle_bench.report.merging import view_of
from peagle_bench.results.result_file import read
from peagle_sm.core.spec.modes import Mode
from scripts.bench import quickstart
from scripts.bench.machine_k import MachineK
from tests.scripts.bench.making import made, request, results


def test_the_file_has_the_names_that_others_read() -> None:
    chosen: dict[Mode, MachineK] = {
        "p-eagle": MachineK("p-eagle", 7, 11, {7: 410.0, 11: 400.0}, "K=7 is best")
    }
    document = quickstart.document(made(), [], {"deploy": 1.5}, {"ttft_ms": 9.0}, chosen)
    written = json.loads(json.dumps(document))
    assert written["stand_in_weights"] is True
    assert written["prompts"] == 6
    assert written["identical_outputs"] is True
    assert written["leftovers"] == []
    names = ("otps", "acceptance_length", "num_speculative_tokens")
    assert {mode: [figures[name] for name in names] for mode, figures in written["modes"].items()} == {
        "none": [pytest.approx(200), 1.0, None],
        "eagle3": [pytest.approx(400), 3.5, 5],
        "p-eagle": [pytest.approx(400), 2.75, 7],
    }
    assert {name: (ratio["value"], ratio["shown"]) for name, ratio in written["speed_ups"].items()} == {
        "eagle3 over none": (pytest.approx(2), True),
        "p-eagle over none": (pytest.approx(2), True),
        "p-eagle over eagle3": (pytest.approx(1), False),
    }
    assert written["least_repetitive_third"]["prompts"] == 2
    assert written["seconds"] == {"deploy": 1.5}
    assert written["num_speculative_tokens"]["p-eagle"] == {
        "mode": "p-eagle",
        "k": 7,
        "catalogue": 11,
        "rates": {"7": 410.0, "11": 400.0},
        "reason": "K=7 is best",
    }
    assert written["provenance"]["seed"] == 0


def test_the_terminal_shows_the_products_report_the_third_and_the_outputs() -> None:
    full = made(prompts=24)
    shown = quickstart.text(full)
    assert shown.startswith(render_report(view_of([full])))
    assert "SMALL STAND-IN WEIGHTS" in shown
    assert "this deployment only" in shown
    assert "Its machine's load average was 0.75." in shown
    third = shown.partition("The least repetitive third of the prompts (8 of 24)")[2]
    rows = [" ".join(line.split()) for line in third.splitlines()]
    result = "P-EAGLE no speculation c=1 2.00x [2.00, 2.00] 8 prompts 1 no verdict: the window is too short"
    assert any(row.startswith(result) for row in rows)
    assert any(row.startswith("c=1 P-EAGLE 400") and row.endswith("2.75") for row in rows)
    assert rows[-2:] == [
        "num_speculative_tokens: eagle3 5, p-eagle 7, chosen on this machine",
        "identical outputs: yes, 24 of 24 prompts (by token ids)",
    ]


def test_a_machine_where_p_eagle_loses_is_told_so_and_what_to_do() -> None:
    seconds = {"tiny-none": 1.6, "tiny-eagle3": 0.8, "tiny-p-eagle": 1.0}
    slower = results([request(arm, f"p{i}", s, tokens=320) for arm, s in seconds.items() for i in range(24)])
    shown = quickstart.text(slower)
    assert "P-EAGLE is slower than EAGLE-3: 0.80x" in shown
    assert "Do not choose a mode from this run." in shown
    assert "peagle-sm compare --modes none,eagle3,p-eagle --spec peagle.yaml" in shown
    assert "P-EAGLE lost" not in quickstart.text(made())


def test_figures_of_a_client_that_held_the_load_back_are_withheld_everywhere() -> None:
    results = made()
    busy = tuple(
        replace(point, client=replace(point.client, trusted=False, bottleneck=True, reason="it was busy"))
        for point in results.points
    )
    shown = quickstart.text(replace(results, points=busy))
    assert "No figures to publish: the client could not keep up" in shown
    assert "2.00x" not in shown


def test_the_report_is_written_beside_the_figures_and_its_path_is_printed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "sub" / "q.jsonl"
    full = made(prompts=24)
    for _ in range(2):  # a second run overwrites the first
        quickstart.write_report(file, full)
    page = tmp_path / "sub" / "q.html"
    assert capsys.readouterr().out.startswith(f"report: {page} (open it in a browser; `peagle-sm report ")
    results = read(file)
    assert (results.header.command, results.comparisons) == ("quickstart", full.comparisons)
    assert "HumanEval" in page.read_text()
    assert "least repetitive third" in page.read_text()


def test_the_same_outputs_and_nothing_left_is_success(capsys: pytest.CaptureFixture[str]) -> None:
    assert quickstart.verdict(made(), []) == 0
    assert capsys.readouterr().err == ""


def test_a_different_output_fails_the_run_and_says_where(capsys: pytest.CaptureFixture[str]) -> None:
    assert quickstart.verdict(made(different=True), []) == 1
    assert "outputs differ between modes on 1 prompts: p4" in capsys.readouterr().err


def test_anything_left_fails_the_run_and_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    assert quickstart.verdict(made(), ["endpoint/tiny-none", "process/7 vllm"]) == 1
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
    def stream(self, body: Mapping[str, Any] | None = None) -> Stream:
        assert body is not None
        assert (body["temperature"], body["max_tokens"]) == (0, 96)
        assert body["vllm_xargs"] == {"num_speculative_tokens": 9}
        return Stream()


def test_a_completion_is_shown_as_it_comes_with_its_figures(capsys: pytest.CaptureFixture[str]) -> None:
    item = WorkItem("HumanEval/1", {"prompt": "def one():", "temperature": 0, "max_tokens": 9})
    figures = quickstart.stream_live(ScriptedEndpoint(), item, 9)
    shown = capsys.readouterr().out
    assert shown.startswith("HumanEval/1, streamed:\ndef one():    return 1\n")
    assert shown.endswith("[ttft_ms 12.2, otps 300.0, output_tokens 2.0]\n")
    assert figures["ttft_ms"] == 12.25
