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
from types import FrameType
from typing import Any

import click

from peagle_sm.cli import terminal
from peagle_sm.cli.base import State


def to_json(value: Any, *, indent: int | None = 2) -> str:
    """JSON text; what JSON does not know is printed as text (times in ISO 8601)."""
    return json.dumps(value, indent=indent, ensure_ascii=False, default=_plain)


def _plain(value: Any) -> Any:
    if hasattr(value, "isoformat"):
        return value.isoformat()
    if isinstance(value, set | frozenset):
        return sorted(value)
    return str(value)


def emit(state: State, *, table: Callable[[], str], data: Callable[[], Any], names: Iterable[str]) -> None:
    """Print one result: `table` for people, `data` as JSON, or `names`, one a line."""
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
    """Print text for people, fitted to the terminal and coloured; on stderr unless ``err`` is False."""
    click.echo(terminal.shown(text, sys.stderr if err else sys.stdout), err=err)


def note(state: State, message: str) -> None:
    """A line on stderr: text, a JSON object on one line with --format json, nothing with quiet."""
    if state.format == "json":
        click.echo(to_json({"note": message}, indent=None), err=True)
    elif state.format != "quiet":
        say(message)


def need_terminal(state: State, yes: bool, look: str) -> None:
    """Refuse before any work when the question that comes later could not be asked.

    Args:
        state: the terminal.
        yes: whether --yes was given.
        look: the command that shows what would be done.

    Raises:
        SpecError: there is no terminal to ask on and --yes was not given.
    """
    if yes or state.stdin_is_tty():
        return
    from peagle_sm.core.errors import SpecError

    raise SpecError(
        "There is no terminal to ask on, and --yes was not given. Nothing was changed.",
        next_step=f"look at it with `{look}`, then run it again with --yes",
    )


def confirmed(state: State, question: str, yes: bool) -> bool:
    """Whether to go on; asks on stderr and takes only y or yes, typed after the question.

    Raises:
        SpecError: there is no terminal to ask on and --yes was not given.
    """
    if yes:
        return True
    if not state.stdin_is_tty():
        from peagle_sm.core.errors import SpecError

        raise SpecError(
            f"{question} There is no terminal to ask on, and --yes was not given. Nothing was changed.",
            next_step="read what is shown above, then run it again with --yes",
        )
    from peagle_sm.service.progress import discard_typed

    discard_typed()
    return click.confirm(question, default=False, err=True)


@contextmanager
def termination_is_ctrl_c() -> Iterator[None]:
    """SIGTERM and SIGHUP raise KeyboardInterrupt while this is open (in the main thread only)."""
    with _on_termination(KeyboardInterrupt):
        yield


@contextmanager
def termination_unwinds() -> Iterator[None]:
    """SIGTERM and SIGHUP end the program as an exit, so that the terminal is given back as it was."""
    with _on_termination(SystemExit):
        yield


@contextmanager
def _on_termination(kind: type[BaseException]) -> Iterator[None]:
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def interrupt(number: int, frame: FrameType | None) -> None:
        raise kind(128 + number)

    before = {each: signal.signal(each, interrupt) for each in (signal.SIGTERM, signal.SIGHUP)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextmanager
def until_ctrl_c(state: State, follow: bool) -> Iterator[None]:
    """With `follow`, Ctrl-C ends what is in here without an error; otherwise it goes on as it is."""
    try:
        yield
    except KeyboardInterrupt:
        if not follow:
            raise
        if state.stderr_is_tty():
            click.echo(err=True)  # the prompt does not belong behind the terminal's ^C
