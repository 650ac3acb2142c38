"""Parsers of server-sent events and event-stream messages. Pure.

Parts of a SageMaker response stream may split events, lines and characters. Clients that decode part by part
lose text silently, so bytes are kept until a line is complete. Nearly always a part is one event of one line
that ends with LF LF. Such parts have a fast path that takes a quarter of the time; all others are parsed line
by line. Tests compare both ways on arbitrary bytes and cuts.

A message of ``application/vnd.amazon.eventstream`` is: total length, header length, a CRC of those two, the
headers, the payload, and a CRC of everything before it; integers are big-endian (Smithy specification,
"Amazon Event Stream"). botocore's decoder needs about twice the time per message, and drops an exception's
ErrorCode.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from struct import Struct
from zlib import crc32

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


MAX_FRAME_BYTES = 24 * 1024 * 1024  #: the specification's limit on a message is 16 MiB of payload
MAX_HEADER_BYTES = 128 * 1024  #: the specification's limit

_PRELUDE = Struct("!III")
_CRC = Struct("!I")
_FRAME_OVERHEAD = 16
#: Bytes of a header's value by its type; None: a two-byte length comes first.
_VALUE_BYTES: dict[int, int | None] = {0: 0, 1: 0, 2: 1, 3: 2, 4: 4, 5: 8, 6: None, 7: None, 8: 8, 9: 16}
_PAYLOAD_EVENT = "PayloadPart"
#: Cache of parsed headers: all payload parts of a service have the same ones.
_PAYLOAD_HEADERS: set[bytes] = set()


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
        self._rest = bytearray()
        self._wanted = 0  #: length of the message that starts `_rest`, if known

    @property
    def is_whole(self) -> bool:
        """True if no partial message is kept."""
        return not self._rest

    def feed(self, parts: Iterable[Timed]) -> tuple[list[Timed], Exception | None]:
        """Return the payloads that ``parts`` complete, and the error after them, if any."""
        payloads: list[Timed] = []
        take = self.take
        for part, at in parts:
            decoded, error = take(part)
            for payload in decoded:
                payloads.append((payload, at))
            if error is not None:
                return payloads, error
        return payloads, None

    def take(self, part: bytes) -> tuple[list[bytes], Exception | None]:
        """Do the same as `feed`, for one part without a time."""
        payloads: list[bytes] = []
        rest = self._rest
        if rest:
            rest += part
            if len(rest) < self._wanted:  # a large message in small parts is copied only once
                return payloads, None
            part = bytes(rest)
            rest.clear()
        try:
            used = self._split(part, payloads)
        except (FrameError, FrameException) as error:
            return payloads, error
        if used != len(part):
            rest += part[used:]
        return payloads, None

    def _split(self, data: bytes, payloads: list[bytes]) -> int:
        start, size = 0, len(data)
        self._wanted = 12
        while size - start >= 12:
            total, header_bytes, prelude_crc = _PRELUDE.unpack_from(data, start)
            if crc32(data[start : start + 8]) != prelude_crc:
                raise FrameError("a message's prelude has a wrong checksum")
            if (
                not _FRAME_OVERHEAD + header_bytes <= total <= MAX_FRAME_BYTES
                or header_bytes > MAX_HEADER_BYTES
            ):
                raise FrameError(
                    f"a message has a wrong length: {total:,} bytes, {header_bytes:,} of headers"
                )
            end = start + total
            if end > size:
                self._wanted = total
                break
            if crc32(data[start : end - 4]) != _CRC.unpack_from(data, end - 4)[0]:
                raise FrameError("a message has a wrong checksum")
            headers_end = start + 12 + header_bytes
            payload = data[headers_end : end - 4]
            headers = data[start + 12 : headers_end]
            if headers in _PAYLOAD_HEADERS or _holds_payload(headers, payload):
                payloads.append(payload)
            start = end
        return start


def _holds_payload(headers: bytes, payload: bytes) -> bool:
    """Return whether a message is a payload part; unknown event types are not.

    Raises:
        FrameError: the headers cannot be read.
        FrameException: the message is an exception or an error.
    """
    named = parse_headers(headers)
    if named.get(":message-type") != "event":
        raise _exception(named, payload)
    if named.get(":event-type") != _PAYLOAD_EVENT:
        return False
    if len(_PAYLOAD_HEADERS) < 16:
        _PAYLOAD_HEADERS.add(headers)
    return True


def parse_headers(data: bytes) -> dict[str, str]:
    """Return the string headers of a message; those of other types are skipped.

    Raises:
        FrameError: they are cut, or have an unknown type.
    """
    headers: dict[str, str] = {}
    place = 0
    try:
        while place < len(data):
            name_end = place + 1 + data[place]
            name, kind = data[place + 1 : name_end].decode(), data[name_end]
            place = name_end + 1
            length = _VALUE_BYTES[kind]
            if length is None:
                length = int.from_bytes(data[place : place + 2], "big")
                place += 2
            if place + length > len(data):
                raise FrameError("a message's headers are cut")
            if kind == 7:
                headers[name] = data[place : place + length].decode()
            place += length
    except (IndexError, KeyError, UnicodeDecodeError) as error:
        raise FrameError(f"a message's headers cannot be read: {error!r}") from error
    return headers


def _exception(headers: dict[str, str], payload: bytes) -> FrameException:
    if headers.get(":message-type") == "error":
        return FrameException(headers.get(":error-code", "error"), headers.get(":error-message", ""))
    name = headers.get(":exception-type", "exception")
    try:
        document = json.loads(payload)
    except (ValueError, RecursionError):
        return FrameException(name, payload[:200].decode(errors="replace"))
    if not isinstance(document, dict):
        return FrameException(name, str(document)[:200])
    message = str(document.get("Message") or document.get("message") or document)
    return FrameException(name, message, str(document.get("ErrorCode") or ""))
