"""Cost of counting by slice in the gate: OTPS with it over OTPS without, in turns on two engines.

    python -m scripts.bench.gate_slices [--pairs 24]

Two engines with the small P-EAGLE serve the same streams, one engine at a time; only one has metrics.slices.
A pair is one block of each, in turns (ABBA); blocks are short, since the machine's speed drifts. The interval
is Student's t over the logarithms of the pairs' ratios. Nothing else should run on the machine; the load
average is printed.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import math
import os
import shutil
import statistics
import sys
import tempfile
import time
from pathlib import Path

import aiohttp

from peagle_bench.compare.confidence_intervals import t_quantile
from peagle_bench.workloads.public_datasets import human_eval_file, read_human_eval
from sagemaker_local.engine.env import ensure_engine
from sagemaker_local.engine.launch import EngineLauncher, EngineProcess, EngineRequest
from sagemaker_local.paths import weights_dir

HEAD = "/opt/ml/additional-model-data-sources/head"
CONFIG = {"model": HEAD, "method": "eagle3", "num_speculative_tokens": 7, "parallel_drafting": True}
SLICES = "script;format=text,json schema;prompt tokens;label:team=search,support"
TOKENS = 64
#: Requests of a block, by concurrency: 0.3 and some 4 seconds.
REQUESTS = {1: 2, 32: 48}
#: Pairs, by concurrency, for each that the command asks for.
TIMES = {1: 4, 32: 1}


async def block(url: str, concurrency: int, prompts: list[str]) -> float:
    """OTPS of one block of streams."""
    turns = asyncio.Semaphore(concurrency)

    async def one(client: aiohttp.ClientSession, prompt: str) -> None:
        body = {"prompt": prompt, "max_tokens": TOKENS, "temperature": 0, "ignore_eos": True, "stream": True}
        labels = {"X-Amzn-SageMaker-Custom-Attributes": "team=search"}
        async with turns, client.post(f"{url}/invocations", json=body, headers=labels) as answer:
            content = await answer.read()
            assert answer.status == 200, content[:300]
            assert content.endswith(b"data: [DONE]\n\n")

    connector = aiohttp.TCPConnector(limit=0)
    async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=600), connector=connector) as client:
        began = time.monotonic()
        await asyncio.gather(*(one(client, prompt) for prompt in prompts))
        return len(prompts) * TOKENS / (time.monotonic() - began)


async def measure(engines: dict[str, str], pairs: int) -> None:
    """Print the ratio at each concurrency."""
    prompts = [prompt.text for prompt in read_human_eval(human_eval_file())]
    for concurrency, count in REQUESTS.items():
        for url in engines.values():
            await block(url, concurrency, prompts[: min(count, 32)])
        ratios, plain = [], []
        for pair in range(pairs * TIMES[concurrency]):
            chosen = [prompts[(pair * count + place) % len(prompts)] for place in range(count)]
            order = ("plain", "slices") if pair % 2 == 0 else ("slices", "plain")
            otps = {name: await block(engines[name], concurrency, chosen) for name in order}
            ratios.append(math.log(otps["slices"] / otps["plain"]))
            plain.append(otps["plain"])
        mean, error = statistics.fmean(ratios), statistics.stdev(ratios) / math.sqrt(len(ratios))
        half = t_quantile(len(ratios) - 1) * error
        low, value, high = (math.exp(mean + shift) for shift in (-half, 0.0, half))
        print(
            f"c={concurrency}: {value:.4f} [{low:.4f}, {high:.4f}] of {statistics.fmean(plain):.0f} OTPS, "
            f"{len(ratios)} pairs of {count} streams of {TOKENS} tokens; load {os.getloadavg()[0]:.1f}",
            flush=True,
        )


async def main(pairs: int) -> None:
    """Start both engines and measure."""

    async def fetch(uri: str, directory: Path) -> None:
        shutil.copytree(weights_dir() / uri, directory, dirs_exist_ok=True)

    python = ensure_engine(lambda line: print(line, file=sys.stderr))
    running: dict[str, EngineProcess] = {}
    with tempfile.TemporaryDirectory() as root:
        try:
            for name in ("plain", "slices"):
                environment = {
                    "SM_VLLM_SPECULATIVE_CONFIG": json.dumps(CONFIG),
                    "PEAGLE_GATE_NAMESPACE": "peagle-sm/bench",
                    "PEAGLE_GATE_CANARY_PROMPTS": "0",
                    "PEAGLE_GATE_SAMPLE_S": "5",
                }
                if name == "slices":
                    environment["PEAGLE_GATE_SLICES"] = SLICES
                sources = [("/opt/ml/model", "target"), (HEAD, "p-eagle")]
                request = EngineRequest(name, "vllm:0.32.0-cpu", environment, Path(root) / name, sources)
                running[name] = await EngineLauncher(python, fetch).launch(request, lambda _: None)
            for engine in running.values():
                while not await engine.ping():
                    assert engine.exited is None, engine.last_words()
                    await asyncio.sleep(0.3)
            await measure({name: engine.url for name, engine in running.items()}, pairs)
        finally:
            for engine in running.values():
                await engine.stop()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pairs", type=int, default=24)
    asyncio.run(main(parser.parse_args().pairs))
