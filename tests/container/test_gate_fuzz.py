"""Nothing that vLLM would read above a limit passes the gate; `scripts/fuzz-gate` runs the whole campaign."""

import json
from pathlib import Path

import pytest

from tests.local.engine_program import run_in_engine

pytestmark = [pytest.mark.engine, pytest.mark.slow, pytest.mark.campaign]


def test_no_body_that_vllm_reads_above_a_limit_passes(tmp_path: Path) -> None:
    program = ("-m", "tests.container.gate_fuzz", "--bodies", "4000", "--seed", "12")
    result = json.loads(run_in_engine(tmp_path, *program, codes=(0, 1)))
    assert result["bypasses"] == []
    # The sample has bodies of both kinds; otherwise the line above would say nothing.
    assert result["above"] > 400, "vLLM reads these above a limit"
    assert result["passed"] > 800, "the gate passes these"
    assert result["no_maximum"] > 300, "chats without max_tokens that the gate passes"
