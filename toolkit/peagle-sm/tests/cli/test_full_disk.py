"""A full disk and folders that are not writable are expected errors, and leave no partial file."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from peagle_sm.cli.failure import from_exception
from tests.cli.running import run
from tests.disks import file_limit


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Where nothing can be written, also by root: its place is taken by a file."""
    taken = tmp_path / "taken"
    taken.write_text("")
    return taken / "below"


def test_init_on_a_full_disk_writes_nothing(tmp_path: Path) -> None:
    spec = tmp_path / "peagle.yaml"
    with file_limit(200):
        result = run("init", "tiny-code", "--output", spec)
    assert result.exit_code == 2
    assert f"error: {spec}: cannot be written: File too large" in result.stderr
    assert "next: Free space on that disk" in result.stderr
    assert "report this" not in result.stderr
    assert list(tmp_path.iterdir()) == []


def test_a_state_folder_that_is_not_writable(folder: Path) -> None:
    program = [sys.executable, "-m", "peagle_sm", "local", "status"]
    environment = {**os.environ, "XDG_STATE_HOME": str(folder)}
    result = subprocess.run(program, env=environment, capture_output=True, text=True, check=False)
    assert result.returncode == 2, result.stderr
    assert "cannot be written: Not a directory" in result.stderr
    assert "Traceback" not in result.stderr
    assert "report this" not in result.stderr


def test_stdout_on_a_full_disk() -> None:
    with Path("/dev/full").open("w") as full:
        result = subprocess.run(
            [sys.executable, "-m", "peagle_sm", "models"], stdout=full, stderr=subprocess.PIPE, text=True
        )
    assert result.returncode == 2, result.stderr
    assert result.stderr == (
        "error: the output: cannot be written: No space left on device\n"
        "  next: Free space on that disk, and run the command again.\n"
    )


def test_any_other_error_of_the_operating_system_is_still_reported(tmp_path: Path) -> None:
    environment = {"XDG_STATE_HOME": str(tmp_path)}
    assert from_exception(OSError(5, "Input/output error"), environment).type == "Unexpected"
    known = from_exception(PermissionError(13, "Permission denied", "/x"), environment)
    assert (known.type, known.exit_code, known.message) == (
        "CannotWrite",
        2,
        "/x: cannot be read or written: Permission denied",
    )
