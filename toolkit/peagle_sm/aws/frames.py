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

_PRELUDE = Struct("!III")
_CRC = Struct("!I")
_FRAME_OVERHEAD = 16
#: Bytes of a header's value by its type; None: a length of two bytes comes first.
_VALUE_BYTES: dict[int, int | None] = {0: 0, 1: 0, 2: 1, 3: 2, 4: 4, 5: 8, 6: None, 7: None, 8: 8, 9: 16}
_PAYLOAD_EVENT = "event"
#: Headers that were read before: all payload parts of a service have the same.
_PAYLOAD_HEADERS: set[bytes] = set()


Timed = tuple[bytes, float]  #: bytes, and when they were complete


class FrameError(ValueError):
    """The bytes are no event stream."""


class FrameException(Exception):
    """The service ended the stream with an exception message: ``name`` and what it says."""

    def __init__(self, name: str, message: str) -> None:
        super().__init__(f"{name}: {message}")
        self.name = name
        self.message = message


class FrameDecoder:
    """Feed parts with the time of their arrival, get payloads, each with the time that completed it."""

    def __init__(self) -> None:
        """Start empty."""
        self._rest = b""

    @property
    def is_whole(self) -> bool:
        """Whether nothing of a message is left over."""
        return not self._rest

    def feed(self, parts: Iterable[Timed]) -> tuple[list[Timed], Exception | None]:
        """Return the payloads that ``parts`` complete, and the error that came after them, if any."""
        payloads: list[Timed] = []
        for part, at in parts:
            data = self._rest + part if self._rest else part
            try:
                used = self._take(data, at, payloads)
            except (FrameError, FrameException) as error:
                return payloads, error
            self._rest = data[used:]
        return payloads, None

    def _take(self, data: bytes, at: float, payloads: list[Timed]) -> int:
        start, size = 0, len(data)
        while size - start >= 12:
            total, header_bytes, prelude_crc = _PRELUDE.unpack_from(data, start)
            if crc32(data[start : start + 8]) != prelude_crc:
                raise FrameError("a message's prelude has a bad checksum")
            if not _FRAME_OVERHEAD + header_bytes <= total <= MAX_FRAME_BYTES:
                raise FrameError(f"a message says that it has {total:,} bytes, {header_bytes:,} of headers")
            end = start + total
            if end > size:
                break
            if crc32(data[start : end - 4]) != _CRC.unpack_from(data, end - 4)[0]:
                raise FrameError("a message has a bad checksum")
            headers_end = start + 12 + header_bytes
            payload = data[headers_end : end - 4]
            self._check_kind(data[start + 12 : headers_end], payload)
            payloads.append((payload, at))
            start = end
        return start

    def _check_kind(self, headers: bytes, payload: bytes) -> None:
        if headers in _PAYLOAD_HEADERS:
            return
        named = parse_headers(headers)
        if named.get(":message-type") != _PAYLOAD_EVENT:
            raise _exception(named, payload)
        if len(_PAYLOAD_HEADERS) < 16:
            _PAYLOAD_HEADERS.add(headers)


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
    except ValueError:
        return FrameException(name, payload[:200].decode(errors="replace"))
    if not isinstance(told, dict):
        return FrameException(name, str(told)[:200])
    message = str(told.get("Message") or told.get("message") or told)
    code = told.get("ErrorCode")
    return FrameException(name, f"{code}: {message}" if code else message)
