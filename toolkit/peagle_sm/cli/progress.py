"""How a deploy or a deletion is followed on stderr: a live line, plain lines, or JSON lines."""

from __future__ import annotations

from collections.abc import Callable
from types import TracebackType
from typing import TYPE_CHECKING, Any, Protocol, Self

import click

from peagle_sm.cli.base import State
from peagle_sm.cli.console import say, to_json
from peagle_sm.cli.terminal import event_line

if TYPE_CHECKING:
    from peagle_sm.service import Event

REPEAT_S = 30.0
"""A plain log says again after this long that it still waits, so that CI does not take it for dead."""


class Follower(Protocol):
    """Takes events while it is open as a context manager."""

    def __enter__(self) -> Self: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...

    def __call__(self, event: Event) -> None:
        """Take one event."""

    def pause(self) -> None:
        """Stop drawing until the next event, so that a question can be asked."""


class _Base:
    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        return None

    def pause(self) -> None:
        """Nothing moves here, so nothing has to stop for a question."""


class Silent(_Base):
    """For --format quiet."""

    def __call__(self, event: Event) -> None:
        """Say nothing."""


class JsonLines(_Base):
    """For --format json: each event is one JSON object on one line of stderr."""

    def __init__(self) -> None:
        """Start with nothing said."""
        self._said: tuple[str, str | None, str] | None = None

    def __call__(self, event: Event) -> None:
        """Print the event unless it repeats the last one."""
        key = (event.phase, event.status, event.message)
        if key == self._said:
            return
        self._said = key
        click.echo(
            to_json(
                {
                    "progress": {
                        "phase": event.phase,
                        "status": event.status,
                        "message": event.message,
                        "elapsed_s": round(event.elapsed_s, 1),
                        "spent_usd": event.spent_usd,
                        "resource": event.resource,
                        **_measured(event),
                    }
                },
                indent=None,
            ),
            err=True,
        )


def _measured(event: Event) -> dict[str, Any]:
    """What only the events of a measurement have."""
    if event.done is None:
        return {}
    left = None if event.left_s is None else round(event.left_s, 1)
    return {"done": event.done, "total": event.total, "left_s": left}


class PlainLines(_Base):
    """For pipes and CI: a line when something changes, and one every 30 s while it does not."""

    def __init__(self, echo: Callable[[str], None]) -> None:
        """Write lines with `echo`."""
        self._echo = echo
        self._said: tuple[str, str | None] | None = None
        self._said_at_s = 0.0

    def __call__(self, event: Event) -> None:
        """Print the event when it is news."""
        key = (event.phase, event.status if event.phase == "waiting" else event.message)
        if key == self._said and event.elapsed_s - self._said_at_s < REPEAT_S:
            return
        self._said, self._said_at_s = key, event.elapsed_s
        self._echo(event_line(event))


def follower(state: State) -> Follower:
    """The follower that fits the format and the terminal."""
    if state.format == "json":
        return JsonLines()
    if state.format == "quiet":
        return Silent()
    if state.stderr_is_tty():
        from peagle_sm.cli.live import LiveLine

        return LiveLine(state.monotonic)
    return PlainLines(say)
