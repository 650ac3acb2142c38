"""Server-sent events with the time that each was complete. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from peagle_sm.aws.streams.frames import Timed
from peagle_sm.aws.streams.sse import MAX_EVENT_BYTES, SseParser


class TimedEvents:
    """Feed parts cut anywhere, each with its time; get events' data, each with the time that completed it."""

    def __init__(self, max_event_bytes: int = MAX_EVENT_BYTES) -> None:
        """Start empty; ``max_event_bytes`` bounds what is kept for one event."""
        self._parser = SseParser(max_event_bytes)

    def feed(self, parts: Sequence[Timed]) -> list[Timed]:
        """Return the events that ``parts`` complete.

        Raises:
            SseError: an event outgrew the limit, or a line is of no event.
        """
        feed = self._parser.feed
        return [(event, at) for part, at in parts for event in feed(part)]

    def finish(self, at: float) -> list[Timed]:
        """Return what an end without a closing blank line leaves: at most one event, possibly cut.

        Raises:
            SseError: a line is of no event: most likely it was cut.
        """
        return [(event, at) for event in self._parser.finish()]
