"""A status line at the bottom of the terminal, below a text that scrolls."""

from __future__ import annotations

import os
from typing import TextIO

_LEAST_ROWS = 5
_SAVE, _RESTORE = "\x1b7", "\x1b8"


class Bar:
    """Keeps the last row for itself by narrowing the terminal's scroll region; `close` gives it back.

    Where there is no terminal, or one that is too small or too simple, it does nothing.
    """

    def __init__(self, stream: TextIO, term: str | None) -> None:
        """Take the stream of the text; nothing is drawn yet."""
        self._stream = stream
        self._able = stream.isatty() and term not in (None, "", "dumb")
        self._size: os.terminal_size | None = None

    @property
    def shown(self) -> bool:
        """Whether the row is there."""
        return self._size is not None

    def show(self, text: str) -> None:
        """Draw the line, cut to the terminal's width; a resized terminal is noticed here."""
        if not self._able or not self._fits():
            return
        assert self._size is not None
        shown = f" {text} "[: self._size.columns].ljust(self._size.columns)
        self._write(f"{_SAVE}\x1b[{self._size.lines};1H\x1b[7m{shown}\x1b[0m{_RESTORE}")

    def close(self) -> None:
        """Clear the row and let the text have the whole terminal again."""
        if self._size is not None:
            self._write(f"{_SAVE}\x1b[r\x1b[{self._size.lines};1H\x1b[2K{_RESTORE}")
            self._size = None

    def _fits(self) -> bool:
        size = os.get_terminal_size(self._stream.fileno())
        if size == self._size:
            return True
        self.close()
        if size.lines < _LEAST_ROWS:
            return False
        self._size = size
        # The line feed makes room below the cursor; setting the region moves the cursor, so it is put back.
        self._write(f"\n{_SAVE}\x1b[1;{size.lines - 1}r{_RESTORE}\x1b[1A")
        return True

    def _write(self, text: str) -> None:
        self._stream.write(text)
        self._stream.flush()
