"""Parsers of server-sent events and event-stream messages. Pure.

Parts of a SageMaker response stream may split events, lines and characters. Clients that decode part by part
lose text silently, so bytes are kept until a line is complete. Nearly always a part is one event of one line
that ends with LF LF. Such parts have a fast path that takes a quarter of the time; all others are parsed line
by line. Tests compare both ways on arbitrary bytes and cuts.

Messages of ``application/vnd.amazon.eventstream`` are decoded by botocore's `EventStreamBuffer`. botocore's
own `EventStream` above it is not used: it drops an exception's ErrorCode, and an end in the middle of a
message is not an error there.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Iterable, Mapping
from typing import Any

MAX_EVENT_BYTES = 16 * 1024 * 1024

_BOM = b"\xef\xbb\xbf"
#: Allowed starts of a line. The standard drops other lines, but a dropped line may be lost text.
_KNOWN = (b":", b"event", b"id", b"retry")


class SseError(ValueError):
    """The bytes are not server-sent events; ``events`` are the complete ones before."""

    events: tuple[bytes, ...] = ()


class EventTooLarge(SseError):
    """One event is larger than the limit."""


class StrangeLine(SseError):
    """``line`` starts with an unknown field, as a damaged ``data`` line does."""

    def __init__(self, line: bytes) -> None:
        super().__init__(f"a line of the stream has no known field: {line[:100]!r}")
        self.line = line


class SseParser:
    """Parser from bytes to the data of complete events.

    Lines end with LF, CRLF or CR; several ``data`` lines of an event are joined by LF. As in the HTML
    standard, comments, other standard fields and events without data are dropped.
    """

    def __init__(self, max_event_bytes: int = MAX_EVENT_BYTES) -> None:
        """Start empty; ``max_event_bytes`` limits the bytes of one event."""
        self._line = bytearray()
        self._data: list[bytes] = []
        self._kept = 0
        self._after_cr = False
        self._first = True
        self._max = max_event_bytes
        self._between = True  #: no partial event is kept: the next byte starts an event

    def feed(self, part: bytes) -> list[bytes]:
        """Return the data of the events that ``part`` completes.

        Raises:
            EventTooLarge: an event is larger than the limit.
            StrangeLine: a line has an unknown field.
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
        """Return the event at an end without a blank line, if any; it may be cut.

        Raises:
            StrangeLine: as in `feed`; at an end the line was probably cut.
        """
        events: list[bytes] = []
        if self._line:
            self._take_line(bytes(self._line), events)
            self._line.clear()
        self._take_line(b"", events)
        self._between = True
        return events

    def _take_lines(self, part: bytes, events: list[bytes]) -> None:
        if self._after_cr and part.startswith(b"\n"):  # the LF of a split CRLF
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


_PAYLOAD_EVENT = "PayloadPart"

Timed = tuple[bytes, float]  #: bytes and their completion time


class FrameError(ValueError):
    """The bytes are not an event stream."""


class FrameException(Exception):
    """The service ended the stream with an exception message.

    ``message`` starts with the ErrorCode, if there is one.
    """

    def __init__(self, name: str, message: str, error_code: str = "") -> None:
        self.message = f"{error_code}: {message}" if error_code else message
        super().__init__(f"{name}: {self.message}")
        self.name = name
        self.error_code = error_code


class FrameDecoder:
    """Decoder from timed parts to payloads, each with its completion time."""

    def __init__(self) -> None:
        from botocore.eventstream import EventStreamBuffer

        self._buffer: Any = EventStreamBuffer()  # the stubs have another type for its messages
        self._pending = 0  #: bytes of a message that is not complete yet

    @property
    def is_whole(self) -> bool:
        """True if no partial message is kept."""
        return not self._pending

    def feed(self, parts: Iterable[Timed]) -> tuple[list[Timed], Exception | None]:
        """Return the payloads that ``parts`` complete, and the error after them, if any."""
        payloads: list[Timed] = []
        for part, at in parts:
            decoded, error = self.take(part)
            payloads += [(payload, at) for payload in decoded]
            if error is not None:
                return payloads, error
        return payloads, None

    def take(self, part: bytes) -> tuple[list[bytes], Exception | None]:
        """Do the same as `feed`, for one part without a time."""
        from botocore.eventstream import ParserError

        payloads: list[bytes] = []
        self._buffer.add_data(part)
        self._pending += len(part)
        try:
            for message in self._buffer:
                self._pending -= message.prelude.total_length
                if message.headers.get(":message-type") != "event":
                    raise _exception(message.headers, message.payload)
                if message.headers.get(":event-type") == _PAYLOAD_EVENT:  # the service may add other types
                    payloads.append(message.payload)
        except FrameException as error:
            return payloads, error
        except (ParserError, ValueError, LookupError, struct.error) as error:
            return payloads, FrameError(f"a message cannot be decoded ({error})")
        return payloads, None


def _exception(headers: Mapping[str, Any], payload: bytes) -> FrameException:
    if headers.get(":message-type") == "error":
        return FrameException(
            str(headers.get(":error-code", "error")), str(headers.get(":error-message", ""))
        )
    name = str(headers.get(":exception-type", "exception"))
    try:
        document = json.loads(payload)
    except (ValueError, RecursionError):
        return FrameException(name, payload[:200].decode(errors="replace"))
    if not isinstance(document, dict):
        return FrameException(name, str(document)[:200])
    message = str(document.get("Message") or document.get("message") or document)
    return FrameException(name, message, str(document.get("ErrorCode") or ""))
