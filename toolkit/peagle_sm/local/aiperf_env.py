"""AIPerf's own Python environment: built once from ``peagle_sm/aiperf/aiperf.lock``, then reused.

AIPerf brings 140 packages and 1 GB whose pins clash with the toolkit's, so it lies in
``<cache>/aiperf/<hash of lock and Python>``, built as the engine's environment is.

``python -m peagle_sm.local.aiperf_env`` builds it and prints the path of its Python.
"""

import hashlib
import os
import subprocess
import sys
import sysconfig
from collections import deque
from collections.abc import Callable
from pathlib import Path

from peagle_sm.core.errors import EngineError
from peagle_sm.local.engine_env import ensure_environment, print_python
from peagle_sm.local.paths import PACKAGE, cache_dir

Progress = Callable[[str], None]
LOCK = PACKAGE / "aiperf" / "aiperf.lock"
ENTRY_POINT = "peagle-sm = peagle_sm.aiperf:plugins.yaml"
_PLUGIN = "peagle_sm_plugin-0.dist-info"


def ensure_aiperf(progress: Progress, *, cache: Path | None = None) -> Path:
    """Return the Python of AIPerf's environment, building it first where that is needed.

    Building takes about two minutes, 1 GB of disk and the network; later calls need none of them.

    Raises:
        EngineError: it cannot be built; the message ends with pip's last lines.
    """
    python = f"{sys.version_info[:3]} {sysconfig.get_platform()} {os.path.realpath(sys.base_prefix)}"
    key = hashlib.sha256(LOCK.read_bytes() + python.encode()).hexdigest()[:16]
    home = (cache or cache_dir()) / "aiperf" / key
    return ensure_environment(home, lambda: _build(home, progress), progress)


def aiperf_version() -> str:
    """Return the version of AIPerf that the lock names, for example ``0.13.0``."""
    lines = LOCK.read_text(encoding="utf-8").splitlines()
    return next(line.removeprefix("aiperf==") for line in lines if line.startswith("aiperf=="))


def plugin_path(directory: Path) -> Path:
    """Make a folder for PYTHONPATH in which AIPerf finds this package and its transport; return it.

    Only this package, by a link: its own site-packages would put its dependencies before AIPerf's.
    """
    directory.mkdir(parents=True, exist_ok=True)
    link = directory / PACKAGE.name
    link.unlink(missing_ok=True)
    link.symlink_to(PACKAGE, target_is_directory=True)
    about = directory / _PLUGIN
    about.mkdir(exist_ok=True)
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: peagle-sm-plugin\nVersion: 0\n")
    (about / "entry_points.txt").write_text(f"[aiperf.plugins]\n{ENTRY_POINT}\n")
    return directory


def _build(home: Path, progress: Progress) -> None:
    progress("building AIPerf's environment: about two minutes and 1 GB, once")
    _run([sys.executable, "-m", "venv", str(home)])
    pip = [str(home / "bin" / "python"), "-m", "pip", "install", "--no-deps", "--no-input", "-q"]
    _run([*pip, "--disable-pip-version-check", "--requirement", str(LOCK)])


def _run(command: list[str]) -> None:
    """Run a step; what it prints is kept for the error alone."""
    done = subprocess.run(
        command, stdin=subprocess.DEVNULL, capture_output=True, text=True, errors="replace", check=False
    )
    if done.returncode:
        tail = "\n".join(deque((done.stdout + done.stderr).splitlines(), maxlen=12))
        raise EngineError(
            f"could not build AIPerf's environment (exit status {done.returncode}):\n{tail}",
            next_step="check the network, pip's configuration and that 1 GB is free, then try again",
        )


if __name__ == "__main__":
    raise SystemExit(print_python(ensure_aiperf))
