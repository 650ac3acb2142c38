"""A Python environment made from a lock file: built once into the cache, then reused by every checkout.

What clashes with the toolkit's own packages lies in ``<cache>/<name>/<hash of lock and Python>``, built as
the engine's environment is: under a file lock, with a marker that says it was completed.
"""

import hashlib
import os
import subprocess
import sys
import sysconfig
from collections import deque
from collections.abc import Callable
from pathlib import Path

from sagemaker_local.engine.env import ensure_environment
from sagemaker_local.engine.installer import install
from sagemaker_local.errors import EngineError
from sagemaker_local.paths import cache_dir

Progress = Callable[[str], None]


def ensure_locked(
    name: str, lock: Path, price: str, progress: Progress, *, cache: Path | None = None
) -> Path:
    """Return the Python of the environment that ``lock`` lists, building it first where that is needed.

    ``name`` is its folder in the cache; ``price`` says what a build costs, in time and space. The lock is
    taken as it stands, hashes and all: what its packages would like to have beside them is not looked up.

    Raises:
        EngineError: it cannot be built; the message ends with pip's last lines.
    """
    python = f"{sys.version_info[:3]} {sysconfig.get_platform()} {os.path.realpath(sys.base_prefix)}"
    key = hashlib.sha256(lock.read_bytes() + python.encode()).hexdigest()[:16]
    home = (cache or cache_dir()) / name / key
    return ensure_environment(home, lambda: _build(home, name, lock, price, progress), progress)


def _build(home: Path, name: str, lock: Path, price: str, progress: Progress) -> None:
    progress(f"building the environment {name}: {price}, once")
    _run([sys.executable, "-m", "venv", str(home)], name, price)
    python = home / "bin" / "python"
    if install(python, lock, progress):
        return
    pip = [str(python), "-m", "pip", "install", "--no-deps", "--no-input", "-q"]
    # What is never imported need not be compiled: that is most of the time an install takes.
    pip += ["--require-hashes", "--no-compile"]
    _run([*pip, "--disable-pip-version-check", "--requirement", str(lock)], name, price)


def _run(command: list[str], name: str, price: str) -> None:
    """Run a step; its output is only used in an error."""
    done = subprocess.run(
        command, stdin=subprocess.DEVNULL, capture_output=True, text=True, errors="replace", check=False
    )
    if done.returncode:
        tail = "\n".join(deque((done.stdout + done.stderr).splitlines(), maxlen=12))
        raise EngineError(
            f"could not build the environment {name} (exit status {done.returncode}):\n{tail}",
            next_step=f"check the network, pip's configuration and the free space ({price}), then try again",
        )
