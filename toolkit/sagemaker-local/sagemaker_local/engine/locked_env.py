"""A Python environment made from a lock file: built once into the cache, then reused by every checkout.

What clashes with the toolkit's own packages is in ``<cache>/<name>/<hash of lock and Python>``, built as the
engine's environment is: under a file lock, with a marker that says it was completed.
"""

import hashlib
from collections.abc import Callable
from pathlib import Path

from sagemaker_local.engine.build import Progress, install_lock
from sagemaker_local.engine.env import ensure_environment, python_name
from sagemaker_local.paths import cache_dir


def ensure_locked(
    name: str,
    lock: Path,
    price: str,
    progress: Progress,
    *,
    compiled: bool = False,
    finish: Callable[[Path], None] | None = None,
    cache: Path | None = None,
) -> Path:
    """Return the Python of the environment that ``lock`` lists, building it first where that is needed.

    Args:
        name: its folder in the cache.
        lock: taken as it is, hashes and all: dependencies that it does not list are not looked up.
        price: what a build costs, in time and space.
        progress: gets one sentence per step.
        compiled: as in `install_lock`.
        finish: gets the environment's folder before it counts as complete; an error leaves it incomplete.
        cache: this program's cache directory, by default the user's.

    Raises:
        EngineError: it cannot be built; the message ends with pip's last lines.
    """
    key = hashlib.sha256(lock.read_bytes() + python_name().encode()).hexdigest()[:16]
    home = (cache or cache_dir()) / name / key

    def build() -> None:
        progress(f"building the environment {name}: {price}, once")
        install_lock(home, lock, progress, compiled=compiled)
        if finish is not None:
            finish(home)

    return ensure_environment(home, build, progress)
