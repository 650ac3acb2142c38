"""Server-sent events out of bytes that may be cut anywhere. Pure.

Parts of a SageMaker response stream need not coincide with events, lines or characters: readers that
decode or parse part by part lose text silently. So bytes are kept until a line is whole.
"""

from __future__ import annotations

MAX_EVENT_BYTES = 16 * 1024 * 1024


class EventTooLarge(ValueError):
    """One event is larger than the reader accepts."""


class SseParser:
    """Feed bytes, get the data of each event that is complete.

    Lines end in LF, CRLF or CR; several ``data`` lines of an event are joined by LF; comments and other
    fields are dropped, as the HTML standard says.
    """

    def __init__(self, max_event_bytes: int = MAX_EVENT_BYTES) -> None:
        """Start empty; ``max_event_bytes`` bounds what is kept for one event."""
        self._line = bytearray()
        self._data: list[bytes] = []
        self._kept = 0
        self._after_cr = False
        self._max = max_event_bytes

    def feed(self, part: bytes) -> list[bytes]:
        """Return the data of the events that ``part`` completes.

        Raises:
            EventTooLarge: an event outgrew the limit.
        """
        if not part:
            return []
        if self._after_cr and part.startswith(b"\n"):  # the LF of a CRLF that was cut in two
            part = part[1:]
        self._after_cr = part.endswith(b"\r")
        events: list[bytes] = []
        *lines, rest = part.replace(b"\r\n", b"\n").replace(b"\r", b"\n").split(b"\n")
        for line in lines:
            self._line += line
            self._take_line(bytes(self._line), events)
            self._line.clear()
        self._line += rest
        self._check_size()
        return events

    def finish(self) -> list[bytes]:
        """Return what an end without a closing blank line leaves: at most one event, possibly cut."""
        events: list[bytes] = []
        if self._line:
            self._take_line(bytes(self._line), events)
            self._line.clear()
        self._take_line(b"", events)
        return events

    def _take_line(self, line: bytes, events: list[bytes]) -> None:
        if not line:
            if self._data:
                events.append(b"\n".join(self._data))
                self._data = []
                self._kept = 0
        elif line.startswith(b"data:"):
            value = line[5:]
            self._data.append(value.removeprefix(b" "))
            self._kept += len(value)
            self._check_size()

    def _check_size(self) -> None:
        if self._kept + len(self._line) > self._max:
            raise EventTooLarge(f"an event of the stream is larger than {self._max:,} bytes")
