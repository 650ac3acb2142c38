"""Progress on stderr: a live line, plain lines, or JSON lines."""

from __future__ import annotations

from types import TracebackType
from typing import TYPE_CHECKING, Any, Protocol, Self

import click

from peagle_sm.cli.base import State
from peagle_sm.cli.console import say, to_json
from peagle_sm.service.progress import Lines

if TYPE_CHECKING:
    from peagle_sm.service import Event


class Follower(Protocol):
    """Receiver of progress events while it is open as a context manager."""

    def __enter__(self) -> Self: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...

    def __call__(self, event: Event) -> None:
        """Take one event."""

    def pause(self) -> None:
        """Stop drawing until the next event, so that a prompt can be shown."""


class _Base:
    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        return None

    def pause(self) -> None:
        """Do nothing: printed lines do not disturb a prompt."""


class SilentFollower(_Base):
    """Follower for --format quiet."""

    def __call__(self, event: Event) -> None:
        """Print nothing."""


class JsonLines(_Base):
    """Follower for --format json: one JSON line on stderr for each event."""

    def __init__(self) -> None:
        """Start without a last event."""
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
    """Return the fields that only events of a measurement have."""
    if event.done is None:
        return {}
    left = None if event.left_s is None else round(event.left_s, 1)
    return {"done": event.done, "total": event.total, "left_s": left}


class PlainLines(_Base, Lines):
    """Follower for pipes and CI."""


def follower(state: State) -> Follower:
    """Return the follower for the format and the terminal."""
    if state.format == "json":
        return JsonLines()
    if state.format == "quiet":
        return SilentFollower()
    if state.stderr_is_tty():
        from peagle_sm.cli.live import LiveLine

        return LiveLine(state.monotonic)
    return PlainLines(say)
