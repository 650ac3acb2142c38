"""The SDK's JumpStart path, from `peagle-sm local up` to P-EAGLE's tokens out of the real engine."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from sagemaker_local.process.status import LocalStatus
from tests.sagemaker_sdk.conftest import Sdk

NAME = "by-model-builder"


@pytest.fixture
def status(tmp_path: Path) -> Iterator[LocalStatus]:
    """A local server with the real engine and a state of its own."""
    program = Path(sys.executable).with_name("peagle-sm")
    environ = {**os.environ, "XDG_STATE_HOME": str(tmp_path)}
    up = [str(program), "local", "up", "--detach", "--format", "json"]
    done = subprocess.run(up, env=environ, capture_output=True, text=True, timeout=300, check=True)
    yield LocalStatus.from_dict(json.loads(done.stdout))
    subprocess.run([program, "local", "down"], env=environ, capture_output=True, check=False)


@pytest.mark.campaign
@pytest.mark.engine
def test_model_builder_deploys_p_eagle_on_the_real_engine(sdk: Sdk, status: LocalStatus) -> None:
    metrics = f"{status.endpoint_url}/_peagle/endpoints/{NAME}/metrics"
    result = sdk("jumpstart", status, NAME=NAME, OURS="yes", PATIENT="yes", METRICS=metrics)
    assert result["status"] == "InService"
    answer = json.loads(result["answer"])
    assert answer["usage"]["completion_tokens"] == 8
    assert result["drafts"] > 0, "the engine drafted no tokens"
    assert result["stream"] == "AttributeError: 'EventStream' object has no attribute 'get'"
    assert result["ours"] == answer["choices"][0]["message"]["content"]
    assert result["left"]["endpoints"] == []
