"""The quickstart's job on the real local server with the real engine and the shipped weights."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from peagle_sm.measure import quickstart
from peagle_sm.measure.arms import MODES

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
