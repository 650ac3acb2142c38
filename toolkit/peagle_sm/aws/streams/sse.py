"""Server-sent events out of bytes that may be cut anywhere. Pure.

Parts of a SageMaker response stream need not coincide with events, lines or characters: readers that
decode or parse part by part lose text silently. So bytes are kept until a line is whole.

Nearly always a part is one event of one line that ends in LF LF. Such parts are taken as they are, for a
quarter of the time; all others go line by line. Tests hold both ways equal on any bytes, however cut.
"""

from __future__ import annotations

MAX_EVENT_BYTES = 16 * 1024 * 1024

_BOM = b"\xef\xbb\xbf"
#: What a line may begin with. The standard has readers drop all other lines, but a line lost is text lost.
_KNOWN = (b":", b"event", b"id", b"retry")


class SseError(ValueError):
    """The bytes are no server-sent events; ``events`` are those that came whole before."""

    events: tuple[bytes, ...] = ()


class EventTooLarge(SseError):
    """One event is larger than the reader accepts."""


class StrangeLine(SseError):
    """``line`` begins with a field that the standard does not have: a damaged ``data`` looks like that."""

    def __init__(self, line: bytes) -> None:
        """Keep the line."""
        super().__init__(f"a line of the stream is of no event: {line[:100]!r}")
        self.line = line


class SseParser:
    """Feed bytes, get the data of each event that is complete.

    Lines end in LF, CRLF or CR; several ``data`` lines of an event are joined by LF; comments and other
    standard fields are dropped, as the HTML standard says; so are events without data.
    """

    def __init__(self, max_event_bytes: int = MAX_EVENT_BYTES) -> None:
        """Start empty; ``max_event_bytes`` bounds what is kept for one event."""
        self._line = bytearray()
        self._data: list[bytes] = []
        self._kept = 0
        self._after_cr = False
        self._first = True
        self._max = max_event_bytes
        self._between = True  #: nothing is kept: the next byte begins an event

    def feed(self, part: bytes) -> list[bytes]:
        """Return the data of the events that ``part`` completes.

        Raises:
            EventTooLarge: an event outgrew the limit.
            StrangeLine: a line of no field that the standard has.
        """
        if (
            self._between
            and part.startswith(b"data: ")
            and part.find(b"\n") == len(part) - 2
            and part[-1] == 10
            and b"\r" not in part
            and 8 < len(part) <= self._max
        ):
            return [part[6:-2]]
        if not part:
            return []
        events: list[bytes] = []
        try:
            self._take_lines(part, events)
        except SseError as error:
            error.events = tuple(events)
            raise
        self._between = not (self._line or self._data or self._after_cr)
        return events

    def finish(self) -> list[bytes]:
        """Return what an end without a closing blank line leaves: at most one event, possibly cut.

        Raises:
            StrangeLine: as `feed`; at an end it is most likely a line that was cut.
        """
        events: list[bytes] = []
        if self._line:
            self._take_line(bytes(self._line), events)
            self._line.clear()
        self._take_line(b"", events)
        self._between = True
        return events

    def _take_lines(self, part: bytes, events: list[bytes]) -> None:
        if self._after_cr and part.startswith(b"\n"):  # the LF of a CRLF that was cut in two
            part = part[1:]
        self._after_cr = part.endswith(b"\r")
        if b"\r" in part:
            part = part.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
        *lines, rest = part.split(b"\n")
        for line in lines:
            if self._line:
                self._line += line
                line = bytes(self._line)
                self._line.clear()
            self._take_line(line, events)
        self._line += rest
        self._check_size()

    def _take_line(self, line: bytes, events: list[bytes]) -> None:
        if self._first:
            self._first = False
            line = line.removeprefix(_BOM)
        if not line:
            if self._data:
                event = self._data[0] if len(self._data) == 1 else b"\n".join(self._data)
                if event:
                    events.append(event)
                self._data = []
                self._kept = 0
        elif line.startswith(b"data:"):
            value = line[5:]
            self._data.append(value.removeprefix(b" "))
            self._kept += len(value)
            self._check_size()
        elif not line.startswith(_KNOWN):
            raise StrangeLine(line)

    def _check_size(self) -> None:
        if self._kept + len(self._line) > self._max:
            raise EventTooLarge(f"an event of the stream is larger than {self._max:,} bytes")
