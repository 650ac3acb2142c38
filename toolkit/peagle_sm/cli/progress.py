"""Progress on stderr: a live line, plain lines, or JSON lines."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Self

import click

from peagle_sm.cli.console import to_json
from peagle_sm.service.progress import Lines

if TYPE_CHECKING:
    from peagle_sm.service import Event


class Follower:
    """Receiver of progress events while it is open as a context manager; for quiet, it prints nothing."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.pause()

    def __call__(self, event: Event) -> None:
        """Take one event."""

    def pause(self) -> None:
        """Stop drawing until the next event, so that a prompt can be shown."""


class JsonLines(Follower):
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


class PlainLines(Lines, Follower):
    """Follower for pipes and CI."""
