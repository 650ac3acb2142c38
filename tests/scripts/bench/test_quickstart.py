"""What the quickstart prints and writes, and how it ends, from results made up."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from peagle_bench.commands.report import render_report
from peagle_bench.report.merging import view_of
from peagle_bench.results.result_file import read
from peagle_bench.verify.statistics import CheckVerdict
from peagle_sm.core.spec.modes import Mode
from scripts.bench import quickstart
from scripts.bench.comparison import KINDS, prompts
from tests.scripts.bench.making import made, request, results

SAME = CheckVerdict(True, "6 of 6 answers identical", "", {"compared": 6, "identical": 6})
OTHER = CheckVerdict(
    False, "5 of 6 answers identical; p4 is another answer", "", {"compared": 6, "identical": 5}
)
BOTH: dict[Mode, CheckVerdict] = {"eagle3": SAME, "p-eagle": SAME}


def test_the_file_has_the_names_that_others_read() -> None:
    document = quickstart.document(made(), BOTH, [], {"deploy": 1.5}, {"p-eagle": {"ttft_ms": 9.0}})
    written = json.loads(json.dumps(document))
    assert written["stand_in_weights"] is True
    assert written["prompts"] == 6
    assert written["answers"]["p-eagle"] == {
        "the_targets_own": True,
        "summary": "6 of 6 answers identical",
        "compared": 6,
        "identical": 6,
    }
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
    assert written["seconds"] == {"deploy": 1.5}
    assert written["streamed"]["p-eagle"]["ttft_ms"] == 9.0
    assert written["provenance"]["seed"] == 0


def test_the_terminal_shows_the_products_report_the_kinds_and_the_answers() -> None:
    full = made(prompts=24)
    shown = quickstart.text(full, BOTH)
    assert shown.startswith(render_report(view_of([full])))
    assert "this deployment only" in shown
    assert "Its machine's load average was 0.75." in shown
    for kind in KINDS:
        assert f"category: {kind}" in shown
    assert shown.endswith("P-EAGLE: 6 of 6 answers identical (by token id)")


def test_a_machine_where_p_eagle_loses_is_told_so_and_what_to_do() -> None:
    seconds = {"smollm2-none": 1.6, "smollm2-eagle3": 0.8, "smollm2-p-eagle": 1.0}
    slower = results([request(arm, f"p{i}", s, tokens=320) for arm, s in seconds.items() for i in range(24)])
    shown = quickstart.text(slower, BOTH)
    assert "P-EAGLE is slower than EAGLE-3: 0.80x" in shown
    assert "Do not choose a mode from this run." in shown
    assert "peagle-sm compare --modes none,eagle3,p-eagle --spec peagle.yaml" in shown
    assert "P-EAGLE lost" not in quickstart.text(made(), BOTH)


def test_figures_of_a_client_that_held_the_load_back_are_withheld_everywhere() -> None:
    results = made()
    busy = tuple(
        replace(point, client=replace(point.client, trusted=False, bottleneck=True, reason="it was busy"))
        for point in results.points
    )
    shown = quickstart.text(replace(results, points=busy), BOTH)
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
    assert "chat, code and JSON" in page.read_text()


def test_the_targets_own_answers_and_nothing_left_is_success(capsys: pytest.CaptureFixture[str]) -> None:
    assert quickstart.exit_code(BOTH, []) == 0
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize("passed", [False, None])
def test_answers_that_are_not_the_targets_own_fail_the_run(
    passed: bool | None, capsys: pytest.CaptureFixture[str]
) -> None:
    assert quickstart.exit_code({**BOTH, "p-eagle": replace(OTHER, passed=passed)}, []) == 1
    assert "P-EAGLE: the answers are not shown to be the target's own: 5 of 6" in capsys.readouterr().err


def test_anything_left_fails_the_run_and_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    assert quickstart.exit_code(BOTH, ["endpoint/smollm2-none", "process/7 vllm"]) == 1
    assert "left behind: endpoint/smollm2-none, process/7 vllm" in capsys.readouterr().err


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
        assert body["temperature"] == 0
        assert body["messages"] == [{"role": "user", "content": quickstart.QUESTION}]
        return Stream()


def test_an_answer_is_shown_as_it_comes_with_its_figures(capsys: pytest.CaptureFixture[str]) -> None:
    figures = quickstart.stream_live(ScriptedEndpoint(), "p-eagle")
    shown = capsys.readouterr().out
    assert shown.startswith(f"\nP-EAGLE: {quickstart.QUESTION}\n    return 1\n")
    assert shown.endswith("[ttft_ms 12.2, otps 300.0, output_tokens 2.0]\n")
    assert figures["ttft_ms"] == 12.25


def test_the_question_is_one_of_the_chat_prompts() -> None:
    items = prompts(60, max_tokens=8).items
    asked = {item.body["messages"][0]["content"] for item in items if item.category == "chat"}
    assert quickstart.QUESTION in asked
