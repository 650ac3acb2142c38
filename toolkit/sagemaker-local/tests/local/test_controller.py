"""The controller of K in the real engine: K changes often, and the answers stay the target's own.

Three engines in one process of the engine's own Python, see controller_check.py; on each local vLLM.
"""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from peagle_bench.benchmark.acceptance import read_k_use
from sagemaker_local.engine.env import engine_locks, ensure_engine
from sagemaker_local.paths import weights_dir
from tests.local.tiny_weights import write_family

pytestmark = [pytest.mark.engine, pytest.mark.slow, pytest.mark.campaign]

CHECK = Path(__file__).with_name("controller_check.py")


@pytest.fixture(scope="module", params=list(engine_locks()))
def report(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    weights = weights_dir()
    if not (weights / "p-eagle" / "model.safetensors").is_file():
        weights = tmp_path_factory.mktemp("weights")
        write_family(weights)
    python = ensure_engine(lambda line: print(line, file=sys.stderr), request.param)
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
def test_k_changes_and_the_answers_do_not(report: dict[str, Any], head: str) -> None:
    found = report[head]
    assert found["off"] == ""
    assert found["switches"] > 3
    assert len(found["ks"]) > 1
    assert found["same"]


def test_the_metrics_are_the_controllers(report: dict[str, Any]) -> None:
    """Of both engines, which share the registry of one process."""
    use = read_k_use("\n".join(report["eagle3"]["metrics"]))
    assert use is not None
    assert use.state == "following"
    assert use.switches == report["p-eagle"]["switches"] + report["eagle3"]["switches"]
    assert len(use.steps) > 1
