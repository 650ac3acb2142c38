"""Payloads out of ``application/vnd.amazon.eventstream``, cut anywhere. Pure.

A message is: total length, header length, a CRC of those two, the headers, the payload, and a CRC of all
before it; integers are big-endian (Smithy specification, "Amazon Event Stream"). botocore's own decoder takes
about twice the time a message, and loses an exception's ErrorCode.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from struct import Struct
from zlib import crc32

MAX_FRAME_BYTES = 24 * 1024 * 1024  #: the specification's limit on a message is 16 MiB of payload
MAX_HEADER_BYTES = 128 * 1024  #: the specification's limit

_PRELUDE = Struct("!III")
_CRC = Struct("!I")
_FRAME_OVERHEAD = 16
#: Bytes of a header's value by its type; None: a length of two bytes comes first.
_VALUE_BYTES: dict[int, int | None] = {0: 0, 1: 0, 2: 1, 3: 2, 4: 4, 5: 8, 6: None, 7: None, 8: 8, 9: 16}
_PAYLOAD_EVENT = "PayloadPart"
#: Headers that were read before: all payload parts of a service have the same.
_PAYLOAD_HEADERS: set[bytes] = set()


Timed = tuple[bytes, float]  #: bytes, and when they were complete


class FrameError(ValueError):
    """The bytes are no event stream."""


class FrameException(Exception):
    """The service ended the stream with an exception message: ``name``, what it says, and its ErrorCode.

    ``message`` begins with the code where there is one.
    """

    def __init__(self, name: str, message: str, error_code: str = "") -> None:
        self.message = f"{error_code}: {message}" if error_code else message
        super().__init__(f"{name}: {self.message}")
        self.name = name
        self.error_code = error_code


class FrameDecoder:
    """Feed parts with the time of their arrival, get payloads, each with the time that completed it."""

    def __init__(self) -> None:
        """Start empty."""
        self._rest = bytearray()
        self._wanted = 0  #: bytes of the message that `_rest` begins, as far as is known

    @property
    def is_whole(self) -> bool:
        """Whether nothing of a message is left over."""
        return not self._rest

    def feed(self, parts: Iterable[Timed]) -> tuple[list[Timed], Exception | None]:
        """Return the payloads that ``parts`` complete, and the error that came after them, if any."""
        payloads: list[Timed] = []
        take = self.take
        for part, at in parts:
            found, error = take(part)
            for payload in found:
                payloads.append((payload, at))
            if error is not None:
                return payloads, error
        return payloads, None

    def take(self, part: bytes) -> tuple[list[bytes], Exception | None]:
        """As `feed`, for one part without its time."""
        payloads: list[bytes] = []
        rest = self._rest
        if rest:
            rest += part
            if len(rest) < self._wanted:  # so that a large message in small parts is copied once
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
                raise FrameError("a message's prelude has a bad checksum")
            if (
                not _FRAME_OVERHEAD + header_bytes <= total <= MAX_FRAME_BYTES
                or header_bytes > MAX_HEADER_BYTES
            ):
                raise FrameError(f"a message says that it has {total:,} bytes, {header_bytes:,} of headers")
            end = start + total
            if end > size:
                self._wanted = total
                break
            if crc32(data[start : end - 4]) != _CRC.unpack_from(data, end - 4)[0]:
                raise FrameError("a message has a bad checksum")
            headers_end = start + 12 + header_bytes
            payload = data[headers_end : end - 4]
            headers = data[start + 12 : headers_end]
            if headers in _PAYLOAD_HEADERS or _holds_payload(headers, payload):
                payloads.append(payload)
            start = end
        return start


def _holds_payload(headers: bytes, payload: bytes) -> bool:
    """Whether a message is a part of the answer; a new kind of event, as AWS may add, is not.

    Raises:
        FrameError: the headers cannot be read.
        FrameException: it is an exception or an error.
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
        FrameError: they are cut, or hold a type that does not exist.
    """
    found: dict[str, str] = {}
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
                found[name] = data[place : place + length].decode()
            place += length
    except (IndexError, KeyError, UnicodeDecodeError) as error:
        raise FrameError(f"a message's headers cannot be read: {error!r}") from error
    return found


def _exception(headers: dict[str, str], payload: bytes) -> FrameException:
    if headers.get(":message-type") == "error":
        return FrameException(headers.get(":error-code", "error"), headers.get(":error-message", ""))
    name = headers.get(":exception-type", "exception")
    try:
        told = json.loads(payload)
    except (ValueError, RecursionError):
        return FrameException(name, payload[:200].decode(errors="replace"))
    if not isinstance(told, dict):
        return FrameException(name, str(told)[:200])
    message = str(told.get("Message") or told.get("message") or told)
    return FrameException(name, message, str(told.get("ErrorCode") or ""))
