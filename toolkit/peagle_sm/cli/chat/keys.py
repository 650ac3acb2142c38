"""The keyboard while an answer streams: nothing is echoed into the answer, and nothing is kept."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import TextIO


@contextmanager
def keys_ignored(keyboard: TextIO) -> Iterator[None]:
    """Switch echo off while this is open; drop what was typed, and restore the terminal at the end.

    Ctrl-C still interrupts. Where ``keyboard`` is not a terminal, nothing is changed.
    """
    try:
        import termios
    except ImportError:  # not a POSIX system
        yield
        return
    try:
        number = keyboard.fileno()
        before = termios.tcgetattr(number)
    except (OSError, ValueError, termios.error):  # closed, or not a terminal
        yield
        return
    flags = 3
    silent = [*before]
    silent[flags] &= ~termios.ECHO
    termios.tcsetattr(number, termios.TCSADRAIN, silent)
    try:
        yield
    finally:
        with suppress(termios.error):  # the terminal was closed
            termios.tcsetattr(number, termios.TCSAFLUSH, before)
