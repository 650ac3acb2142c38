"""From a response stream's bytes to the engine's own, and whether the answer came to its end."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Sequence
from typing import Any

from botocore.eventstream import EventStreamBuffer, ParserError

from peagle_sm.core.errors import StreamError

_DONE = "[DONE]"
# vLLM sends the usage and [DONE] after the last choice.
_LAST = 8


async def payload_parts(chunks: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    """Decode AWS's event stream.

    Raises:
        StreamError: an exception frame (`ModelStreamError`, `InternalStreamFailure`), a damaged frame, or
            an end in the middle of one.
    """
    buffer: Any = EventStreamBuffer()
    received = decoded = 0
    async for data in chunks:
        received += len(data)
        buffer.add_data(data)
        try:
            for event in buffer:
                decoded += event.prelude.total_length
                if event.headers.get(":message-type") != "event":
                    raise StreamError(_exception_text(event.headers, event.payload))
                yield event.payload
        except ParserError as error:
            raise StreamError(f"a frame of the response stream is damaged: {error}") from error
    if received != decoded:
        raise StreamError(f"the response stream was cut within a frame, {received - decoded} bytes into it")


def check_end(messages: Sequence[str]) -> None:
    """Check the data of a stream's server-sent events once the connection has ended.

    Raises:
        StreamError: the engine reported an error in the stream, or the stream ended without `[DONE]` and
            without a finish reason.
    """
    for text in messages:
        if text.startswith('{"error"'):
            raise StreamError(f"the engine reported an error in the stream: {text[:500]}")
    last = messages[-_LAST:]
    if _DONE not in last and not any(map(_finishes, last)):
        raise StreamError(
            f"the response stream was cut: {len(messages)} events, then neither {_DONE} nor a finish reason"
        )


def _finishes(text: str) -> bool:
    try:
        choices = json.loads(text)["choices"]
        return any(choice.get("finish_reason") for choice in choices)
    except (ValueError, KeyError, TypeError, AttributeError):
        return False


def _exception_text(headers: dict[str, Any], payload: bytes) -> str:
    kind = headers.get(":exception-type") or headers.get(":error-code") or "an unnamed exception"
    try:
        said = json.loads(payload)
        code = said.get("ErrorCode")
        text = said.get("Message") or said.get("message") or payload.decode()
        return f"{kind}{f' ({code})' if code else ''}: {text}"
    except (ValueError, AttributeError):
        return f"{kind}: {payload[:500].decode(errors='replace')}"
