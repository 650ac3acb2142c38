"""The terminal's echo is off while an answer streams, and on again however that ends."""

from __future__ import annotations

import io
import os
import pty
import select
import signal
import subprocess
import sys
import termios
from collections.abc import Iterator
from typing import TextIO

import pytest

from peagle_sm.cli.commands.chat.screen import keys_ignored

PATIENCE_S = 60


class Boom(Exception):
    pass


@pytest.fixture
def terminal() -> Iterator[tuple[int, TextIO]]:
    outside, inside = pty.openpty()
    with os.fdopen(inside) as keyboard:
        yield outside, keyboard
    os.close(outside)


def _echoes(keyboard: TextIO | int) -> bool:
    return bool(termios.tcgetattr(keyboard)[3] & termios.ECHO)


@pytest.mark.parametrize("error", [None, Boom, KeyboardInterrupt])
def test_what_is_typed_is_not_echoed_and_dropped(
    terminal: tuple[int, TextIO], error: type[BaseException] | None
) -> None:
    outside, keyboard = terminal
    before = termios.tcgetattr(keyboard)

    def answer() -> None:
        with keys_ignored(keyboard):
            assert not _echoes(keyboard)
            assert termios.tcgetattr(keyboard)[3] & termios.ISIG, "Ctrl-C still interrupts"
            os.write(outside, b"typed\n")
            assert select.select([keyboard], [], [], PATIENCE_S)[0], "the terminal has the line"
            if error is not None:
                raise error

    if error is None:
        answer()
    else:
        with pytest.raises(error):
            answer()
    assert termios.tcgetattr(keyboard) == before
    assert not select.select([keyboard], [], [], 0)[0], "nothing is left for the next prompt"


def test_what_is_not_a_terminal_is_left_alone() -> None:
    with keys_ignored(io.StringIO("a line")) as nothing:
        assert nothing is None


def test_a_program_that_is_terminated_gives_the_terminal_back() -> None:
    program = (
        "import sys, time\n"
        "from peagle_sm.cli.commands.chat.screen import keys_ignored\n"
        "from peagle_sm.cli.console import termination_unwinds\n"
        "with termination_unwinds(), keys_ignored(sys.stdin):\n"
        "    print('streaming', flush=True)\n"
        f"    time.sleep({PATIENCE_S})\n"
    )
    outside, inside = pty.openpty()
    process = subprocess.Popen([sys.executable, "-c", program], stdin=inside, stdout=subprocess.PIPE)
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == b"streaming\n"
        assert not _echoes(inside)
        process.send_signal(signal.SIGTERM)
        assert process.wait(PATIENCE_S) == 128 + signal.SIGTERM
        assert _echoes(inside)
    finally:
        process.kill()
        process.wait()
        assert process.stdout is not None
        process.stdout.close()
        os.close(inside)
        os.close(outside)
