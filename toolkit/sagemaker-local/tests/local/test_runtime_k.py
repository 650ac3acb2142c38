"""K by request in the real engine, for both heads (container/plugins/peagle_runtime_k).

Four engines in one process of the engine's own Python; see runtime_k_check.py.
"""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from sagemaker_local.engine.env import ensure_engine
from sagemaker_local.paths import cache_dir, weights_dir
from tests.local.tiny_weights import write_family

pytestmark = [pytest.mark.engine, pytest.mark.slow, pytest.mark.campaign]

CHECK = Path(__file__).with_name("runtime_k_check.py")


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    weights = weights_dir()
    if not (weights / "p-eagle" / "model.safetensors").is_file():
        weights = tmp_path_factory.mktemp("weights")
        write_family(weights)
    python = ensure_engine(lambda line: print(line, file=sys.stderr))
    done = subprocess.run(
        [str(python), str(CHECK), str(weights)],
        env={
            "PATH": os.environ["PATH"],
            "HOME": str(tmp_path_factory.mktemp("home")),
            # What vLLM knows of its models' classes; without it each check imports vLLM twice more.
            "VLLM_CACHE_ROOT": str(cache_dir() / "vllm" / python.parents[1].name),
        },
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    document: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return document


@pytest.mark.parametrize("head", ["p-eagle", "eagle3"])
def test_k_7_by_request_is_a_real_k_7(report: dict[str, Any], head: str) -> None:
    assert report[head]["real"]["vllm:spec_decode_num_drafts"] > 20
    assert report[head]["by request"] == report[head]["real"]
    assert report[head]["tokens"]


@pytest.mark.parametrize("head", ["p-eagle", "eagle3"])
def test_requests_of_different_k_share_a_batch_and_answer_as_the_target_does(
    report: dict[str, Any], head: str
) -> None:
    assert report[head]["mixture"]
    assert report[head]["none"]


@pytest.mark.parametrize("head", ["p-eagle", "eagle3"])
def test_a_k_that_cannot_be_had_is_refused_and_the_engine_goes_on(report: dict[str, Any], head: str) -> None:
    for message in report[head]["refused"]:
        assert "vllm_xargs.num_speculative_tokens: found" in message
        assert "allowed: 0 to 9" in message
    assert report[head]["afterwards"]
