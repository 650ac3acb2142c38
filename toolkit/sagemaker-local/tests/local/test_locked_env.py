"""Environments made from a lock: pip's words where one cannot be made, and what the SDK's lock says."""

from __future__ import annotations

from pathlib import Path

import pytest

from sagemaker_local.engine.locked_env import ensure_locked
from sagemaker_local.errors import EngineError
from scripts.lib.locks import read_pins
from tests.local.tiny_wheel import tiny_wheel


def test_what_pip_says_is_in_the_error(tmp_path: Path) -> None:
    lock = tmp_path / "wrong.lock"
    lock.write_text("./there-is-no-such-wheel-1.0-py3-none-any.whl\n")
    with pytest.raises(EngineError, match=r"could not install the packages(?s:.*)there-is-no-such-wheel"):
        ensure_locked("wrong", lock, "seconds", lambda line: None, cache=tmp_path)


def test_another_file_in_a_packages_place_is_refused(tmp_path: Path) -> None:
    """Without a network: the index is a folder, with one wheel in it that is not the one of the lock."""
    tiny_wheel(tmp_path)
    lock = tmp_path / "tiny.lock"
    lock.write_text(f"--no-index\n--find-links {tmp_path}\ntiny-thing==1.0 --hash=sha256:{'0' * 64}\n")
    with pytest.raises(EngineError, match="DO NOT MATCH THE HASHES"):
        ensure_locked("tiny", lock, "seconds", lambda line: None, cache=tmp_path)


def test_the_sdks_lock_pins_every_package(root: Path) -> None:
    text = (root / "requirements" / "sagemaker-sdk.lock").read_text()
    pins = read_pins(text)
    assert "sagemaker==3.27.0" in map(str, pins)
    assert f"{len(pins)} packages" in text
