"""Where a stream's bytes come from: the HTTP response under botocore's EventStream, or its events."""

from __future__ import annotations

import contextlib
import weakref
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any


def _nothing() -> None:
    """There is nothing to close."""


@dataclass
class Source:
    """Parts, cut anywhere; ``framed``: as an event stream; ``interrupt`` ends a read that is blocked."""

    parts: Iterator[bytes]
    framed: bool = False
    close: Callable[[], object] = _nothing
    interrupt: Callable[[], None] | None = None


def source_of(events: Any) -> Source:
    """Take botocore's EventStream apart.

    Its decoder drops a ModelStreamError's ErrorCode and returns normally when the bytes end in the middle of
    a message, so the bytes are read under it. ``_raw_stream`` is not part of botocore's public interface:
    where it is not there, the events are read as botocore gives them, without the ErrorCode.
    """
    close = getattr(events, "close", _nothing)
    raw = getattr(events, "_raw_stream", None)
    if raw is None or not callable(getattr(raw, "stream", None)):
        return Source(_payloads(events), close=close)
    interrupt = _interrupter(raw) if callable(getattr(raw, "shutdown", None)) else None
    return Source(_parts(raw), framed=True, close=close, interrupt=interrupt)


def _parts(raw: Any) -> Iterator[bytes]:
    if getattr(raw, "chunked", True) or not hasattr(raw, "read1"):
        yield from raw.stream()
        return
    while part := raw.read1():  # `stream` would wait until 64 KiB are there
        yield part


def _payloads(events: Any) -> Iterator[bytes]:
    for event in events:
        part = event.get("PayloadPart")
        if part is not None:
            yield part.get("Bytes", b"")


def _interrupter(raw: Any) -> Callable[[], None]:
    """Shuts the socket's reading side; it keeps nothing alive that nobody reads any more."""
    alive = weakref.ref(raw)

    def interrupt() -> None:
        response = alive()
        if response is not None:
            # Closed, or back in the pool: there is nothing to interrupt.
            with contextlib.suppress(OSError, RuntimeError, ValueError, AttributeError):
                response.shutdown()

    return interrupt
