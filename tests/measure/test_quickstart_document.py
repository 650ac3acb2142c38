"""What the quickstart writes and how it ends, from samples made up."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import pytest

from peagle_sm.measure import quickstart
from peagle_sm.measure.run import Run
from peagle_sm.measure.workload import Prompt
from tests.measure.test_report import ARMS, made


def run(different: bool = False) -> Run:
    return Run("made up", tuple(ARMS), tuple(made(different)), (0.5, 0.75), seed=0)


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
