"""Make the ``canary.json`` of a shipped stand-in head: ``python -m scripts.lib.canary_profile``.

It starts the local engine on the shipped weights, without its own canary, and runs the container's
``peagle_gate.canary`` against it. Needed again whenever the head is trained again.
"""

import asyncio
import json
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from peagle_sm.core.catalog import SPECULATIVE_CONFIG
from peagle_sm.core.plan.environment import CHANNEL_MOUNT, MODEL_MOUNT
from sagemaker_local.engine.env import ensure_engine
from sagemaker_local.engine.launch import EngineLauncher, EngineRequest
from sagemaker_local.paths import container_dir, weights_dir

IMAGE = "vllm:cpu"
HEAD = "p-eagle"
#: As many positions as any spec of the stand-in asks for; a smaller K is compared over its own.
TOKENS = 12


async def profile_of_stand_in(weights: Path) -> str:
    """Return the text of the file.

    Raises:
        EngineError: the engine did not start.
        subprocess.CalledProcessError: it was not measured; what was wrong stands on stderr.
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
            command = [sys.executable, "-m", "peagle_gate.canary", engine.url]
            done = await asyncio.to_thread(
                subprocess.run, command, cwd=container_dir(), stdout=subprocess.PIPE, text=True, check=True
            )
        finally:
            await engine.stop()
    return str(done.stdout)


if __name__ == "__main__":
    text = asyncio.run(profile_of_stand_in(weights_dir()))
    (weights_dir() / HEAD / "canary.json").write_text(text, encoding="utf-8")
