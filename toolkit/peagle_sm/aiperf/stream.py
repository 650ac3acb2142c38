"""From a response stream's bytes to the engine's own, and whether the answer came to its end."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Sequence

from peagle_sm.aws.frames import FrameDecoder, FrameException
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
    decoder = FrameDecoder()
    async for data in chunks:
        payloads, error = decoder.feed([(data, 0.0)])
        for payload, _ in payloads:
            yield payload
        if isinstance(error, FrameException):
            raise StreamError(str(error)) from error
        if error is not None:
            raise StreamError(f"a frame of the response stream is damaged: {error}") from error
    if not decoder.is_whole:
        raise StreamError("the response stream was cut within a frame")


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
