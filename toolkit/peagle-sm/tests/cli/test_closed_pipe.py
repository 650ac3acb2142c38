"""Streams whose reader is gone, as with `head` (exit code 141), or that are closed from the start."""

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


@pytest.mark.parametrize("closed", ["<&-", ">&-", "2>&-", "<&- >&-", "<&- >&- 2>&-"])
@pytest.mark.parametrize(("words", "code"), [("models", 0), ("plan -", 2), ("delete x --yes", 5)])
def test_a_stream_that_is_closed_from_the_start_is_no_unexpected_error(
    closed: str, words: str, code: int
) -> None:
    ended = subprocess.run(
        ["sh", "-c", f'"$0" -m peagle_sm {words} {closed}', sys.executable],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (ended.returncode, "unexpected" in ended.stderr) == (code, False)
