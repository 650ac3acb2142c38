"""From the bytes of a response stream to the engine's JSON events, or to what broke it. Pure.

The bytes may be cut anywhere; they are server-sent events, within event-stream messages where ``framed``.
The synchronous and the asynchronous reader stand on this one decoder.
"""

from __future__ import annotations

import json
import re
from typing import Any

from peagle_sm.aws.streams.figures import aborted_in, engine_error, error_in
from peagle_sm.aws.streams.frames import FrameDecoder, FrameException
from peagle_sm.aws.streams.sse import MAX_EVENT_BYTES, EventTooLarge, SseError, SseParser, StrangeLine
from peagle_sm.core.errors import StreamError
from peagle_sm.core.stream_errors import (
    ModelStreamFailed,
    StreamCut,
    StreamDamaged,
    StreamReportedError,
    StreamTooLarge,
)

Document = dict[str, Any]

_QUOTED_BYTES = 200
#: Half a character of UTF-16, which JSON can write and no text can hold.
_SURROGATE = re.compile(rb"\\u[dD][89a-fA-F]")
_FAILED_STEP = (
    "Read the engine's output with `peagle-sm logs NAME`; partial_text in the details holds what came."
)
_SMALLER_STEP = "Ask for fewer tokens, or for less beside them (logprobs)."
_WHOLE_STEP = (
    "Ask for the answer without a stream: endpoint.invoke(...), or `peagle-sm invoke NAME --no-stream`."
)


class EventReader:
    """Feed parts, get documents; ``problem`` is what ended the stream before its answer did.

    Documents that came whole before a problem are still returned: the problem comes after them.
    """

    def __init__(self, *, framed: bool, max_event_bytes: int = MAX_EVENT_BYTES) -> None:
        """``framed``: the events come inside messages of ``application/vnd.amazon.eventstream``."""
        self._frames = FrameDecoder() if framed else None
        self._sse = SseParser(max_event_bytes)
        self._begun = False  #: whether an event has come
        self.done = False  #: whether [DONE] has come
        self.problem: StreamError | None = None

    @property
    def over(self) -> bool:
        """Whether nothing more is to be read."""
        return self.done or self.problem is not None

    def feed(self, part: bytes) -> list[Document]:
        """Return the documents that ``part`` completes."""
        if self.over:
            return []
        if self._frames is None:
            return self._documents(part)
        payloads, broken = self._frames.take(part)
        if len(payloads) == 1 and broken is None:
            return self._documents(payloads[0])
        found: list[Document] = []
        for payload in payloads:
            found += self._documents(payload)
            if self.done or self.problem is not None:
                return found
        if broken is not None:
            self.problem = _of_message(broken)
        return found

    def finish(self, *, finished: bool) -> list[Document]:
        """The bytes have ended; ``finished``: a finish_reason has come. Judge whether the answer is whole."""
        if self.over:
            return []
        if self._frames is not None and not self._frames.is_whole:
            self.problem = StreamCut("The stream was cut in the middle of a message.")
            return []
        found, problem = self._left()
        if problem is None and not (self.done or finished or any(map(_finishes, found))):
            problem = StreamCut(
                "The stream ended before the answer did: no finish_reason and no [DONE] came."
            )
        self.problem = problem
        return found

    def _left(self) -> tuple[list[Document], StreamError | None]:
        """What an end leaves; what is damaged there was cut."""
        try:
            found = self._parsed(self._sse.finish())
        except SseError as error:
            return [], self._not_a_stream(error) or StreamCut("The stream was cut in the middle of a line.")
        if isinstance(self.problem, StreamDamaged):
            return found, StreamCut("The stream was cut in the middle of an event.")
        return found, self.problem

    def _documents(self, payload: bytes) -> list[Document]:
        try:
            events = self._sse.feed(payload)
        except SseError as error:
            found = self._parsed(list(error.events))
            if not self.over:
                self.problem = self._not_a_stream(error) or _of_line(error)
            return found
        return self._parsed(events)

    def _not_a_stream(self, error: SseError) -> StreamError | None:
        """The problem where the engine answered with one JSON document; None where it began a stream."""
        if self._begun or not isinstance(error, StrangeLine) or not error.line.lstrip().startswith(b"{"):
            return None
        try:
            document = json.loads(error.line)
        except (ValueError, RecursionError):  # written over several lines, or cut
            document = {}
        return _reported(document) or StreamDamaged(
            "The engine ignored `stream`: it answered with one JSON document instead of a stream of events.",
            next_step=_WHOLE_STEP,
        )

    def _parsed(self, events: list[bytes]) -> list[Document]:
        found: list[Document] = []
        self._begun = self._begun or bool(events)
        for event in events:
            if event == b"[DONE]":
                self.done = True
                break
            try:
                document = json.loads(event.decode())
            except (ValueError, RecursionError) as error:  # a UnicodeDecodeError is a ValueError
                if event.strip() == b"[DONE]":
                    self.done = True
                else:
                    self.problem = _not_json(event, error)
                break
            self.problem = self._wrong(document, event)
            if self.problem is not None:
                break
            found.append(document)
            if b"abort" in event or b"error" in event:  # cheap, and rarely true
                self.problem = _aborted(document)
                if self.problem is not None:
                    break
        return found

    def _wrong(self, document: Any, event: bytes) -> StreamError | None:
        """What is wrong with one document, if anything."""
        if not isinstance(document, dict):
            return StreamDamaged(f"The stream holds an event that is not an object: {_quoted(event)}")
        if "error" in document or "choices" not in document:
            reported = _reported(document)
            if reported is not None:
                return reported
            if "choices" not in document:
                return StreamDamaged(f"The stream holds an event that is no completion's: {_quoted(event)}")
        if b"\\u" in event and _SURROGATE.search(event) and not _is_text(document):
            return StreamDamaged(f"The stream holds half a character: {_quoted(event)}")
        return None


def _reported(document: Document) -> StreamError | None:
    """The error that a document reports, with the engine's own fields in its details."""
    message = error_in(document)
    if message is None:
        return None
    return StreamReportedError(
        f"The engine reported an error in the stream: {message[:500]}",
        next_step=_FAILED_STEP,
        details={"engine_error": dict(engine_error(document) or {})},
    )


def _aborted(document: Document) -> StreamError | None:
    """The error of an answer that the engine gave up; its last text still counts."""
    reason = aborted_in(document)
    if reason is None:
        return None
    return StreamReportedError(
        f"The engine gave the answer up: finish_reason {reason!r}.",
        next_step=_FAILED_STEP,
        details={"finish_reason": reason},
    )


def _not_json(event: bytes, error: Exception) -> StreamError:
    what = "not UTF-8" if isinstance(error, UnicodeDecodeError) else "not JSON"
    return StreamDamaged(f"The stream holds an event that is {what}: {_quoted(event)}")


def _of_message(broken: Exception) -> StreamError:
    if not isinstance(broken, FrameException):
        return StreamDamaged(f"The stream is damaged: {broken}.")
    return ModelStreamFailed(
        f"The stream broke: {broken}",
        name=broken.name,
        error_code=broken.error_code,
        next_step=_FAILED_STEP,
    )


def _of_line(error: SseError) -> StreamError:
    if isinstance(error, EventTooLarge):
        return StreamTooLarge(f"The stream was dropped: {error}.", next_step=_SMALLER_STEP)
    return StreamDamaged(f"The stream is damaged: {error}.")


def _is_text(document: Document) -> bool:
    """Whether every string can be written: two halves that JSON writes side by side make a character."""
    try:
        json.dumps(document, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        return False
    return True


def _finishes(document: Document) -> bool:
    choices = document["choices"]
    return bool(choices) and isinstance(choices, list) and bool(choices[0].get("finish_reason"))


def _quoted(event: bytes) -> str:
    return event[:_QUOTED_BYTES].decode(errors="replace")
