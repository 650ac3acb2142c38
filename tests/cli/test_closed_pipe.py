"""The reader of stdout goes away, as `head` does: exit code 141 and not a word."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest


@pytest.mark.parametrize("words", [["models", "--format", "json"], ["--help"], ["--version"]])
def test_a_closed_pipe_is_exit_code_141(words: list[str]) -> None:
    reader, writer = os.pipe()
    os.close(reader)  # `| true`, without the race
    try:
        ended = subprocess.run(
            [sys.executable, "-m", "peagle_sm", *words],
            stdout=writer,
            stderr=subprocess.PIPE,
            text=True,
            timeout=60,
            check=False,
        )
    finally:
        os.close(writer)
    assert (ended.returncode, ended.stderr) == (141, "")
