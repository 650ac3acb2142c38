"""From SageMaker's response stream to the very bytes of the engine's server-sent events. Pure.

Events are passed on whole, so that one that is cut never reaches a client as if it were an answer's end. What
an event means is decided by the reader that `Endpoint.stream` uses; here every answer of a request counts.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from peagle_sm.aws.streams.events import Document, EventReader
from peagle_sm.aws.streams.figures import acceptance_of
from peagle_sm.aws.streams.frames import FrameDecoder
from peagle_sm.aws.streams.sse import MAX_EVENT_BYTES
from peagle_sm.core.errors import StreamError
from peagle_sm.core.stream_errors import StreamCut, StreamDamaged, StreamTooLarge
from peagle_sm.service.serving.answers import Problem

#: A blank line: two ends of line, each LF, CRLF or CR. The groups are atomic, since CRLF is one end.
_BLANK_LINE = re.compile(rb"(?>\r\n|\n|\r)(?>\r\n|\n|\r)")
_OTHER_FORM = (AttributeError, TypeError, ValueError)


class Relay:
    """Feed the parts of a response stream, get whole events to pass on, to the byte.

    Attributes:
        problem: what ended the stream before its answers did, None while nothing has. The event that shows it
            is not passed on.
        tokens: output tokens that the engine counted, None where it does not say.
        acceptance_length: tokens per target step, None where the engine does not say.
    """

    def __init__(
        self, *, answers: int = 1, framed: bool = True, max_event_bytes: int = MAX_EVENT_BYTES
    ) -> None:
        """``answers``: how many the request asks for, its prompts times n; each needs a finish_reason.

        ``framed``: the events come inside messages of ``application/vnd.amazon.eventstream``.
        """
        self._frames = FrameDecoder() if framed else None
        self._reader = EventReader(framed=False, max_event_bytes=max_event_bytes)
        self._rest = b""
        self._max = max_event_bytes
        self._answers = answers
        self._seen: set[int] = set()
        self._finished: set[int] = set()
        self.problem: StreamError | None = None
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
            self.broke(f"The stream broke: {broken}.")
        return passed

    def finish(self) -> bytes:
        """The stream has ended: return what is left to pass on, and set `problem` when it was cut."""
        if self.problem is not None:
            return b""
        if self._reader.done:
            return self._rest
        if self._frames is not None and not self._frames.is_whole:
            self.problem = StreamCut("The stream was cut in the middle of a message.")
            return b""
        left = self._reader.feed(self._rest)  # some servers leave the last blank line out
        if not self._take_all(left + self._reader.finish(finished=True)):
            return b""
        if not self.is_answer:
            asked = max(self._answers, len(self._seen))
            self.problem = StreamCut(
                f"The stream ended before the answer did: {asked - len(self._finished)} of {asked} "
                "answers have no finish_reason, and no [DONE] came."
            )
            return b""
        return self._rest

    @property
    def is_answer(self) -> bool:
        """Whether what has passed is every answer, each of them whole, whatever may follow."""
        if self.problem is not None:
            return False
        return self._reader.done or (len(self._finished) >= self._answers and self._seen <= self._finished)

    def failure(self, problem: Problem) -> bytes:
        """Return the event that ends a broken stream; clients of OpenAI raise it as an error."""
        return problem.event()

    def broke(self, why: str) -> None:
        """Note that the connection failed; after [DONE] that does not matter."""
        if not self._reader.done and self.problem is None:
            self.problem = StreamCut(why)

    def _events(self, payload: bytes) -> bytes:
        if self.problem is not None:
            return b""
        data = self._rest + payload
        start = 0
        for blank in _BLANK_LINE.finditer(data, max(0, len(self._rest) - 3)):
            if not self._take_all(self._reader.feed(data[start : blank.end()])):
                self._rest = b""
                return data[:start]
            start = blank.end()
        self._rest = data[start:]
        if len(self._rest) > self._max:
            self.problem = StreamTooLarge(f"An event of the stream is larger than {self._max:,} bytes.")
            self._rest = b""
        return data[:start]

    def _take_all(self, documents: list[Document]) -> bool:
        """Note what the reader found; False where something is wrong with it."""
        try:
            for document in documents:
                self._take(document)
        except _OTHER_FORM as error:
            self.problem = StreamDamaged(f"The stream holds an event that is no completion's: {error!r}")
            return False
        problem = self._reader.problem
        if problem is None and self._reader.done and self._finished and self._finished < self._seen:
            unfinished = ", ".join(str(index) for index in sorted(self._seen - self._finished))
            problem = StreamCut(f"[DONE] came before the finish_reason of answer {unfinished}.")
        self.problem = problem
        return problem is None

    def _take(self, document: Document) -> None:
        for choice in document["choices"] or ():
            index = choice.get("index") or 0
            self._seen.add(index)
            if choice.get("finish_reason"):
                self._finished.add(index)
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
