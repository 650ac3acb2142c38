"""Nothing that vLLM would read above a limit passes the gate; see gate_fuzz.py for the whole campaign."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from sagemaker_local.engine.env import ensure_engine

pytestmark = [pytest.mark.engine, pytest.mark.slow, pytest.mark.campaign]

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def result(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """A sample of 4,000 bodies; `scripts/fuzz-gate` runs 100,000."""
    python = ensure_engine(lambda line: print(line, file=sys.stderr))
    done = subprocess.run(
        [str(python), "-m", "tests.container.gate_fuzz", "--bodies", "4000", "--seed", "12"],
        cwd=ROOT,
        env={
            "PATH": os.environ["PATH"],
            "HOME": str(tmp_path_factory.mktemp("home")),
            "PYTHONPATH": str(ROOT / "container"),
        },
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode in (0, 1), done.stderr[-3000:]
    document: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return document


def test_no_body_that_vllm_reads_above_a_limit_passes(result: dict[str, Any]) -> None:
    assert result["bypasses"] == []


def test_the_sample_has_bodies_of_both_kinds(result: dict[str, Any]) -> None:
    """Otherwise the test above would say nothing."""
    assert result["bodies"] == 4000
    assert result["above"] > 400, "vLLM reads these above a limit"
    assert result["passed"] > 800, "the gate passes these"
    assert result["no_maximum"] > 300, "chats without max_tokens that the gate passes"
