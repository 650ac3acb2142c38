"""Environments made from a lock: pip's words where one cannot be made, and what the SDK's lock says."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

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


def test_a_disk_without_room_is_refused_before_anything_is_built(tmp_path: Path) -> None:
    tiny_wheel(tmp_path)
    lock = tmp_path / "tiny.lock"
    lock.write_text(f"--no-index\n--find-links {tmp_path}\ntiny-thing==1.0 --hash=sha256:{'0' * 64}\n")
    lines: list[str] = []
    with pytest.raises(EngineError, match=r"needed: 1000000000 MB"):
        ensure_locked("tiny", lock, "seconds", lines.append, needs_bytes=10**15, cache=tmp_path)
    assert lines == []


def test_a_failed_build_leaves_nothing_and_other_sources_give_another_environment(tmp_path: Path) -> None:
    lock, source = tmp_path / "tiny.lock", tmp_path / "source.py"
    digest = tiny_wheel(tmp_path)
    lock.write_text(f"--no-index\n--find-links {tmp_path}\ntiny-thing==1.0 --hash=sha256:{digest}\n")
    source.write_text("")

    def made(finish: Callable[[Path], None]) -> Path:
        options: dict[str, Any] = {"finish": finish, "sources": [source], "cache": tmp_path}
        return ensure_locked("tiny", lock, "seconds", lambda line: None, **options)

    def fails(home: Path) -> None:
        raise EngineError("no")

    with pytest.raises(EngineError, match="no"):
        made(fails)
    assert [path.suffix for path in (tmp_path / "tiny").iterdir()] == [".lock"]
    first = made(lambda home: None)
    assert made(fails) == first, "it is complete"
    source.write_text("changed")
    assert made(lambda home: None) != first


def test_the_sdks_lock_pins_every_package(root: Path) -> None:
    text = (root / "requirements" / "sagemaker-sdk.lock").read_text()
    pins = read_pins(text)
    assert "sagemaker==3.27.0" in map(str, pins)
    assert f"{len(pins)} packages" in text
