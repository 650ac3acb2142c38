"""Make a head's ``canary.json``: ``PYTHONPATH=container python -m scripts.lib.canary_profile [URL]``.

With the URL of an engine that runs the head in a good configuration and serves no other requests, it prints
the file. Without one it starts the local engine on the P-EAGLE head of the tests' small model, and writes the
file beside that head.
"""

from __future__ import annotations

import asyncio
import json
import shutil
import sys
import tempfile
import urllib.error
import urllib.request
from pathlib import Path

from peagle_gate.canary import PROMPTS, CanaryError, look
from peagle_gate.ineffective import DRAFTS_NEEDED
from peagle_sm.core.catalog import SPECULATIVE_CONFIG
from peagle_sm.core.plan.environment import CHANNEL_MOUNT, MODEL_MOUNT
from sagemaker_local.engine.env import ensure_engine
from sagemaker_local.engine.launch import EngineLauncher, EngineRequest
from sagemaker_local.paths import weights_dir

IMAGE, HEAD, TOKENS_EACH = "vllm:cpu", "p-eagle", 128
#: As many positions as any spec of that model asks for; a smaller K is compared over its own.
TOKENS = 12


async def measure(url: str) -> str:
    """Return the text of a ``canary.json``.

    Raises:
        CanaryError: the engine did not answer, or there were too few drafts.
    """

    def send(method: str, path: str, body: object) -> tuple[int, bytes]:
        data = None if body is None else json.dumps(body).encode()
        headers = {"Content-Type": "application/json"}
        request = urllib.request.Request(url.rstrip("/") + path, data, headers, method=method)
        try:
            with urllib.request.urlopen(request, timeout=600) as answer:
                return answer.status, answer.read()
        except urllib.error.HTTPError as error:
            return error.code, error.read()
        except OSError as error:
            raise CanaryError(f"{url} does not answer: {error}") from error

    async def ask(method: str, path: str, body: object) -> tuple[int, bytes]:
        return await asyncio.to_thread(send, method, path, body)

    counts = await look(ask, PROMPTS, TOKENS_EACH, at_once=8)
    if counts.drafts < DRAFTS_NEEDED:
        raise CanaryError(f"{counts.drafts} drafts, and {DRAFTS_NEEDED} are needed: is speculation on?")
    survival = [round(rate, 4) for rate in counts.survival]
    document = {
        "drafts": counts.drafts,
        "tokens_each": TOKENS_EACH,
        "survival": survival,
        "prompts": list(PROMPTS),
    }
    return json.dumps(document, indent=1, ensure_ascii=False) + "\n"


async def profile_of_stand_in(weights: Path) -> str:
    """Return the text of the shipped head's file.

    Raises:
        EngineError: the engine did not start.
        CanaryError: see `measure`.
    """

    async def fetch(uri: str, directory: Path) -> None:
        shutil.copytree(weights / uri, directory, dirs_exist_ok=True)

    head = f"{CHANNEL_MOUNT}/eagle"
    config = {
        "model": head,
        "method": "eagle3",
        "num_speculative_tokens": TOKENS,
        "parallel_drafting": True,
    }
    environment = {SPECULATIVE_CONFIG: json.dumps(config), "PEAGLE_GATE_CANARY_PROMPTS": "0"}
    python = await asyncio.to_thread(ensure_engine, lambda line: print(line, file=sys.stderr))
    with tempfile.TemporaryDirectory(prefix="peagle-canary-") as folder:
        sources = [(MODEL_MOUNT, "target"), (head, HEAD)]
        request = EngineRequest("canary", IMAGE, environment, Path(folder), sources)
        engine = await EngineLauncher(python, fetch).launch(request, lambda line: None)
        try:
            while not await engine.ping():
                if engine.exited is not None:
                    raise SystemExit(f"the engine ended: {engine.last_words()}")
                await asyncio.sleep(0.2)
            return await measure(engine.url)
        finally:
            await engine.stop()


if __name__ == "__main__":
    if sys.argv[1:]:
        print(asyncio.run(measure(sys.argv[1])), end="")
    else:
        text = asyncio.run(profile_of_stand_in(weights_dir()))
        (weights_dir() / HEAD / "canary.json").write_text(text, encoding="utf-8")
