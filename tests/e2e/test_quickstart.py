"""The quickstart's job on the real local server with the real engine and the shipped weights."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from peagle_bench.results.result_file import read
from scripts.bench import quickstart
from scripts.bench.comparison import HEADS, REST, THIRD

PROMPTS = 6


@pytest.mark.engine
@pytest.mark.slow
@pytest.mark.campaign
def test_three_modes_come_up_agree_stream_and_leave_nothing(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """Everything of the issue's list but the number of prompts, which says too little for speed."""
    output = tmp_path / "results" / "quickstart.json"
    words = ["--prompts", str(PROMPTS), "--max-tokens", "48", "--output", str(output)]
    code = quickstart.main(words)
    shown = capfd.readouterr()
    assert code == 0, shown.err
    document = json.loads(output.read_text())
    assert document["stand_in_weights"] is True
    assert document["prompts"] == PROMPTS
    assert document["identical_outputs"] is True
    assert document["leftovers"] == []
    assert list(document["modes"]) == list(HEADS)
    for mode, figures in document["modes"].items():
        assert figures["otps"] > 0
        assert (figures["num_speculative_tokens"] is None) == (mode == "none")
        assert figures["acceptance_length"] == 1 if mode == "none" else figures["acceptance_length"] > 1
    for mode, choice in document["num_speculative_tokens"].items():
        assert choice["k"] == document["modes"][mode]["num_speculative_tokens"]
        assert str(choice["k"]) in choice["rates"], "only a measured K is chosen"
        assert f"{mode} {choice['k']}" in shown.out
    assert document["provenance"]["engine_versions"]
    assert "127.0.0.1" not in output.read_text(), "no address of this machine"
    assert f"identical outputs: yes, {PROMPTS} of {PROMPTS} prompts" in shown.out
    assert "The least repetitive third of the prompts (2 of 6)" in shown.out
    assert "SMALL STAND-IN WEIGHTS" in shown.out
    assert "resources left: none" in shown.out
    assert "processes left: none" in shown.out
    page = output.with_suffix(".html")
    assert f"report: {page}" in shown.out
    _look_at_the_report(page, output.with_suffix(".jsonl"))


def _look_at_the_report(page: Path, file: Path) -> None:
    """It needs nothing but itself, and holds every figure of the run.

    Which of them it shows is not asserted: on a busy machine the client may withhold some.
    """
    text = page.read_text()
    assert not re.findall(r"https?:|url\(|@import", text)
    assert "Small stand-in weights" in text
    results = read(file)
    assert results.header.command == "quickstart"
    assert [arm.mode for arm in results.arms] == list(HEADS)
    assert [arm.usd_per_hour for arm in results.arms] == [0.0] * len(HEADS)
    assert len(results.requests) == PROMPTS * len(HEADS)
    assert {point.arm for point in results.points} == {arm.name for arm in results.arms}
    assert {row.category for row in results.requests} == {THIRD, REST}
    assert all(0 < (row.distinct_4_grams or 0) <= 1 for row in results.requests)
    assert [row.identical_outputs for row in results.comparisons] == [PROMPTS] * len(HEADS)
    assert [point.acceptance is None for point in results.points] == [True, False, False]
