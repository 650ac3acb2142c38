"""A program of a test in the engine's own Python, where vLLM is installed."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from sagemaker_local.engine.env import ensure_engine
from sagemaker_local.paths import cache_dir


def run_in_engine(home: Path, *arguments: str | Path, stdin: str = "", codes: Sequence[int] = (0,)) -> str:
    """Run it with the gate and the tests on its path; return the last line that it printed."""
    python = ensure_engine(lambda line: print(line, file=sys.stderr))
    root = Path(__file__).parents[4]
    done = subprocess.run(
        [str(python), *map(str, arguments)],
        input=stdin,
        cwd=root,
        env={
            "PATH": os.environ["PATH"],
            "HOME": str(home),
            "HF_HUB_OFFLINE": "1",
            # What vLLM knows of its models' classes; without it each program imports vLLM twice more.
            "VLLM_CACHE_ROOT": str(cache_dir() / "vllm" / python.parents[1].name),
            "PYTHONPATH": f"{root}/container:{root}/toolkit/sagemaker-local",
        },
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert done.returncode in codes, done.stderr[-3000:]
    return done.stdout.splitlines()[-1]
