"""What a chat shows: text on stdout, figures and notes beside it."""

from __future__ import annotations

import sys
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any

import click

from peagle_sm.cli.chat.bar import Bar
from peagle_sm.cli.chat.keys import keys_ignored
from peagle_sm.cli.output import note, to_json
from peagle_sm.cli.state import State

if TYPE_CHECKING:
    from peagle_sm.aws.streams.runtime import Chunk


class Screen:
    """Prints in the format that was asked for; only a terminal gets the status line at the bottom."""

    def __init__(self, state: State) -> None:
        """Draw nothing yet."""
        self._state = state
        self._bar = Bar(sys.stdout, state.environ.get("TERM") if state.format == "table" else None)
        self._thinking = False
        self._open = False

    def chunk(self, chunk: Chunk) -> None:
        """Print what a chunk brings; what a model thinks is dim, and apart from what it says."""
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
        """Keep the keys that are typed meanwhile out of the answer."""
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
        """A remark for people."""
        note(self._state, text)

    def figures(self, text: str) -> None:
        """The figures of an answer, where no status line shows them."""
        if not self._bar.shown and self._state.format == "table":
            note(self._state, f"({text})")

    def turn(self, document: dict[str, Any]) -> None:
        """With --format json: one object a turn, on one line."""
        if self._state.format == "json":
            click.echo(to_json(document, indent=None))
            sys.stdout.flush()

    def close(self) -> None:
        """Give the terminal back as it was."""
        self._bar.close()
