"""The real vLLM behind the local engine: what it reports, a start that it refuses, and how it ends.

With the shipped stand-in weights. Two starts of an engine, at once.
That its answers and its samples are the target's own is checked by `verify` in tests/e2e/test_measuring.py.
"""

import asyncio
import json
import os
import shutil
import signal
import sys
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import aiohttp
import pytest
import pytest_asyncio

from sagemaker_local.engine.env import ensure_engine
from sagemaker_local.engine.launch import EngineLauncher, EngineProcess, EngineRequest
from sagemaker_local.paths import weights_dir

pytestmark = [pytest.mark.engine, pytest.mark.slow, pytest.mark.asyncio(loop_scope="module")]

IMAGE = "123456789012.dkr.ecr.us-east-1.amazonaws.com/vllm:0.32.0-cpu"
HEAD = "/opt/ml/additional-model-data-sources/head"
P_EAGLE = {"model": HEAD, "method": "eagle3", "num_speculative_tokens": 5, "parallel_drafting": True}
SPECULATION = {
    "SM_VLLM_SPECULATIVE_CONFIG": json.dumps(P_EAGLE),
    "SM_VLLM_PER_REQUEST_SPEC_DECODE_METRICS": "summary",
}
STARTUP_S = 600


@dataclass
class Lab:
    """Starts engines."""

    root: Path
    launcher: EngineLauncher
    lines: list[str] = field(default_factory=list)

    async def launch(self, name: str, head: bool, **environment: str) -> EngineProcess:
        sources = [("/opt/ml/model", "target")] + ([(HEAD, "p-eagle")] if head else [])
        request = EngineRequest(name, IMAGE, environment, self.root / name, sources)
        return await self.launcher.launch(request, self.lines.append)

    async def healthy(self, name: str, head: bool, **environment: str) -> EngineProcess:
        engine = await self.launch(name, head, **environment)
        async with asyncio.timeout(STARTUP_S):
            while not await engine.ping():
                assert engine.exited is None, engine.last_words()
                await asyncio.sleep(0.2)
        return engine


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Lab:
    root = tmp_path_factory.mktemp("engines")

    async def fetch(uri: str, directory: Path) -> None:
        shutil.copytree(weights_dir() / uri, directory, dirs_exist_ok=True)

    python = ensure_engine(lambda line: print(line, file=sys.stderr))
    return Lab(root, EngineLauncher(python, fetch))


@dataclass
class Started:
    """An engine that serves, and one whose start vLLM refused."""

    speculative: EngineProcess
    refused: EngineProcess


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def started(lab: Lab) -> AsyncIterator[Started]:
    """Both come up at once: a start is mostly one thread that imports, and cores are two."""
    refused = await lab.launch("refused", head=False, SM_VLLM_PER_REQUEST_SPEC_DECODE_METRICS="summary")
    speculative = await lab.healthy("p-eagle", head=True, **SPECULATION)
    yield Started(speculative, refused)
    for engine in (speculative, refused):
        await engine.stop()
        assert engine.processes() == []


@pytest.fixture
def speculative(started: Started) -> EngineProcess:
    return started.speculative


async def test_each_answer_reports_its_acceptance(speculative: EngineProcess) -> None:
    request = {"prompt": "def total(values):\n    ", "max_tokens": 24, "temperature": 0, "ignore_eos": True}
    timeout = aiohttp.ClientTimeout(total=600)
    async with (
        aiohttp.ClientSession(timeout=timeout) as session,
        session.post(f"{speculative.url}/invocations", json=request) as response,
    ):
        answer: dict[str, Any] = await response.json()
    report = answer["metrics"]["speculative_decoding"]
    assert report["num_spec_tokens"] == 5
    assert len(report["acceptance_histogram"]) == 6
    assert sum(report["acceptance_histogram"]) == report["num_spec_steps"]
    assert report["mean_acceptance_length"] == pytest.approx(
        1 + report["num_accepted_draft_tokens"] / report["num_spec_steps"]
    )


async def test_it_was_healthy_only_after_its_head_had_met_its_own_profile(
    lab: Lab, speculative: EngineProcess
) -> None:
    (told,) = [line for line in lab.lines if "peagle_gate: canary:" in line]
    assert "canary: passed; " in told
    assert "against the head's own profile" in told


async def test_a_start_that_vllm_refuses_is_explained_in_its_own_words(started: Started) -> None:
    async with asyncio.timeout(STARTUP_S):
        assert await started.refused.wait() == 1
    assert "--per-request-spec-decode-metrics requires speculative decoding" in started.refused.last_words()
    assert started.refused.processes() == []


async def test_a_dead_engine_core_is_noticed_within_10_s(speculative: EngineProcess) -> None:
    assert speculative.exited is None, speculative.last_words()
    names = {pid: Path(f"/proc/{pid}/cmdline").read_text() for pid in speculative.processes()}
    cores = [pid for pid, name in names.items() if "EngineCore" in name]
    assert len(cores) == 1, names
    started = time.monotonic()
    os.kill(cores[0], signal.SIGKILL)
    async with asyncio.timeout(10):
        while await speculative.ping():
            await asyncio.sleep(0.1)
    print(f"noticed after {time.monotonic() - started:.1f} s")
    async with asyncio.timeout(30):
        await speculative.wait()
    assert speculative.processes() == []
    assert "EngineCore" in speculative.last_words()
