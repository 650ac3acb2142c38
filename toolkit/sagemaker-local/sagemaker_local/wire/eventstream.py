"""Encoder for ``application/vnd.amazon.eventstream``, the framing of response streams.

botocore only decodes this format. A message is: total length, header length and a CRC of
those two (the prelude), then headers, payload, and a CRC of everything before it; all
integers are big-endian (Smithy specification, "Amazon Event Stream").
"""

from __future__ import annotations

import json
from struct import pack
from typing import Literal
from zlib import crc32

CONTENT_TYPE = "application/vnd.amazon.eventstream"

_STRING_HEADER = b"\x07"
_PRELUDE_AND_CRCS = 16


def header(name: str, value: str) -> bytes:
    """Encode one string header."""
    name_bytes, value_bytes = name.encode(), value.encode()
    return bytes([len(name_bytes)]) + name_bytes + _STRING_HEADER + pack("!H", len(value_bytes)) + value_bytes


def message(headers: bytes, payload: bytes) -> bytes:
    """Encode one message from encoded headers and its payload."""
    prelude = pack("!II", _PRELUDE_AND_CRCS + len(headers) + len(payload), len(headers))
    prelude += pack("!I", crc32(prelude))
    unsigned = prelude + headers + payload
    return unsigned + pack("!I", crc32(unsigned))


# The headers of every payload part are the same, so they are encoded once.
_PAYLOAD_PART = (
    header(":message-type", "event")
    + header(":event-type", "PayloadPart")
    + header(":content-type", "application/octet-stream")
)


def payload_part(chunk: bytes) -> bytes:
    """Encode bytes of the model's response as a ``PayloadPart`` event."""
    return message(_PAYLOAD_PART, chunk)


def exception(name: Literal["ModelStreamError", "InternalStreamFailure"], members: dict[str, str]) -> bytes:
    """Encode an exception that ends a stream, with its members as JSON."""
    headers = (
        header(":message-type", "exception")
        + header(":exception-type", name)
        + header(":content-type", "application/json")
    )
    return message(headers, json.dumps(members).encode())
