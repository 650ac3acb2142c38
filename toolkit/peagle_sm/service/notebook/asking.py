"""Questions that cost money when answered with yes."""

from __future__ import annotations

import sys
from contextlib import suppress


def discard_typed() -> None:
    """Drop what was typed on the terminal so far: no key pressed before a question answers it."""
    try:
        import termios
    except ImportError:  # not a POSIX system
        return
    with suppress(OSError, ValueError, AttributeError, termios.error):  # stdin may be closed, or not a file
        if sys.stdin.isatty():
            termios.tcflush(sys.stdin.fileno(), termios.TCIFLUSH)


def agreed(question: str) -> bool:
    """Ask on the terminal or in the notebook; only y and yes agree, and no answer at all does not."""
    discard_typed()
    try:
        return input(f"{question} [y/N] ").strip().lower() in ("y", "yes")
    except EOFError:
        return False
