"""A Python environment made from a lock file: built once into the cache, then reused by every checkout.

What clashes with the toolkit's own packages is in ``<cache>/<name>/<hash of lock and Python>``, built as the
engine's environment is: under a file lock, with a marker that says it was completed.
"""

import hashlib
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path

from sagemaker_local.engine.build import Progress, install_lock
from sagemaker_local.engine.env import ensure_environment, python_name
from sagemaker_local.errors import EngineError
from sagemaker_local.paths import cache_dir


def ensure_locked(
    name: str,
    lock: Path,
    price: str,
    progress: Progress,
    *,
    compiled: bool = False,
    finish: Callable[[Path], None] | None = None,
    sources: Sequence[Path] = (),
    needs_bytes: int = 0,
    cache: Path | None = None,
) -> Path:
    """Return the Python of the environment that ``lock`` lists, building it first where that is needed.

    A build that fails leaves nothing.

    Args:
        name: its folder in the cache.
        lock: taken as it is, hashes and all: dependencies that it does not list are not looked up.
        price: what a build costs, in time and space.
        progress: gets one sentence per step.
        compiled: as in `install_lock`.
        finish: gets the environment's folder before it counts as complete.
        sources: the files that ``finish`` runs; if one changes, another environment is built.
        needs_bytes: free space that a build needs.
        cache: this program's cache directory, by default the user's.

    Raises:
        EngineError: it cannot be built; the message ends with pip's last lines. Or the disk is full.
    """
    parts = [lock.read_bytes(), python_name().encode(), *(source.read_bytes() for source in sources)]
    home = (cache or cache_dir()) / name / hashlib.sha256(b"".join(parts)).hexdigest()[:16]

    def build() -> None:
        free = shutil.disk_usage(home.parent).free
        if free < needs_bytes:
            raise EngineError(
                f"the disk of {home.parent} has {free / 1e6:.0f} MB free; needed: {needs_bytes / 1e6:.0f} MB",
                next_step="Free some space, or set XDG_CACHE_HOME to a folder on a larger disk.",
            )
        progress(f"building the environment {name}: {price}, once")
        try:
            install_lock(home, lock, progress, compiled=compiled)
            if finish is not None:
                finish(home)
        except BaseException:
            shutil.rmtree(home, ignore_errors=True)
            raise

    return ensure_environment(home, build, progress)
