"""`scripts/train-tiny` from nothing to weights, too short to be of use: every step with the real trainers."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest

from peagle_sm.core.heads.reading import read_header
from peagle_sm.core.heads.weights import Shape
from peagle_sm.service.heads.checking import local_folder
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


def tensors(part: Path) -> dict[str, tuple[str, Shape]]:
    """Types and shapes of a part's own tensors.

    Embedding and output matrix of a head are left out: it has them only where they differ from the target's.
    """
    header = read_header(local_folder(part), "model.safetensors")
    left_out = () if part.name == "target" else ("embed_tokens.weight", "lm_head.weight")
    return {name: (one.dtype, one.shape) for name, one in header.items() if name not in left_out}


@pytest.mark.parametrize("part", ["target", "eagle3", "p-eagle"])
def test_the_family_has_the_shape_of_the_one_that_ships(work: Path, part: str) -> None:
    made, shipped = (each / part for each in (work / "weights", SHIPPED))
    assert json.loads((made / "config.json").read_text()) == json.loads((shipped / "config.json").read_text())
    assert tensors(made) == tensors(shipped)


def test_users_trainer_trained_the_p_eagle_head_and_the_card_says_so(work: Path) -> None:
    planted, trained = work / "start", work / "weights" / "p-eagle"
    assert tensors(planted) == tensors(trained)
    before, after = ((part / "model.safetensors").read_bytes() for part in (planted, trained))
    assert before != after
    assert "by NeMo AutoModel" in (trained / "README.md").read_text()
