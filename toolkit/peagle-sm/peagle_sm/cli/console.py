"""Results on stdout, notes on stderr, confirmation prompts, Ctrl-C and SIGTERM.

Results have the format that --format names. A prompt comes before anything that costs money or deletes
something. Without a terminal and without --yes the command is refused. SIGTERM and SIGHUP lead to the same
clean-up as Ctrl-C.
"""

from __future__ import annotations

import json
import signal
import sys
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from operator import methodcaller
from types import FrameType
from typing import Any, TypeVar

import click

from peagle_sm.cli import terminal
from peagle_sm.cli.base import State


def to_json(value: Any, *, indent: int | None = 2) -> str:
    """Return JSON text; values of other types become strings (times in ISO 8601)."""
    return json.dumps(value, indent=indent, ensure_ascii=False, default=_plain)


def _plain(value: Any) -> Any:
    if hasattr(value, "isoformat"):
        return value.isoformat()
    if isinstance(value, set | frozenset):
        return sorted(value)
    return str(value)


def emit(state: State, *, table: Callable[[], str], data: Callable[[], Any], names: Iterable[str]) -> None:
    """Print one result: `table` for people, `data` as JSON, or `names`, one per line."""
    if state.format == "json":
        click.echo(to_json(data()))
    elif state.format == "quiet":
        for name in names:
            click.echo(name)
    else:
        with terminal.tables_fit(sys.stdout):
            text = table()
        say(text, err=False)


def say(text: str, *, err: bool = True) -> None:
    """Print text, fitted to the terminal and coloured, on stderr unless not ``err``."""
    click.echo(terminal.shown(text, sys.stderr if err else sys.stdout), err=err)


def note(state: State, message: str) -> None:
    """Print a line on stderr: text, with --format json an object, with quiet nothing."""
    if state.format == "json":
        click.echo(to_json({"note": message}, indent=None), err=True)
    elif state.format != "quiet":
        say(message)


def show_offer(state: State, yes: bool, text: str, data: dict[str, Any]) -> None:
    """Show on stderr what the prompt is about; with --format json, ``data``.

    With ``--format quiet`` it is shown only if a prompt follows, which --yes prevents.
    """
    if state.format == "json":
        click.echo(to_json(data, indent=None), err=True)
    elif state.format == "table" or not yes:
        say(text + "\n")


def need_terminal(state: State, yes: bool, look: str) -> None:
    """Fail before any work if the confirmation prompt could not be shown later.

    Args:
        state: the terminal.
        yes: whether --yes was given.
        look: the command that shows what would be done.

    Raises:
        SpecError: stdin is not a terminal and --yes was not given.
    """
    if yes or state.stdin_is_tty():
        return
    from peagle_sm.core.errors import SpecError

    raise SpecError(
        "Cannot ask for confirmation: stdin is not a terminal and --yes was not given. Nothing was changed.",
        next_step=f"check with `{look}`, then run this command again with --yes",
    )


def confirmed(state: State, question: str, yes: bool) -> bool:
    """Ask on stderr whether to continue; only y or yes after the prompt counts.

    Raises:
        SpecError: stdin is not a terminal and --yes was not given.
    """
    if yes:
        return True
    if not state.stdin_is_tty():
        from peagle_sm.core.errors import SpecError

        raise SpecError(
            f"Cannot ask {question!r}: stdin is not a terminal and --yes was not given. Nothing was changed.",
            next_step="read the output above, then run this command again with --yes",
        )
    from peagle_sm.service.progress import discard_typed

    discard_typed()
    return click.confirm(question, default=False, err=True)


Offer = TypeVar("Offer")


def asking(
    state: State,
    yes: bool,
    kind: str,
    render: Callable[[Offer], str],
    question: Callable[[Offer], str],
    *,
    data: Callable[[Offer], Any] = methodcaller("to_dict"),
    before: Callable[[], None] = lambda: None,
) -> Callable[[Offer], bool]:
    """Return a use case's ``confirm``: show the offer, then ask.

    ``kind`` names the offer in JSON; ``before`` is called first, to stop a follower's drawing.
    """

    def ask(offer: Offer) -> bool:
        before()
        show_offer(state, yes, render(offer), {kind: data(offer)})
        return confirmed(state, question(offer), yes)

    return ask


@contextmanager
def termination_is_ctrl_c() -> Iterator[None]:
    """Raise KeyboardInterrupt on SIGTERM and SIGHUP in a block (in the main thread only)."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def interrupt(number: int, frame: FrameType | None) -> None:
        raise KeyboardInterrupt(128 + number)

    before = {each: signal.signal(each, interrupt) for each in (signal.SIGTERM, signal.SIGHUP)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextmanager
def until_ctrl_c(state: State, follow: bool) -> Iterator[None]:
    """Let Ctrl-C end this block without an error if `follow` is set."""
    try:
        yield
    except KeyboardInterrupt:
        if not follow:
            raise
        if state.stderr_is_tty():
            click.echo(err=True)  # the shell's prompt begins on a line below the terminal's ^C
