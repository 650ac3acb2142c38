"""How a notebook's cell, or stderr, follows what takes time."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from peagle_sm.core.display.markup import tag
from peagle_sm.core.words import elapsed, usd
from peagle_sm.service.events import Event, Progress

_MUTED = (
    "opacity:.75;font-variant-numeric:tabular-nums;white-space:pre-wrap;font-family:monospace;font-size:.9em"
)
EVERY_S = 0.25
"""The least time between two drawings of a line that only counts on: a notebook keeps every one of them."""


def event_line(event: Event) -> str:
    """`  3m07s  endpoint demo is Creating  0.12 USD so far`."""
    said = event.message
    if event.phase == "waiting" and event.status and event.status not in said:
        said += f" is {event.status}"
    words = [f"{elapsed(event.elapsed_s):>7}", said]
    if event.spent_usd:
        words.append(f"{usd(event.spent_usd)} so far")
    return "  ".join(words)


@contextmanager
def followed(progress: Progress | None) -> Iterator[Progress]:
    """``progress``, else what suits the place: a cell that is drawn anew, or lines on stderr."""
    if progress is not None:
        yield progress
        return
    display = _display_of_cell()
    if display is None:
        yield Tell()
        return
    cell = Cell(display)
    try:
        yield cell
    finally:
        cell.settle()


def _display_of_cell() -> Callable[..., Any] | None:
    """IPython's ``display`` inside a notebook's kernel; None in a terminal, IPython's own included."""
    module = sys.modules.get("IPython")
    shell = module.get_ipython() if module is not None else None
    if shell is None or not hasattr(shell, "kernel"):
        return None
    from IPython.display import display

    return display  # type: ignore[no-any-return, unused-ignore]


class Tell:
    """Prints an event on stderr when it differs from the one before in phase, status or message."""

    def __init__(self) -> None:
        """Start with nothing said."""
        self._said: tuple[str, str | None, str] | None = None

    def __call__(self, event: Event) -> None:
        """Print the event if it is news."""
        key = (event.phase, event.status, event.message)
        if key == self._said:
            return
        self._said = key
        spent = "" if not event.spent_usd else f"  {event.spent_usd:.2f} USD"
        status = f" [{event.status}]" if event.status else ""
        print(f"{event.elapsed_s:7.1f} s  {event.message}{status}{spent}", file=sys.stderr)


class Cell:
    """One output in a notebook: what is over as lines, and below them the line that moves."""

    def __init__(self, display: Callable[..., Any], monotonic: Callable[[], float] = time.monotonic) -> None:
        """``display`` is IPython's; ``monotonic`` gives seconds."""
        self._display, self._monotonic = display, monotonic
        self._handle: Any = None
        self._lines: list[str] = []
        self._event: Event | None = None
        self._drawn_s = float("-inf")
        self._lock = threading.Lock()

    def __call__(self, event: Event) -> None:
        """Show the event; when its phase is new, the one before becomes a line."""
        with self._lock:
            known, self._event = self._event, event
            news = known is None or (event.phase, event.status) != (known.phase, known.status)
            if known is not None and news:
                self._lines.append(event_line(known))
            if news or self._monotonic() - self._drawn_s >= EVERY_S:
                self._draw()

    def settle(self) -> None:
        """Show the last event, whatever was left out for its sake."""
        with self._lock:
            if self._event is not None:
                self._draw()

    def _draw(self) -> None:
        lines = [*self._lines, *([event_line(self._event)] if self._event else [])]
        bundle = {
            "text/plain": "\n".join(lines),
            "text/html": str(tag("div", "\n".join(lines), style=_MUTED)),
        }
        if self._handle is None:
            self._handle = self._display(bundle, raw=True, display_id=True)
        else:
            self._handle.update(bundle, raw=True)
        self._drawn_s = self._monotonic()
