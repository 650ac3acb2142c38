"""The commands of a chat: lines that begin with a slash. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from difflib import get_close_matches

#: Name, argument, what it does; `/help` prints them in this order.
COMMANDS = (
    ("/help", "", "Show this."),
    ("/reset", "", "Forget the conversation; the system message stays."),
    ("/system", "TEXT", "Set the system message; `off` for none, nothing to show it."),
    ("/save", "FILE", "Write the conversation as JSON messages, for `invoke --messages`."),
    ("/temperature", "X", "0 takes the likeliest token each time; `off` for the engine's own."),
    ("/max-tokens", "N", "Stop an answer after N tokens."),
    ("/retry", "", "Ask the last question again, in place of its answer."),
    ("/exit", "", "Leave; so does Ctrl-D."),
)
NAMES = tuple(name for name, _, _ in COMMANDS)


@dataclass(frozen=True)
class Command:
    """A command and what follows it."""

    name: str
    argument: str


class Unknown(ValueError):
    """No such command; the message names what is meant, perhaps."""


def parse(line: str) -> Command | str:
    """Return the command in a line, or the text that is to be said; `//` begins text that begins with `/`.

    Raises:
        Unknown: the line begins with a slash, and no command is called so.
    """
    if not line.startswith("/"):
        return line
    if line.startswith("//"):
        return line[1:]
    name, _, argument = line.strip().partition(" ")
    if name not in NAMES:
        close = get_close_matches(name, NAMES, n=1)
        guess = f"; did you mean {close[0]}?" if close else "."
        raise Unknown(f"there is no command {name}{guess} /help lists them, // begins a line with a slash")
    return Command(name, argument.strip())


def help_text() -> str:
    """The commands and the keys, aligned."""
    rows = [(f"{name} {argument}".strip(), does) for name, argument, does in COMMANDS]
    rows += [
        ("line\\", "A backslash at the end goes on in the next line."),
        ('"""', "Begins a text of several lines, and ends it."),
        ("Ctrl-C", "Stop the answer; what came of it is kept."),
    ]
    width = max(len(name) for name, _ in rows)
    return "\n".join(f"  {name.ljust(width)}  {does}" for name, does in rows)
