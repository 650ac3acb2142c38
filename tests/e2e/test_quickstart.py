"""The quickstart's job on the real local server with the real engine and the shipped weights."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from peagle_sm.core.spec.endpoint_spec import MODES
from peagle_sm.measure.report.files import extract
from peagle_sm.measure.report.merging import view_of
from peagle_sm.measure.results.result_file import read
from scripts.bench import quickstart

PROMPTS = 6


@pytest.mark.engine
@pytest.mark.slow
def test_three_modes_come_up_agree_stream_and_leave_nothing(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """Everything of the issue's list but the number of prompts, which says too little for speed."""
    output = tmp_path / "results" / "quickstart.json"
    words = ["--prompts", str(PROMPTS), "--max-tokens", "48", "--output", str(output)]
    code = quickstart.main(words)
    shown = capfd.readouterr()
    assert code == 0, shown.err
    found = json.loads(output.read_text())
    assert found["stand_in_weights"] is True
    assert found["prompts"] == PROMPTS
    assert found["identical_outputs"] is True
    assert found["identity_by"] == "token ids"
    assert found["leftovers"] == []
    assert list(found["modes"]) == list(MODES)
    for mode, figures in found["modes"].items():
        assert figures["otps"] > 0
        assert (figures["num_speculative_tokens"] is None) == (mode == "none")
        assert figures["acceptance_length"] == 1 if mode == "none" else figures["acceptance_length"] > 1
    passes = {mode: figures["draft_passes_per_1000_tokens"] for mode, figures in found["modes"].items()}
    assert passes["none"] == 0 < passes["p-eagle"] < passes["eagle3"]
    assert found["provenance"]["weights_sha256"]
    assert len(found["samples"]) == PROMPTS * len(MODES)
    assert "small stand-in weights" in shown.out
    assert "resources left: none" in shown.out
    assert "processes left: none" in shown.out
    page = output.with_suffix(".html")
    assert f"report: {page}" in shown.out
    _look_at_the_report(page, output.with_suffix(".jsonl"))


def _look_at_the_report(page: Path, file: Path) -> None:
    """It needs nothing but itself, and holds every figure of the run."""
    text = page.read_text()
    assert not re.findall(r"https?:|url\(|@import", text)
    assert "Nothing to publish" not in text
    assert "Small stand-in weights" in text
    (results,) = extract(text)
    assert results == read(file)
    assert results.header.command == "quickstart"
    assert [arm.mode for arm in results.arms] == list(MODES)
    assert [arm.usd_per_hour for arm in results.arms] == [0.0] * len(MODES)
    assert len(results.requests) == PROMPTS * len(MODES)
    assert {point.arm for point in view_of([results]).points} == {arm.name for arm in results.arms}
    assert [row.identical_outputs for row in results.comparisons] == [PROMPTS] * len(MODES)
    assert [point.acceptance is None for point in results.points] == [True, False, False]
