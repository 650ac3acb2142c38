"""From SageMaker's response stream to the very bytes of the engine's server-sent events. Pure.

Events are passed on whole, so that one that is cut never reaches a client as if it were an answer's end.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

from peagle_sm.aws.figures import acceptance_of, error_in
from peagle_sm.aws.frames import FrameDecoder
from peagle_sm.aws.sse import MAX_EVENT_BYTES, SseParser

#: A blank line: two ends of line, each LF, CRLF or CR. The groups are atomic, since CRLF is one end.
_BLANK_LINE = re.compile(rb"(?>\r\n|\n|\r)(?>\r\n|\n|\r)")
_DONE = b"[DONE]"


class Relay:
    """Feed the parts of a response stream, get whole events to pass on, to the byte.

    Attributes:
        problem: what ended the stream before its answer did, None while nothing has.
        reported: whether the engine told the problem itself, in an event that was passed on.
        tokens: output tokens that the engine counted, None where it does not say.
        acceptance_length: tokens per target step, None where the engine does not say.
    """

    def __init__(self, *, framed: bool = True, max_event_bytes: int = MAX_EVENT_BYTES) -> None:
        """``framed``: the events come inside messages of ``application/vnd.amazon.eventstream``."""
        self._frames = FrameDecoder() if framed else None
        self._rest = b""
        self._max = max_event_bytes
        self._done = False
        self._finished = False
        self.problem: str | None = None
        self.reported = False
        self.tokens: int | None = None
        self.acceptance_length: float | None = None

    def feed(self, part: bytes) -> bytes:
        """Return the events that ``part`` completes; after a `problem` there are none."""
        if self.problem is not None:
            return b""
        if self._frames is None:
            return self._events(part)
        payloads, broken = self._frames.feed([(part, 0.0)])
        passed = b"".join(self._events(payload) for payload, _ in payloads)
        if broken is not None:
            self.broke(f"the stream broke: {broken}")
        return passed

    def finish(self) -> bytes:
        """The stream has ended: return what is left to pass on, and set `problem` when it was cut."""
        if self.problem is not None:
            return b""
        whole = self._frames is None or self._frames.is_whole
        if whole and self._rest and not self._done:
            self._look_at(self._rest + b"\n\n")  # some servers leave the last blank line out
        if whole and self.is_answer:
            return self._rest
        self.problem, self.reported = "the stream ended before the answer did", False
        return b""

    @property
    def is_answer(self) -> bool:
        """Whether what has passed is a whole answer, whatever may follow it."""
        return self.problem is None and (self._done or self._finished)

    def broke(self, why: str) -> None:
        """Note that the connection failed; after [DONE] that does not matter."""
        if not self._done and self.problem is None:
            self.problem = why

    def _events(self, payload: bytes) -> bytes:
        if self.problem is not None:
            return b""
        data = self._rest + payload
        start = 0
        for blank in _BLANK_LINE.finditer(data, max(0, len(self._rest) - 3)):
            if not self._accepts(data[start : blank.end()]):
                self._rest = b""
                # The engine's own report goes out; what follows it (vLLM: [DONE]) would call it an answer.
                return data[: blank.end() if self.reported else start]
            start = blank.end()
        self._rest = data[start:]
        if len(self._rest) > self._max:
            self.problem = f"an event of the stream is larger than {self._max:,} bytes"
            self._rest = b""
        return data[:start]

    def _accepts(self, event: bytes) -> bool:
        self._look_at(event)
        return self.problem is None

    def _look_at(self, event: bytes) -> None:
        try:
            told = SseParser().feed(event)
        except ValueError as error:
            self.problem = f"the stream is damaged: {error}"
            return
        for data in told:
            if data.strip() == _DONE:
                self._done = True
            elif not self._done:
                self._take(data)

    def _take(self, data: bytes) -> None:
        try:
            document = json.loads(data)
        except ValueError:
            self.problem = "the stream is damaged: it holds an event that is not JSON"
            return
        if not isinstance(document, Mapping):
            self.problem = "the stream is damaged: it holds an event that is not an object"
            return
        failed = error_in(document)
        if failed is not None:
            self.problem, self.reported = f"the engine reported an error: {failed}", True
            return
        self._finished = self._finished or any(
            isinstance(choice, Mapping) and choice.get("finish_reason")
            for choice in document.get("choices") or ()
        )
        tokens, length = figures_of(document)
        self.tokens = self.tokens if tokens is None else tokens
        self.acceptance_length = self.acceptance_length if length is None else length


def figures_of(document: Mapping[str, Any]) -> tuple[int | None, float | None]:
    """Return (output tokens, acceptance length) of an answer or an event; None for what it does not say."""
    usage = document.get("usage")
    tokens = usage.get("completion_tokens") if isinstance(usage, Mapping) else None
    try:
        acceptance = acceptance_of(document)
    except (AttributeError, KeyError, TypeError, ValueError):
        acceptance = None  # an engine of another kind; the answer is passed on all the same
    return (
        tokens if isinstance(tokens, int) else None,
        None if acceptance is None else acceptance.acceptance_length,
    )
