"""Build .venv, the toolkit's environment, from requirements/toolkit.lock. Standard library only.

It runs before anything is installed, so of the project it imports only what needs nothing. Done twice, the
second run does nothing and needs no network: a stamp in .venv says what the environment was built from. uv
keeps the packages in the user's cache, so a second checkout needs no network either.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "toolkit" / "sagemaker-local"))
from sagemaker_local.engine import installer  # noqa: E402
from sagemaker_local.paths import cache_dir  # noqa: E402

LOCK = ROOT / "requirements" / "toolkit.lock"
VENV = ROOT / ".venv"
STAMP = VENV / "peagle-sm-stamp"
PACKAGES = sorted(path.parent for path in (ROOT / "toolkit").glob("*/pyproject.toml"))


def stamp() -> str:
    """Return a stamp of the environment's inputs; another value means that it must be rebuilt."""
    parts = [
        hashlib.sha256(LOCK.read_bytes()).hexdigest(),
        *((package / "pyproject.toml").read_text(encoding="utf-8") for package in PACKAGES),
        sys.version,
        str(ROOT),
    ]
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()


def run(*command: str | Path) -> None:
    """Run a command with its output; end this program with advice if the command fails."""
    done = subprocess.run([str(part) for part in command], stdout=sys.stderr, check=False)
    if done.returncode != 0:
        sys.exit(
            f"Building .venv failed: {' '.join(map(str, command))} ended with {done.returncode}.\n"
            "The first run needs a package index (pip's own settings are used). Fix the cause above "
            "and run this again."
        )


def say(message: str) -> None:
    """Print a line of progress on stderr."""
    print(message, file=sys.stderr, flush=True)


def tell(message: str) -> None:
    """Print a step of the installer, below the line of its task."""
    say(f"    {message}")


@contextlib.contextmanager
def held(lock_file: Path) -> Iterator[None]:
    """Hold a lock between processes, so that two scripts do not build one environment at once."""
    lock_file.parent.mkdir(parents=True, exist_ok=True)
    with lock_file.open("w") as handle:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            say(f"Waiting for another process, which builds {VENV} (lock: {lock_file})")
            fcntl.flock(handle, fcntl.LOCK_EX)
        yield


def is_built() -> bool:
    """Return whether .venv was built from these inputs."""
    return STAMP.is_file() and STAMP.read_text(encoding="utf-8") == stamp()


def python_of(venv: Path) -> str | None:
    """Return the version of an environment's Python; None without a working one."""
    try:
        command = [str(venv / "bin" / "python"), "-c", "import sys, pip; print(sys.version)"]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return None


def build(python: str) -> None:
    """Install exactly the lock's versions and the checkout's packages (editable) into .venv."""
    if python_of(VENV) != sys.version:
        shutil.rmtree(VENV, ignore_errors=True)
        run(python, "-m", "venv", VENV)
    STAMP.unlink(missing_ok=True)
    inside = VENV / "bin" / "python"
    pip = (inside, "-m", "pip", "--disable-pip-version-check", "install", "-qq", "--no-deps", "--no-compile")
    say(f"  installing the packages of {LOCK.relative_to(ROOT)}")
    # Each file has a hash in the lock; uv refuses another, and so does pip.
    if not installer.install(inside, LOCK, tell):
        run(*pip, "--require-hashes", "-r", LOCK)
    say("  compiling them")
    installer.compile_packages(inside)
    if not installer.install_editable(inside, PACKAGES, tell):
        run(*pip, "--no-build-isolation", *(part for package in PACKAGES for part in ("-e", package)))
    STAMP.write_text(stamp(), encoding="utf-8")


def main() -> None:
    """Build .venv if it is missing or was built from other inputs."""
    if is_built():
        return
    # A lock for each checkout: what another one builds is no reason to wait.
    with held(cache_dir() / "venv-locks" / hashlib.sha256(str(ROOT).encode()).hexdigest()[:16]):
        if is_built():
            return
        started = time.monotonic()
        say(f"Building .venv with Python {sys.version.split()[0]} (once; later runs skip this)")
        build(sys.executable)
        say(f"  .venv is ready, {time.monotonic() - started:.0f} s")


if __name__ == "__main__":
    main()
