"""Prints the Python of the trainer's environment (requirements/train-cpu.lock), building it where needed."""

from __future__ import annotations

import hashlib
import sys
from pathlib import Path

from peagle_sm.core.errors import EngineError
from peagle_sm.local.engine_build import install_lock
from peagle_sm.local.engine_env import ensure_environment
from peagle_sm.local.paths import cache_dir

LOCK = Path(__file__).resolve().parents[2] / "requirements" / "train-cpu.lock"


def main() -> int:
    """The command: returns its exit code."""
    key = hashlib.sha256(LOCK.read_bytes() + sys.version.encode()).hexdigest()[:16]
    home = cache_dir() / "train" / key

    def say(line: str) -> None:
        print(line, file=sys.stderr, flush=True)

    def build() -> None:
        say("building the trainer's environment (torch and speculators for CPU): about two minutes, once")
        install_lock(home, LOCK, say)

    try:
        print(ensure_environment(home, build, say))
    except EngineError as error:
        print(f"error: {error}\nnext: {error.next_step}", file=sys.stderr)
        return error.exit_code
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
