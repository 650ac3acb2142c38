"""What the plugin peagle_cpu_fixes spares the local engine changes no token and no draft.

Two engines in one process of the engine's own Python; see cpu_fixes_check.py.
"""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from sagemaker_local.engine.env import ensure_engine
from sagemaker_local.paths import weights_dir
from tests.local.tiny_weights import write_family

pytestmark = [pytest.mark.engine, pytest.mark.slow, pytest.mark.campaign]

CHECK = Path(__file__).with_name("cpu_fixes_check.py")


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    weights = weights_dir()
    if not (weights / "p-eagle" / "model.safetensors").is_file():
        weights = tmp_path_factory.mktemp("weights")
        write_family(weights)
    python = ensure_engine(lambda line: print(line, file=sys.stderr))
    done = subprocess.run(
        [str(python), str(CHECK), str(weights)],
        env={"PATH": os.environ["PATH"], "HOME": str(tmp_path_factory.mktemp("home"))},
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


@pytest.mark.parametrize("head", ["p-eagle", "eagle3"])
def test_straight_layers_answer_and_draft_as_the_engines_own(report: dict[str, Any], head: str) -> None:
    assert report[head]["same tokens"]
    assert report[head]["same drafts"]
    assert report[head]["drafts"] > 0


@pytest.mark.parametrize("head", ["p-eagle", "eagle3"])
def test_every_layer_of_the_target_and_of_either_head_is_straight(report: dict[str, Any], head: str) -> None:
    assert report[head]["straight"] == report[head]["layers"]


@pytest.mark.parametrize("head", ["p-eagle", "eagle3"])
def test_rejected_drafts_do_not_enter_the_head(report: dict[str, Any], head: str) -> None:
    run = report[head]
    assert run["stock rows"]["in"] - run["rows"]["in"] == run["rejected"] > 0


@pytest.mark.parametrize(
    "kernel",
    ["top-k without drafts", "norms", "argmax", "slots", "products", "buffers", "first pass"],
)
def test_a_kernel_computes_what_the_one_it_replaces_does(report: dict[str, Any], kernel: str) -> None:
    assert report["kernels"][kernel]


@pytest.mark.parametrize("kernel", ["rows", "compiled rows"])
def test_a_row_of_packed_weights_is_the_same_in_any_company(report: dict[str, Any], kernel: str) -> None:
    assert report["kernels"][kernel] is (True if report["packs weights"] else None)
