"""Print the Python of the trainer's environment (requirements/train-cpu.lock); build it if needed."""

from __future__ import annotations

import hashlib
import sys
from pathlib import Path

from sagemaker_local.engine.build import Progress, install_lock
from sagemaker_local.engine.env import ensure_environment, print_python
from sagemaker_local.paths import cache_dir

LOCK = Path(__file__).resolve().parents[2] / "requirements" / "train-cpu.lock"


def ensure_trainer(progress: Progress) -> Path:
    """Return the Python of the trainer's environment.

    Raises:
        EngineError: it cannot be built.
    """
    key = hashlib.sha256(LOCK.read_bytes() + sys.version.encode()).hexdigest()[:16]
    home = cache_dir() / "train" / key

    def build() -> None:
        progress("building the trainer's environment (torch and speculators for CPU): about a minute, once")
        install_lock(home, LOCK, progress)

    return ensure_environment(home, build, progress)


if __name__ == "__main__":
    raise SystemExit(print_python(ensure_trainer))
