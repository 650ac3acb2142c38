"""The output of a chat: answers on stdout, notes on stderr, a status line.

The status line below the scrolling text shows the metrics of the answer. While an answer streams, typed keys
are neither echoed nor read.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TextIO

import click

from peagle_sm.cli.base import State
from peagle_sm.cli.console import note, to_json
from peagle_sm.core.words import usd

if TYPE_CHECKING:
    from peagle_sm.aws.streams.runtime import Chunk, StreamSummary


_LEAST_ROWS = 5
_SAVE, _RESTORE = "\x1b7", "\x1b8"


class StatusBar:
    """Status line in the terminal's last row, below the scroll region.

    It does nothing without a terminal, or on one that is too small or has TERM=dumb.
    """

    def __init__(self, stream: TextIO, term: str | None) -> None:
        """Take the stream of the text; nothing is drawn yet."""
        self._stream = stream
        self._able = stream.isatty() and term not in (None, "", "dumb")
        self._size: os.terminal_size | None = None

    @property
    def shown(self) -> bool:
        """Whether the status line is drawn."""
        return self._size is not None

    def show(self, text: str) -> None:
        """Draw the line, cut to the terminal's width; a resized terminal is noticed here."""
        if not self._able or not self._fits():
            return
        assert self._size is not None
        shown = f" {text} "[: self._size.columns].ljust(self._size.columns)
        self._write(f"{_SAVE}\x1b[{self._size.lines};1H\x1b[7m{shown}\x1b[0m{_RESTORE}")

    def close(self) -> None:
        """Clear the row and restore the scroll region."""
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
        # The line feed makes room below the cursor; setting the region moves the cursor, so restore it.
        self._write(f"\n{_SAVE}\x1b[1;{size.lines - 1}r{_RESTORE}\x1b[1A")
        return True

    def _write(self, text: str) -> None:
        self._stream.write(text)
        self._stream.flush()


@contextmanager
def keys_ignored(keyboard: TextIO) -> Iterator[None]:
    """Turn echo off in this block; at its end discard typed keys and restore it.

    Ctrl-C still interrupts. If ``keyboard`` is not a terminal, nothing is changed.
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


class TokenMeter:
    """Counter of chunks, and of tokens if the engine counts them in each chunk."""

    def __init__(self, monotonic: Callable[[], float]) -> None:
        """Start now."""
        self._monotonic = monotonic
        self._first_at: float | None = None
        self._chunks = 0
        self._tokens = 0
        self._first_tokens = 0

    def chunk(self, chunk: Chunk) -> None:
        """Count a chunk."""
        self._chunks += 1
        self._tokens += chunk.token_count or 0
        if self._first_at is None:
            self._first_at, self._first_tokens = self._monotonic(), self._tokens

    @property
    def tokens(self) -> int:
        """The tokens received so far; 0 if the engine does not send their number."""
        return self._tokens

    def text(self) -> str:
        """Render `12 tokens · 34.5 tokens/s · about 2.41 per step` so far.

        Each engine step sends one chunk, so tokens per chunk approximate the acceptance length, which the
        engine reports only at the end.
        """
        if self._first_at is None:
            return "waiting for the first token"
        if not self._tokens:
            return "1 chunk" if self._chunks == 1 else f"{self._chunks} chunks"
        seconds = self._monotonic() - self._first_at
        parts = [f"{self._tokens} tokens"]
        if seconds > 0 and self._tokens > self._first_tokens:
            parts.append(f"{(self._tokens - self._first_tokens) / seconds:.1f} tokens/s")
        parts.append(f"about {self._tokens / self._chunks:.2f} per step")
        return " · ".join(parts)


def figures(summary: StreamSummary) -> str:
    """Render the metrics that the engine reported for a whole answer."""
    parts = []
    if summary.output_tokens is not None:
        parts.append(f"{summary.output_tokens} tokens")
    if summary.otps is not None:
        parts.append(f"{summary.otps:.1f} tokens/s")
    if summary.acceptance is not None:
        most = summary.acceptance.num_speculative_tokens + 1
        parts.append(f"acceptance length {summary.acceptance.acceptance_length:.2f} of {most}")
    if summary.prompt_tokens is not None and summary.output_tokens is not None:
        parts.append(f"context {summary.prompt_tokens + summary.output_tokens} tokens")
    if summary.finish_reason == "length":
        parts.append("stopped by its token limit")
    return " · ".join(parts)


@dataclass(frozen=True)
class Spend:
    """The endpoint's price in USD per hour: 0 locally, None if unknown.

    An endpoint is billed by time, not by request: a chat costs the endpoint's price while it lasts.
    """

    usd_per_hour: float | None

    def usd(self, seconds: float) -> float | None:
        """Return the cost of a time in seconds; None if the price is unknown."""
        return None if self.usd_per_hour is None else self.usd_per_hour * seconds / 3600

    def text(self, seconds: float) -> str:
        """Render `no cost`, `price unknown`, or `0.07 USD so far`."""
        if self.usd_per_hour == 0:
            return "no cost"
        spent = self.usd(seconds)
        return "price unknown" if spent is None else f"{usd(spent)} so far"


class Screen:
    """Output in the chosen format; only a terminal gets the status line."""

    def __init__(self, state: State) -> None:
        """Prepare the status line without drawing it."""
        self._state = state
        self._bar = StatusBar(sys.stdout, state.environ.get("TERM") if state.format == "table" else None)
        self._thinking = False
        self._open = False

    def chunk(self, chunk: Chunk) -> None:
        """Print a chunk; reasoning is dim and goes to stderr."""
        if self._state.format == "json":
            return
        if chunk.reasoning and self._state.format == "table":
            click.secho(chunk.reasoning, dim=True, nl=False, err=True)
            self._thinking = self._open = True
        if chunk.text:
            if self._thinking:
                click.echo("\n", err=True)
                self._thinking = False
            click.echo(chunk.text, nl=False)
            sys.stdout.flush()
            self._open = not chunk.text.endswith("\n")

    def answering(self) -> AbstractContextManager[None]:
        """Keep keys that are typed during an answer out of it."""
        return keys_ignored(sys.stdin)

    def end_line(self) -> None:
        """Begin a new line if an answer has left one open."""
        if self._open:
            click.echo()
        self._open = self._thinking = False

    def status(self, text: str) -> None:
        """Show the status line, on a terminal."""
        self._bar.show(text)

    def note(self, text: str) -> None:
        """Print a note on stderr."""
        note(self._state, text)

    def figures(self, text: str) -> None:
        """Print the metrics of an answer if no status line shows them."""
        if text and not self._bar.shown and self._state.format == "table":
            note(self._state, f"({text})")

    def turn(self, document: dict[str, Any]) -> None:
        """With --format json, print the turn as one object on one line."""
        if self._state.format == "json":
            click.echo(to_json(document, indent=None))
            sys.stdout.flush()

    def close(self) -> None:
        """Restore the terminal."""
        self._bar.close()
