"""What Ctrl-C and a polite kill mean: a clean-up, or the expected end of something that runs until then."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

import click

from peagle_sm.cli.state import State


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
