"""What was typed before a question does not answer it, on a real terminal."""

from __future__ import annotations

import os
import pty
import select
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

PATIENCE_S = 60
CONFIRMED = (
    "from peagle_sm.cli.console import confirmed; from peagle_sm.cli.base import State; "
    "answer = confirmed(State(), 'Create demo for 4.20 USD/hour?', False)"
)
AGREED = "from peagle_sm.service.progress import agreed; answer = agreed('Deploy?')"


@contextmanager
def _asking(ask: str) -> Iterator[tuple[int, subprocess.Popen[bytes]]]:
    """A program on a terminal that asks after an early `y` has been typed."""
    terminal, inside = pty.openpty()
    begin_read, begin_write = os.pipe()
    program = f"import os, sys; os.read({begin_read}, 1); {ask}; print('answer:', answer, flush=True)"
    process = subprocess.Popen(
        [sys.executable, "-c", program], stdin=inside, stdout=inside, stderr=inside, pass_fds=[begin_read]
    )
    os.close(inside)
    os.write(terminal, b"y\n")  # typed ahead: it waits in the terminal's queue when the question comes
    os.write(begin_write, b".")
    try:
        yield terminal, process
    finally:
        process.kill()
        process.wait()
        for each in (terminal, begin_read, begin_write):
            os.close(each)


def _until(terminal: int, text: str) -> str:
    shown = ""
    while text not in shown:
        ready, _, _ = select.select([terminal], [], [], PATIENCE_S)
        assert ready, f"{text!r} was not shown: {shown!r}"
        shown += os.read(terminal, 4096).decode()
    return shown


@pytest.mark.parametrize("ask", [CONFIRMED, AGREED], ids=["command line", "Python"])
@pytest.mark.parametrize(("typed", "answer"), [(b"n\n", "False"), (b"\n", "False"), (b"y\n", "True")])
def test_only_what_is_typed_after_the_question_answers_it(ask: str, typed: bytes, answer: str) -> None:
    with _asking(ask) as (terminal, process):
        _until(terminal, "[y/N]")
        os.write(terminal, typed)
        assert f"answer: {answer}" in _until(terminal, "answer: ") + _until_end(terminal)
        assert process.wait(PATIENCE_S) == 0


def _until_end(terminal: int) -> str:
    """Read to the end; Linux reports the closed terminal as an error."""
    shown = ""
    try:
        while part := os.read(terminal, 4096):
            shown += part.decode()
    except OSError:
        pass
    return shown
