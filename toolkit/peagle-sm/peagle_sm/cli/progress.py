"""Progress on stderr: a live line, plain lines, or JSON lines.

Only `LiveLine` imports rich.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Self

import click

from peagle_sm.cli import terminal
from peagle_sm.cli.console import to_json
from peagle_sm.service.progress import Lines, event_line

if TYPE_CHECKING:
    from rich.console import Console
    from rich.spinner import Spinner
    from rich.text import Text

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


class LiveLine(Follower):
    """Progress with a line for each finished phase, a spinner for the running one.

    Its clock runs between polls.
    """

    def __init__(self, monotonic: Callable[[], float], console: Console | None = None) -> None:
        """Draw on `console`, stderr unless given; `monotonic` gives seconds."""
        from rich.console import Console
        from rich.live import Live
        from rich.spinner import Spinner

        self._monotonic = monotonic
        self._console = console or Console(stderr=True)
        self._spinner = Spinner("dots")
        self._event: Event | None = None
        self._received_at = 0.0
        self._live = Live(
            console=self._console, get_renderable=self._draw, refresh_per_second=4, transient=True
        )

    def __call__(self, event: Event) -> None:
        """Show the event; if it begins a new phase, print the previous one as a line."""
        if not self._live.is_started:
            self._live.start()
        line = self._line()
        known = self._event
        self._event, self._received_at = event, self._monotonic()
        if known is not None and (event.phase, event.status) != (known.phase, known.status):
            self._leave(line)

    def pause(self) -> None:
        """Print the phase as a line and stop drawing until the next event."""
        line = self._line()
        self._event = None
        self._leave(line)
        self._live.stop()

    def _leave(self, line: str) -> None:
        from rich.text import Text

        if line:
            self._console.print(Text(terminal.fit(line, self._console.width)), soft_wrap=True)

    def _line(self) -> str:
        if self._event is None:
            return ""
        return event_line(self._event, self._event.elapsed_s + self._monotonic() - self._received_at)

    def _draw(self) -> Spinner | Text:
        from rich.text import Text

        if self._event is None:
            return Text("")
        text = Text(self._line().split("\n")[0])
        text.truncate(self._console.width - 2, overflow="ellipsis")  # the spinner takes two columns
        self._spinner.update(text=text)
        return self._spinner
