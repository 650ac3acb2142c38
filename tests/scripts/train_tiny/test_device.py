"""The accelerator's trainer computes what the engine will run, and learns; in the engine's Python."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from sagemaker_local.engine.env import ensure_engine

pytestmark = [pytest.mark.engine, pytest.mark.campaign]


@pytest.fixture(scope="module")
def found(root: Path) -> dict[str, Any]:
    python = ensure_engine(print)
    environment = {**os.environ, "PYTHONPATH": str(root), "HF_HUB_OFFLINE": "1"}
    script = root / "tests" / "scripts" / "train_tiny" / "device_check.py"
    run = subprocess.run([python, script], env=environment, capture_output=True, text=True, timeout=300)
    assert run.returncode == 0, run.stderr[-3000:]
    answer: dict[str, Any] = json.loads(run.stdout.splitlines()[-1])
    return answer


@pytest.mark.parametrize("head", ["p_eagle", "eagle3"])
def test_a_training_pass_drafts_what_the_engine_would(found: dict[str, Any], head: str) -> None:
    assert found[f"{head}_difference"] < 1e-4


@pytest.mark.parametrize("head", ["p_eagle", "eagle3"])
def test_training_lowers_the_loss(found: dict[str, Any], head: str) -> None:
    before, after = found[f"{head}_losses"]
    assert after < 0.8 * before


def test_every_sampled_chain_is_whole(found: dict[str, Any]) -> None:
    assert found["chains"] == {"whole": True, "eights": True}


def test_an_epoch_holds_every_rollout_once_in_batches_of_one_length(found: dict[str, Any]) -> None:
    assert found["epoch"] == {"once": True, "sizes": True, "lengths": True}


def test_the_rate_rises_and_falls_to_nothing(found: dict[str, Any]) -> None:
    first, highest, last = found["rates"]
    assert first < highest == 1.0
    assert last < 0.01
