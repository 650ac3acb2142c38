"""`scripts/train-tiny` from nothing to weights, too short to be of use: every step with the real trainers."""

from __future__ import annotations

import json
import os
import struct
import subprocess
from pathlib import Path
from typing import Any

import pytest

from sagemaker_local.paths import PACKAGE

pytestmark = pytest.mark.campaign
SHIPPED = PACKAGE / "weights"


@pytest.fixture(scope="module")
def work(root: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("tiny")
    words = ["--minutes", "0.3", "--sequences", "60", "--steps", "4", "--work", str(folder)]
    given = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    run = subprocess.run(
        [root / "scripts" / "train-tiny", *words], env=given, capture_output=True, text=True, timeout=1800
    )
    assert run.returncode == 0, run.stderr[-3000:]
    return folder


def header(weights: Path) -> dict[str, Any]:
    """Names, types and shapes of a head's own tensors in a file of safetensors.

    Embedding and output matrix are left out: a head has them only where they differ from the target's.
    """
    with weights.open("rb") as file:
        (size,) = struct.unpack("<Q", file.read(8))
        found: dict[str, Any] = json.loads(file.read(size))
    left_out = {"__metadata__", "embed_tokens.weight", "lm_head.weight"}
    return {name: (one["dtype"], one["shape"]) for name, one in found.items() if name not in left_out}


@pytest.mark.parametrize("part", ["target", "eagle3", "p-eagle"])
def test_the_family_has_the_shape_of_the_one_that_ships(work: Path, part: str) -> None:
    made, shipped = (each / part for each in (work / "weights", SHIPPED))
    assert json.loads((made / "config.json").read_text()) == json.loads((shipped / "config.json").read_text())
    assert header(made / "model.safetensors") == header(shipped / "model.safetensors")


def test_users_trainer_trained_the_p_eagle_head_and_the_card_says_so(work: Path) -> None:
    planted, trained = (work / part / "model.safetensors" for part in ("start", "weights/p-eagle"))
    assert header(planted) == header(trained)
    assert planted.read_bytes() != trained.read_bytes()
    assert "by NeMo AutoModel" in (work / "weights" / "p-eagle" / "README.md").read_text()
