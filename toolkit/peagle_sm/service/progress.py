"""Progress events of a use case, the pace of its polling, and what a terminal or a notebook shows of them.

`agreed` asks the confirmation prompt where there is no command line.
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Literal

from peagle_sm.aws.session.session import Session
from peagle_sm.core.display import tag
from peagle_sm.core.words import elapsed, usd

Phase = Literal[
    "check",
    "lifetime",
    "model",
    "config",
    "endpoint",
    "waiting",
    "verify",
    "ready",
    "failed",
    "cleanup",
    "interrupted",
    "delete",
    "pause",
    "resume",
    "stack",
    "done",
]


@dataclass(frozen=True)
class Event:
    """One thing that happened.

    ``waiting`` comes at every look at the endpoint, with its ``status``. ``elapsed_s`` counts from the
    start of the use case; ``spent_usd`` is what the endpoint has cost so far at the plan's price, or None
    where no price is known.
    """

    phase: Phase
    message: str
    status: str | None = None
    elapsed_s: float = 0.0
    spent_usd: float | None = None
    resource: str | None = None
    done: int | None = None  #: of a measurement: requests so far, of ``total``
    total: int | None = None  #: None where the time decides
    left_s: float | None = None  #: about how long the measurement still takes; None where it is not known


Progress = Callable[[Event], None]


def _utc_now() -> datetime:
    return datetime.now(UTC)


@dataclass(frozen=True)
class Pacing:
    """The clocks, the sleep and the patience of a use case.

    ``clock`` is the time by which schedules fire; ``poll_s`` lies between two looks at a resource;
    ``delete_timeout_s`` bounds the wait for an endpoint to be gone (Creating refuses deletion, and may
    last as long as both start-up timeouts together); ``capacity_wait_s`` lies between two attempts to get
    instances that AWS has none of (five minutes: see `service.capacity`).
    """

    clock: Callable[[], datetime] = _utc_now
    monotonic: Callable[[], float] = time.monotonic
    sleep: Callable[[float], None] = time.sleep
    poll_s: float = 15.0
    delete_timeout_s: float = 9000.0
    capacity_wait_s: float = 300.0

    @classmethod
    def for_session(cls, session: Session) -> Pacing:
        """Return what suits the place: five looks a second locally, one every 15 s on AWS."""
        if session.is_local:
            return cls(clock=session.now, poll_s=0.2, capacity_wait_s=1.0)
        return cls(clock=session.now)


@dataclass
class Reporter:
    """Stamps events with elapsed time and spend before they go to the caller.

    ``quiet`` swallows what the caller's function raises (Ctrl-C excepted): a broken pipe must not stop a
    clean-up.
    """

    progress: Progress | None
    pacing: Pacing
    usd_per_hour: float | None = None
    started: float = field(init=False)
    billed_from: float | None = None
    quiet: bool = False

    def __post_init__(self) -> None:
        """Start the clock."""
        self.started = self.pacing.monotonic()

    def start_billing(self, seconds_ago: float = 0.0) -> None:
        """Count spend from now, or from some seconds ago."""
        if self.billed_from is None:
            self.billed_from = self.pacing.monotonic() - max(0.0, seconds_ago)

    def spent_usd(self) -> float | None:
        """Return the spend so far: price times the time since the endpoint was asked for."""
        if self.usd_per_hour is None:
            return None
        if self.billed_from is None:
            return 0.0
        return self.usd_per_hour * (self.pacing.monotonic() - self.billed_from) / 3600

    def __call__(
        self, phase: Phase, message: str, *, status: str | None = None, resource: str | None = None
    ) -> None:
        """Send one event."""
        if self.progress is None:
            return
        elapsed = self.pacing.monotonic() - self.started
        event = Event(phase, message, status, elapsed, self.spent_usd(), resource)
        try:
            self.progress(event)
        except Exception:
            if not self.quiet:
                raise


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
