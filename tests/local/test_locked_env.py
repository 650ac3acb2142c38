"""Environments made from a lock: pip's words where one cannot be made, and what the SDK's lock says."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from peagle_sm.core.errors import EngineError
from peagle_sm.local.locked_env import ensure_locked


def test_what_pip_says_is_in_the_error(tmp_path: Path) -> None:
    lock = tmp_path / "wrong.lock"
    lock.write_text("./there-is-no-such-wheel-1.0-py3-none-any.whl\n")
    with pytest.raises(
        EngineError, match=r"could not build the environment wrong(?s:.*)there-is-no-such-wheel"
    ):
        ensure_locked("wrong", lock, "seconds", lambda line: None, cache=tmp_path)


def test_the_sdks_lock_pins_every_package(root: Path) -> None:
    lines = (root / "requirements" / "sagemaker-sdk.lock").read_text().splitlines()
    pins = [line for line in lines if not line.startswith("#")]
    assert [line for line in pins if not re.fullmatch(r"[\w.-]+==[\w.]+", line)] == []
    assert "sagemaker==3.27.0" in pins
    assert f"{len(pins)} packages" in "\n".join(lines)
