"""A spec with a table of K by batch size, in the real engine and for both heads.

Three engines in one process of the engine's own Python, see k_table_check.py; each K of the table is decided
where the spec says so, and the answers stay the target's own. Then one engine behind container/serve and its
gate, with further settings of the spec.
"""

import asyncio
import json
import shutil
import sys
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from peagle_sm.core.catalog import load_catalog
from peagle_sm.core.plan.environment import environment
from peagle_sm.core.plan.resolve import resolve
from sagemaker_local.engine.env import ensure_engine
from sagemaker_local.engine.launch import EngineLauncher, EngineRequest
from sagemaker_local.paths import weights_dir
from tests.core.support import LOCAL, TINY, spec_of
from tests.local.engine_program import run_in_engine

pytestmark = [pytest.mark.engine, pytest.mark.slow, pytest.mark.campaign]

SIZES = {1: 7, 3: 3, 6: 0}  #: numbers of requests, and the K of each
TABLE = "num_speculative_tokens: 7, num_speculative_tokens_per_batch_size: [[1, 2, 7], [3, 4, 3], [5, 8, 0]]"
MODES = {
    "none": "speculation: {mode: none}",
    "eagle3": f"speculation: {{mode: eagle3, draft_head: tiny-code-eagle3, {TABLE}}}",
    "p-eagle": f"speculation: {{mode: p-eagle, {TABLE}}}",
}
STARTUP_S = 600


def variables(extra: str) -> dict[str, str]:
    return environment(resolve(spec_of(TINY, extra), LOCAL, load_catalog()))


def case(mode: str) -> str:
    """One line for the check: what the engine would get of this spec."""
    result = variables(MODES[mode])
    config = json.loads(result.get("SM_VLLM_SPECULATIVE_CONFIG", "{}"))
    return json.dumps(
        {
            "head": mode,
            "speculative": config,
            "runtime_k": result.get("PEAGLE_SM_RUNTIME_K", ""),
            "sizes": list(SIZES),
        }
    )


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    home, cases = tmp_path_factory.mktemp("home"), "\n".join(case(mode) for mode in MODES)
    text = run_in_engine(home, "-m", "tests.local.k_table_check", weights_dir(), stdin=cases)
    document: list[dict[str, Any]] = json.loads(text)
    return dict(zip(MODES, document, strict=True))


@pytest.mark.parametrize("mode", ["eagle3", "p-eagle"])
def test_each_number_of_requests_gets_the_k_of_its_row(report: dict[str, Any], mode: str) -> None:
    for size, k in SIZES.items():
        result = report[mode][str(size)]
        assert result["ks"] == [k], (size, result)
        assert (result["drafts"] > 0) == (k > 0)
    assert report[mode]["1"]["drafted"] == 7 * report[mode]["1"]["drafts"]


@pytest.mark.parametrize("mode", ["eagle3", "p-eagle"])
def test_the_answers_are_those_without_speculation(report: dict[str, Any], mode: str) -> None:
    for size in map(str, SIZES):
        assert report[mode][size]["tokens"] == report["none"][size]["tokens"], size


SETTINGS = (
    f"speculation: {{mode: p-eagle, {TABLE}, draft_sample_method: probabilistic}}\n"
    "serving: {extra_args: {stream_interval: 4, compilation_config: {cudagraph_mode: PIECEWISE}, "
    "max_num_seqs: 8, enable_prefix_caching: false}}"
)


async def test_the_server_behind_the_gate_takes_all_settings(tmp_path: Path) -> None:
    """The canary sends two requests at once, the first row of the table, and passes."""
    lines: list[str] = []

    async def fetch(uri: str, directory: Path) -> None:
        shutil.copytree(weights_dir() / uri, directory, dirs_exist_ok=True)

    python = ensure_engine(lambda line: print(line, file=sys.stderr))
    result = variables(SETTINGS)
    head = json.loads(result["SM_VLLM_SPECULATIVE_CONFIG"])["model"]
    sources = [("/opt/ml/model", "target"), (head, "p-eagle")]
    image = LOCAL.image_uris["vllm-cpu"]
    request = EngineRequest("table", image, result, tmp_path / "engine", sources)
    engine = await EngineLauncher(python, fetch).launch(request, lines.append)
    try:
        async with asyncio.timeout(STARTUP_S):
            while not await engine.ping():
                assert engine.exited is None, engine.last_words()
                await asyncio.sleep(0.2)
        body = {"prompt": "def total(values):\n    ", "max_tokens": 24, "temperature": 1, "ignore_eos": True}
        async with (
            aiohttp.ClientSession() as session,
            session.post(f"{engine.url}/invocations", json=body) as response,
        ):
            answer: dict[str, Any] = await response.json()
    finally:
        await engine.stop()
    assert answer["usage"]["completion_tokens"] == 24
    assert answer["metrics"]["speculative_decoding"]["num_spec_tokens"] == 7
    (canary,) = [line for line in lines if "peagle_gate: canary:" in line]
    assert "canary: passed; " in canary
    (told,) = [line for line in lines if "vLLM server arguments" in line]
    for argument in (
        "--no-enable-prefix-caching",
        "'--stream-interval', '4'",
        '{"cudagraph_mode":"PIECEWISE"}',
    ):
        assert argument in told
