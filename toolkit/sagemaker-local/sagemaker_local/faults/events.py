"""Where server-sent events end in bytes that are cut anywhere. Pure."""

from __future__ import annotations

from collections.abc import Iterator

_LF, _CR = 0x0A, 0x0D


class EventCount:
    """Counts events until a number of them is reached, and says at which byte that was.

    An event ends with a blank line after lines with something in them. Lines end in LF or CRLF, as those of
    every engine do.
    """

    def __init__(self, wanted: int) -> None:
        """Count until ``wanted`` events have ended; 0 is reached before the first byte."""
        self._left = wanted
        self._line_empty = True
        self._event_empty = True

    def split(self, data: bytes) -> tuple[bytes, bytes | None]:
        """Return what belongs to the counted events, and what follows; None while they have not ended."""
        if self._left == 0:
            return b"", data
        for place, byte in enumerate(data):
            if byte == _CR:
                continue
            if byte != _LF:
                self._line_empty = self._event_empty = False
                continue
            if self._line_empty and not self._event_empty:
                self._event_empty = True
                self._left -= 1
                if self._left == 0:
                    return data[: place + 1], data[place + 1 :]
            self._line_empty = True
        return data, None


def events_of(data: bytes) -> Iterator[bytes]:
    """The events in bytes that begin with one; last, where there is one, the event that has not ended."""
    left: bytes | None = data
    while left:
        event, left = EventCount(1).split(left)
        yield event


def first_event(data: bytes) -> bytes:
    """The first event in bytes that begin with one, or all of them when none ends there."""
    return EventCount(1).split(data)[0]
