"""Where the lines of a chat come from: somebody at a terminal, or a pipe."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence

from peagle_sm.core.spec.utf8 import utf8_text

_FENCE = '"""'
PROMPT, MORE = "> ", ". "


class LeftOff(Exception):
    """Ctrl-C at the prompt: what was typed is dropped."""


def texts(read: Callable[[str], str]) -> Iterator[str]:
    """What is said, one text after the other: a line, or several that a backslash or `\"\"\"` join.

    ``read`` is given the prompt, and raises EOFError at the end, `LeftOff` when a line was dropped; that
    error comes out once, and the next text begins anew. Blank lines are no text.
    """
    while True:
        try:
            text = _text(read)
        except EOFError:
            return
        if text.strip():
            yield text


def _text(read: Callable[[str], str]) -> str:
    line = read(PROMPT)
    if line.strip().startswith(_FENCE):
        return _fenced(line.strip().removeprefix(_FENCE), read)
    lines = [line]
    while lines[-1].endswith("\\"):
        lines[-1] = lines[-1][:-1]
        lines.append(read(MORE))
    return "\n".join(lines)


def _fenced(line: str, read: Callable[[str], str]) -> str:
    lines: list[str] = []
    while not line.rstrip().endswith(_FENCE):
        lines.append(line)
        line = read(MORE)
    lines.append(line.rstrip().removesuffix(_FENCE))
    return "\n".join(lines).strip("\n")


def from_pipe(prompt: str) -> str:
    """The next line of stdin.

    Raises:
        EOFError: there is none.
        SpecError: it is not UTF-8.
    """
    line = utf8_text(sys.stdin.buffer.readline(), "stdin")
    if not line:
        raise EOFError
    return line.rstrip("\r\n")


def from_terminal(words: Sequence[str]) -> Callable[[str], str]:
    """A reader of lines that can be edited and called back with the arrow keys; Tab completes ``words``."""
    try:
        import readline
    except ImportError:  # a Python without it: the terminal's own editing is left
        return _typed

    def complete(text: str, number: int) -> str | None:
        found = [word for word in words if word.startswith(text)] if text.startswith("/") else []
        return found[number] if number < len(found) else None

    readline.set_completer(complete)
    readline.set_completer_delims(" \n")
    readline.parse_and_bind("tab: complete")
    return _typed


def _typed(prompt: str) -> str:
    try:
        return input(prompt)
    except KeyboardInterrupt:
        raise LeftOff from None
