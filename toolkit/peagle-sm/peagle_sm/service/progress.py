"""Progress events of a use case, poll intervals, retries, and their display.

`agreed` shows the confirmation prompt in notebooks and programs.
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Literal, TypeVar

from peagle_sm.aws.session.errors import is_not_visible_yet, is_taken, is_unsettled
from peagle_sm.aws.session.session import Session
from peagle_sm.core.display import line_html
from peagle_sm.core.errors import PeagleError
from peagle_sm.core.words import elapsed, usd

Phase = Literal[
    "files",
    "check",
    "lifetime",
    "model",
    "config",
    "endpoint",
    "component",
    "scaling",
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
    """One progress event.

    Each poll of an endpoint sends the phase ``waiting`` with its ``status``. ``elapsed_s`` counts from the
    start of the use case. ``spent_usd`` is the endpoint's cost so far at the plan's price; None if no price
    is known.
    """

    phase: Phase
    message: str
    status: str | None = None
    elapsed_s: float = 0.0
    spent_usd: float | None = None
    resource: str | None = None
    done: int | None = None  #: of a measurement: requests so far, out of ``total``
    total: int | None = None  #: None if a duration ends it
    left_s: float | None = None  #: estimated remaining seconds of a measurement; None if unknown


Progress = Callable[[Event], None]
T = TypeVar("T")


def _utc_now() -> datetime:
    return datetime.now(UTC)


@dataclass(frozen=True)
class Pacing:
    """Clocks, sleep, poll interval and timeouts of a use case.

    ``clock`` is the time by which schedules fire; ``poll_s`` is the seconds between polls of a resource;
    ``delete_timeout_s`` limits the wait for an endpoint's deletion (AWS refuses to delete while the status is
    Creating, which may last as long as both startup timeouts together); ``capacity_wait_s`` is the seconds
    between attempts when AWS has no capacity (five minutes: see `service.lifecycle.deployment`).
    """

    clock: Callable[[], datetime] = _utc_now
    monotonic: Callable[[], float] = time.monotonic
    sleep: Callable[[float], None] = time.sleep
    poll_s: float = 15.0
    delete_timeout_s: float = 9000.0
    capacity_wait_s: float = 300.0

    @classmethod
    def for_session(cls, session: Session) -> Pacing:
        """Return the poll interval for a session: 0.2 s locally, 15 s on AWS."""
        if session.is_local:
            return cls(clock=session.now, poll_s=0.2, capacity_wait_s=1.0)
        return cls(clock=session.now)


@dataclass
class Reporter:
    """Sender of progress events; adds elapsed time and cost.

    ``quiet`` ignores errors of the caller's function (except Ctrl-C): a broken pipe must not stop a clean-up.
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
        """Count the cost from now, or from some seconds ago."""
        if self.billed_from is None:
            self.billed_from = self.pacing.monotonic() - max(0.0, seconds_ago)

    def spent_usd(self) -> float | None:
        """Return the cost so far: the price times the time since the creation."""
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


VISIBLE_ATTEMPTS = 7
"""With the poll interval of AWS, 15 s, about a minute: 2, 4, 8, 15, 15 and 15 s."""


def once_visible(
    send: Callable[[], T],
    pacing: Pacing,
    report: Reporter,
    is_early: Callable[[PeagleError], bool] = is_not_visible_yet,
) -> T:
    """Send a request; retry for about a minute while AWS does not know its config, model or role.

    ``is_early`` decides whether AWS refused it only because what it names was just created.

    SageMaker looks for a config with eventually consistent reads, and recommends a retry (API reference of
    CreateEndpoint). A new role is not known everywhere at once either ("Changes that I make are not always
    immediately visible", IAM user guide).

    Raises:
        PeagleError: AWS refused it for another reason, or still does not know them.
    """
    for attempt in range(1, VISIBLE_ATTEMPTS):
        try:
            return send()
        except PeagleError as error:
            if not is_early(error):
                raise
            report("check", f"AWS does not see it yet; retrying ({error.message})")
            pacing.sleep(min(pacing.poll_s, 2.0**attempt))
    return send()


CREATE_ATTEMPTS = 5


def _is_unclear(error: PeagleError) -> bool:
    return is_unsettled(error) or is_taken(error)


def create_once(
    send: Callable[[], object],
    is_there: Callable[[], bool],
    pacing: Pacing,
    report: Reporter,
    is_unclear: Callable[[PeagleError], bool] = _is_unclear,
) -> str:
    """Send a creation. After an unclear answer, check whether the resource exists before a retry, and use it.

    ``is_unclear`` decides whether an error leaves open if AWS did it.

    Returns:
        The result as the end of a sentence.
    """
    for attempt in range(1, CREATE_ATTEMPTS + 1):
        try:
            once_visible(send, pacing, report)
        except PeagleError as error:
            if not is_unclear(error):
                raise
            if is_there():
                return "already exists and is used"
            if attempt == CREATE_ATTEMPTS:
                raise
            report("check", f"no clear answer; retrying ({error.message})")
            pacing.sleep(min(pacing.poll_s, 2.0**attempt))
        else:
            return "created"
    raise AssertionError("unreachable")


_MUTED = (
    "opacity:.75;font-variant-numeric:tabular-nums;white-space:pre-wrap;font-family:monospace;font-size:.9em"
)
EVERY_S = 0.25
"""Minimum seconds between updates of a counter line: a notebook saves every update."""


def event_line(event: Event, at_s: float | None = None) -> str:
    """Format an event: `  3m07s  endpoint demo is Creating  0.12 USD so far`."""
    message = event.message
    if event.phase == "waiting" and event.status and event.status not in message:
        message += f" is {event.status}"
    message = message.replace("\n", "\n" + " " * 9)  # the width of the clock column
    columns = [f"{elapsed(event.elapsed_s if at_s is None else at_s):>7}", message]
    if event.spent_usd is not None:
        columns.append(f"{usd(event.spent_usd)} so far")
    return "  ".join(columns)


@contextmanager
def followed(progress: Progress | None) -> Iterator[Progress]:
    """Yield ``progress``, else a display: a notebook cell, or lines on stderr."""
    if progress is not None:
        yield progress
        return
    display = _display_of_cell()
    if display is None:
        yield Lines()
        return
    cell = NotebookCell(display)
    try:
        yield cell
    finally:
        cell.settle()


def _display_of_cell() -> Callable[..., Any] | None:
    """Return IPython's ``display`` in a notebook kernel; None in any terminal."""
    module = sys.modules.get("IPython")
    shell = module.get_ipython() if module is not None else None
    if shell is None or not hasattr(shell, "kernel"):
        return None
    from IPython.display import display

    return display  # type: ignore[no-any-return, unused-ignore]


REPEAT_S = 30.0
"""A plain log repeats an unchanged line after this long, so that a quiet CI job is not taken for hung."""


class Lines:
    """Printer of events, on stderr by default: a line for each change, and every 30 s."""

    def __init__(self, echo: Callable[[str], None] | None = None) -> None:
        """Write lines with `echo`."""
        self._echo = echo or (lambda line: print(line, file=sys.stderr))
        self._said: tuple[str, str | None] | None = None
        self._said_at_s = 0.0

    def __call__(self, event: Event) -> None:
        """Print the event if it is new, or if nothing was printed for 30 s."""
        key = (event.phase, event.status if event.phase == "waiting" else event.message)
        if key == self._said and event.elapsed_s - self._said_at_s < REPEAT_S:
            return
        self._said, self._said_at_s = key, event.elapsed_s
        self._echo(event_line(event))


class NotebookCell:
    """One notebook output: finished phases as lines, then the current event."""

    def __init__(self, display: Callable[..., Any], monotonic: Callable[[], float] = time.monotonic) -> None:
        """``display`` is IPython's; ``monotonic`` gives seconds."""
        self._display, self._monotonic = display, monotonic
        self._handle: Any = None
        self._lines: list[str] = []
        self._event: Event | None = None
        self._drawn_s = float("-inf")
        self._lock = threading.Lock()

    def __call__(self, event: Event) -> None:
        """Show the event; a new phase adds a line below the previous one."""
        with self._lock:
            known, self._event = self._event, event
            news = known is None or (event.phase, event.status) != (known.phase, known.status)
            if known is not None and news:
                self._lines.append(event_line(known))
            if news or self._monotonic() - self._drawn_s >= EVERY_S:
                self._draw()

    def settle(self) -> None:
        """Show the last event, also if updates were skipped."""
        with self._lock:
            if self._event is not None:
                self._draw()

    def _draw(self) -> None:
        lines = [*self._lines, *([event_line(self._event)] if self._event else [])]
        bundle = {
            "text/plain": "\n".join(lines),
            "text/html": line_html("\n".join(lines), _MUTED),
        }
        if self._handle is None:
            self._handle = self._display(bundle, raw=True, display_id=True)
        else:
            self._handle.update(bundle, raw=True)
        self._drawn_s = self._monotonic()


def discard_typed() -> None:
    """Discard keys that were typed before a confirmation prompt."""
    try:
        import termios
    except ImportError:  # not a POSIX system
        return
    with suppress(OSError, ValueError, AttributeError, termios.error):  # stdin may be closed, or not a file
        if sys.stdin.isatty():
            termios.tcflush(sys.stdin.fileno(), termios.TCIFLUSH)


def agreed(question: str) -> bool:
    """Ask on the terminal or in the notebook; only y and yes confirm."""
    discard_typed()
    try:
        return input(f"{question} [y/N] ").strip().lower() in ("y", "yes")
    except EOFError:
        return False
