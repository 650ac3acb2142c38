"""Encoding of an answer: SageMaker's frames, or plain bytes as on the OpenAI route. Pure."""

from __future__ import annotations

import random
from typing import Literal, Protocol

from sagemaker_local.wire import eventstream

Damage = Literal["prelude", "message", "garbage"]

_PRELUDE_CRC = 8  #: where the checksum of a message's two lengths begins
_MESSAGE_CRC_BYTES = 4
_GARBAGE_BYTES = 48


class Wire(Protocol):
    """Encoder of payload for the connection."""

    def part(self, payload: bytes) -> bytes:
        """Encode one part of the answer."""

    def damaged(self, payload: bytes, how: Damage, chance: random.Random) -> bytes:
        """Encode one part so that it cannot be read."""


class EventStreamWire:
    """``application/vnd.amazon.eventstream``: each part in a frame with checksums."""

    def part(self, payload: bytes) -> bytes:
        """Return a ``PayloadPart`` event."""
        return eventstream.payload_part(payload)

    def damaged(self, payload: bytes, how: Damage, chance: random.Random) -> bytes:
        """Return a frame whose prelude or content does not fit its checksum, or garbage before it."""
        frame = bytearray(self.part(payload))
        if how == "garbage":
            return chance.randbytes(_GARBAGE_BYTES) + bytes(frame)
        at = _PRELUDE_CRC if how == "prelude" else len(frame) - _MESSAGE_CRC_BYTES - 1
        frame[at] ^= 0xFF
        return bytes(frame)


class BareWire:
    """Plain server-sent events, without checksums."""

    def part(self, payload: bytes) -> bytes:
        """Return the payload."""
        return payload

    def damaged(self, payload: bytes, how: Damage, chance: random.Random) -> bytes:
        """Return the payload with bytes in its middle that no UTF-8 text has, whatever ``how`` says."""
        middle = len(payload) // 2
        return payload[:middle] + b"\xff\xfe" + payload[middle + 2 :]
