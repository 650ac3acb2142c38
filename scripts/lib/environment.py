"""Builds .venv, the toolkit's environment, from requirements/toolkit.lock. Standard library only.

It runs before anything is installed, so it imports nothing of the project. Done twice, the second run does
nothing and needs no network: a stamp in .venv says what the environment was built from. The wheels are kept
in the user's cache, so a second checkout, or a test that needs an empty environment, needs no network either.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
import tomllib
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
LOCK = ROOT / "requirements" / "toolkit.lock"
VENV = ROOT / ".venv"
STAMP = VENV / "peagle-sm-stamp"
STORED = "wheels.lock"


def cache_dir() -> Path:
    """The project's folder in the user's cache: $XDG_CACHE_HOME/peagle-sm, by default ~/.cache/peagle-sm."""
    home = os.environ.get("XDG_CACHE_HOME")
    return (Path(home) if home else Path.home() / ".cache") / "peagle-sm"


def wheelhouse(lock: Path = LOCK, cache: Path | None = None) -> Path:
    """Where the wheels of this lock and this Python are kept, whether or not they are there yet."""
    key = hashlib.sha256(lock.read_bytes())
    key.update(f"{sys.implementation.cache_tag} {sys.platform} {os.uname().machine}".encode())
    return (cache or cache_dir()) / "wheels" / key.hexdigest()[:16]


def stamp() -> str:
    """What the environment is built from; another value means that it must be built again."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    parts = [
        hashlib.sha256(LOCK.read_bytes()).hexdigest(),
        # Not the whole file: a change to the linter's settings installs nothing.
        json.dumps([project["build-system"], project["project"], project["tool"]["hatch"]], sort_keys=True),
        sys.version,
        str(ROOT),
    ]
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()


def run(*command: str | Path) -> None:
    """Runs a command and passes its output on; ends this program with advice when the command fails."""
    done = subprocess.run([str(part) for part in command], stdout=sys.stderr, check=False)
    if done.returncode != 0:
        sys.exit(
            f"Building .venv failed: {' '.join(map(str, command))} ended with {done.returncode}.\n"
            "The first run needs a package index (pip's own settings are used). Mend what is named above "
            "and run this again."
        )


def say(message: str) -> None:
    """A line of progress on stderr."""
    print(message, file=sys.stderr, flush=True)


@contextlib.contextmanager
def held(lock_file: Path) -> Iterator[None]:
    """Holds a lock between processes, so that two scripts do not build one environment at once."""
    lock_file.parent.mkdir(parents=True, exist_ok=True)
    with lock_file.open("w") as handle:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield


def python_of(venv: Path) -> str | None:
    """The version string of an environment's Python, None when there is no working one."""
    try:
        command = [str(venv / "bin" / "python"), "-c", "import sys, pip; print(sys.version)"]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return None


def stored(wheels: Path) -> str:
    """The wheels of a folder as pins with their own hashes: the lock has none for what is built here."""
    lines = []
    for wheel in sorted(wheels.glob("*.whl")):
        name, version = wheel.name.split("-")[:2]
        lines.append(f"{name}=={version} --hash=sha256:{hashlib.sha256(wheel.read_bytes()).hexdigest()}\n")
    return "".join(lines)


def fill_wheelhouse(python: Path, target: Path) -> None:
    """Downloads (and where there is no wheel, builds) every package of the lock, all or nothing.

    Each file that is downloaded has a hash in the lock; pip refuses another.
    """
    if target.is_dir():
        return
    say(f"  fetching the packages of {LOCK.relative_to(ROOT)}")
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=target.parent, prefix=".part-") as part:
        run(python, "-m", "pip", "wheel", "-qq", "--no-deps", "--require-hashes", "-r", LOCK, "-w", part)
        (Path(part) / STORED).write_text(stored(Path(part)), encoding="utf-8")
        # A rename is all or nothing: an interrupted download never looks like a full set.
        Path(part).rename(target)
        Path(part).mkdir()


def build(python: str) -> None:
    """Makes .venv hold exactly the lock's versions and the checkout itself, editable."""
    if python_of(VENV) != sys.version:
        shutil.rmtree(VENV, ignore_errors=True)
        run(python, "-m", "venv", VENV)
    STAMP.unlink(missing_ok=True)
    inside = VENV / "bin" / "python"
    wheels = wheelhouse()
    fill_wheelhouse(inside, wheels)
    say("  installing")
    pip = (inside, "-m", "pip", "--disable-pip-version-check", "install", "-qq", "--no-index", "--no-deps")
    run(*pip, "--find-links", wheels, "--require-hashes", "-r", wheels / STORED)
    run(*pip, "--no-build-isolation", "-e", ROOT)
    STAMP.write_text(stamp(), encoding="utf-8")


def main() -> None:
    """Builds .venv when it is missing or was built from something else."""
    with held(cache_dir() / "venv.lock"):
        if STAMP.is_file() and STAMP.read_text(encoding="utf-8") == stamp():
            return
        started = time.monotonic()
        say(f"Building .venv with Python {sys.version.split()[0]} (once; later runs skip this)")
        build(sys.executable)
        say(f"  .venv is ready, {time.monotonic() - started:.0f} s")


if __name__ == "__main__":
    main()
