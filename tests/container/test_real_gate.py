"""The gate in the real vLLM: what the canary finds, the limits, and how it stops. One start of an engine.

The head is held to a profile that it cannot meet, so the canary has something to say. That the shipped head
meets its own is part of every other start of an engine: see test_engine_real.py of sagemaker-local.
"""

import asyncio
import json
import os
import shutil
import signal
import sys
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp
import pytest
import pytest_asyncio

from peagle_gate.canary import PROMPTS
from peagle_sm.core.catalog import SPECULATIVE_CONFIG
from peagle_sm.core.plan.environment import CHANNEL_MOUNT, MODEL_MOUNT
from sagemaker_local.engine.env import ensure_engine
from sagemaker_local.engine.launch import EngineLauncher, EngineProcess, EngineRequest
from sagemaker_local.paths import weights_dir

pytestmark = [pytest.mark.engine, pytest.mark.slow, pytest.mark.asyncio(loop_scope="module")]

HEAD = f"{CHANNEL_MOUNT}/head"
CONFIG = {"model": HEAD, "method": "eagle3", "num_speculative_tokens": 9, "parallel_drafting": True}
STARTUP_S = 600


@dataclass
class Started:
    """An engine, and a connection to it."""

    engine: EngineProcess
    session: aiohttp.ClientSession
    lines: list[str]

    async def ask(self, path: str, body: object = None) -> tuple[int, str]:
        method = "GET" if body is None else "POST"
        async with self.session.request(method, f"{self.engine.url}{path}", json=body) as answer:
            return answer.status, await answer.text()


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def started(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Started]:
    """Ready when the canary has said what it found."""

    async def fetch(uri: str, directory: Path) -> None:
        shutil.copytree(weights_dir() / uri, directory, dirs_exist_ok=True)
        if uri == "p-eagle":
            better = {"survival": [1.0] * 9, "prompts": list(PROMPTS)}
            (directory / "canary.json").write_text(json.dumps(better))

    lines: list[str] = []
    environment = {
        SPECULATIVE_CONFIG: json.dumps(CONFIG),
        "PEAGLE_GATE_CANARY_PROMPTS": "12",
        "PEAGLE_GATE_SAMPLE_S": "1",
        "PEAGLE_GATE_MAX_TOKENS": "500",
        "PEAGLE_GATE_NAMESPACE": "peagle-sm/real",
        "PEAGLE_GATE_SLICES": "format;label:team=search",
    }
    python = ensure_engine(lambda line: print(line, file=sys.stderr))
    request = EngineRequest(
        "gate",
        "vllm:0.32.0-cpu",
        environment,
        tmp_path_factory.mktemp("gate"),
        [(MODEL_MOUNT, "target"), (HEAD, "p-eagle")],
    )
    engine = await EngineLauncher(python, fetch).launch(request, lines.append)
    async with (
        aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=STARTUP_S)) as session,
        asyncio.timeout(STARTUP_S),
    ):
        while not any("canary:" in line for line in lines):
            assert engine.exited is None, engine.last_words()
            await asyncio.sleep(0.2)
        yield Started(engine, session, lines)
    await engine.stop()
    assert engine.processes() == []


async def test_a_head_that_misses_its_profile_is_told_and_never_healthy(started: Started) -> None:
    status, text = await started.ask("/ping")
    message = json.loads(text)["error"]["message"]
    assert status == 503
    assert message.startswith("unhealthy: the head misses its own profile: acceptance length ")
    assert message.endswith("on its canary prompts, 10.00 when it was made")
    assert any(message.removeprefix("unhealthy: ") in line for line in started.lines), "the log says it too"


async def test_the_limits_stand_before_the_engine(started: Started) -> None:
    status, text = await started.ask("/invocations", {"prompt": "def f(", "max_tokens": 4, "n": 200})
    assert (status, json.loads(text)["error"]["param"]) == (400, "n")
    status, _ = await started.ask("/pause", {})
    assert status == 404


async def test_traffic_is_told_in_embedded_metrics(started: Started) -> None:
    status, _ = await started.ask("/invocations", {"prompt": "def f(", "max_tokens": 16, "temperature": 0})
    assert status == 200
    # A request that runs while an interval ends is in two lines.
    async with asyncio.timeout(60):
        while True:
            rows = [json.loads(line) for line in started.lines if '"GeneratedTokens"' in line]
            if (tokens := sum(row["GeneratedTokens"] for row in rows)) >= 16:
                break
            await asyncio.sleep(0.1)
    assert tokens == 16
    assert {row["_aws"]["CloudWatchMetrics"][0]["Namespace"] for row in rows} == {"peagle-sm/real"}
    drafted = [row for row in rows if row["Drafts"] > 0]
    assert drafted
    assert all({"Survival1", "Survival2", "Survival3"} <= row.keys() for row in drafted)


@pytest.mark.parametrize("streamed", [False, True])
async def test_drafts_are_counted_by_slice_from_the_engines_own_report(
    started: Started, streamed: bool
) -> None:
    """A stream does not ask for its usage, is counted all the same, and shows none."""
    chat = {"messages": [{"role": "user", "content": "def f("}], "max_tokens": 24, "temperature": 0}
    seen = len(started.lines)
    async with started.session.post(
        f"{started.engine.url}/invocations",
        json={**chat, "ignore_eos": True, "stream": streamed},
        headers={"X-Amzn-SageMaker-Custom-Attributes": "trace=1;team=search"},
    ) as answer:
        text = await answer.text()
    assert answer.status == 200
    assert ('"usage":{' in text) == (not streamed)
    # The slice's own line is the last of an interval.
    async with asyncio.timeout(60):
        while not (slices := [line for line in started.lines[seen:] if '"SliceDrafts"' in line]):
            await asyncio.sleep(0.1)
    (counted,) = [line for line in started.lines[seen:] if '"counts"' in line and "search" in line]
    document: dict[str, Any] = json.loads(counted)
    (row,) = [row for row in document["counts"] if row[0] == ["text", "search"]]
    _, k, requests, drafts, accepted, *_ = row
    assert (k, requests) == (9, 1)
    assert drafts + accepted >= 22  # the first token comes without a draft; the last draft may be cut
    of_slice = json.loads(slices[0])
    assert of_slice["Slice"] == "label:team: search"
    assert of_slice["SliceDrafts"] == drafts


@pytest.mark.parametrize("path", ["/invocations", "/v1/chat/completions"])
@pytest.mark.parametrize("absent", [{}, {"max_tokens": None, "max_completion_tokens": None}])
async def test_a_chat_without_max_tokens_ends_at_the_limit(
    started: Started, path: str, absent: dict[str, None]
) -> None:
    chat = {"messages": [{"role": "user", "content": "def f("}], "n": 2, "ignore_eos": True, **absent}
    status, text = await started.ask(path, chat)
    assert status == 200, text
    assert json.loads(text)["usage"]["completion_tokens"] == 2 * 500


async def test_a_stream_without_max_tokens_ends_at_the_limit(started: Started) -> None:
    chat = {"messages": [{"role": "user", "content": "def f("}], "ignore_eos": True, "stream": True}
    status, text = await started.ask("/invocations", {**chat, "stream_options": {"include_usage": True}})
    assert status == 200, text
    assert json.loads(text.split("data: ")[-2])["usage"]["completion_tokens"] == 500


async def test_a_completion_without_max_tokens_has_vllms_16(started: Started) -> None:
    status, text = await started.ask("/invocations", {"prompt": "def f(", "ignore_eos": True})
    assert status == 200, text
    assert json.loads(text)["usage"]["completion_tokens"] == 16


async def test_sigterm_lets_a_stream_finish_and_takes_nothing_new(started: Started) -> None:
    body = {"prompt": "def f(", "max_tokens": 500, "temperature": 0, "ignore_eos": True, "stream": True}
    url = f"{started.engine.url}/invocations"
    async with started.session.post(url, json=body) as stream:
        first = await stream.content.readline()
        assert first.startswith(b"data: ")
        for pid in started.engine.processes():
            if _serves(pid):
                os.kill(pid, signal.SIGTERM)  # as SageMaker does: the container's first process, no other
        # Until it has taken the signal, and no longer: on a fast machine the stream ends within a second.
        while "SIGTERM" not in (ping := await started.ask("/ping"))[1]:
            await asyncio.sleep(0.01)
        assert ping[0] == 503
        status, text = await started.ask("/invocations", {"prompt": "x", "max_tokens": 1})
        assert (status, "SIGTERM" in text) == (503, True)
        rest = await stream.content.read()
    assert rest.rstrip().endswith(b"data: [DONE]")
    async with asyncio.timeout(60):
        assert await started.engine.wait() == 0


def _serves(pid: int) -> bool:
    return b"vllm.entrypoints.openai.api_server" in Path(f"/proc/{pid}/cmdline").read_bytes()
