"""`scripts/bench-modes` on the real engine, with few prompts."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from peagle_bench.results.result_file import read
from peagle_sm.core.spec.endpoint_spec import MODES
from scripts.bench import modes

pytestmark = [pytest.mark.engine, pytest.mark.slow, pytest.mark.campaign]


def test_the_modes_are_measured_on_both_sets_of_prompts(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    output = tmp_path / "modes.json"
    size = ["--prompts", "2", "--held-out-prompts", "2", "--max-tokens", "16"]
    code = modes.main([*size, "--output", str(output)])
    assert code == 0, capfd.readouterr().err
    finals = json.loads(output.read_text())["finals"]
    assert list(finals) == ["HumanEval", "held-out code"]
    for name, final in finals.items():
        assert list(final["modes"]) == list(MODES)
        assert final["provenance"]["weights_sha256"]
        file = output.with_name(f"modes-{name.lower().replace(' ', '-')}.jsonl")
        assert len(read(file).arms) == 3
