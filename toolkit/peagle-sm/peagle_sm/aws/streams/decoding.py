"""Decoding of a stream's bytes to events, chunks and the whole answer. Pure.

The bytes may be cut anywhere; they are server-sent events, inside event-stream messages if ``framed``.
`TokenStream` and `AsyncTokenStream` only move bytes. This module decodes the bytes and classifies the errors
for both.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from io import StringIO
from typing import Any

from peagle_sm.aws.streams.answers import (
    Acceptance,
    Chunk,
    Completion,
    StreamSummary,
    TokenLogprob,
    ToolCall,
    ToolCalls,
    Usage,
    aborted_in,
    acceptance_of,
    choice_content,
    engine_error,
    error_in,
    summarise,
    usage_of,
)
from peagle_sm.aws.streams.framing import (
    MAX_EVENT_BYTES,
    EventTooLarge,
    FrameDecoder,
    FrameException,
    SseError,
    SseParser,
    StrangeLine,
)
from peagle_sm.core.errors import (
    ModelStreamFailed,
    PeagleError,
    StreamCut,
    StreamDamaged,
    StreamError,
    StreamReportedError,
    StreamTooLarge,
    refused_by_engine,
    with_what_came,
)

Document = dict[str, Any]

_QUOTED_BYTES = 200
#: A lone UTF-16 surrogate: JSON can contain it, text cannot.
_SURROGATE = re.compile(rb"\\u[dD][89a-fA-F]")
_FAILED_STEP = "Read the engine's log with `peagle-sm logs NAME`; details.partial_text has the text so far."
_SMALLER_STEP = "Request fewer tokens, or fewer logprobs."
_WHOLE_STEP = (
    "Request the answer without a stream: endpoint.invoke(...), or `peagle-sm invoke NAME --no-stream`."
)


class EventReader:
    """Parser from parts to documents; ``problem`` is the error that ended it early.

    Complete documents before a problem are still returned: the problem comes after them.
    """

    def __init__(self, *, framed: bool, max_event_bytes: int = MAX_EVENT_BYTES) -> None:
        """Start empty; ``framed``: in AWS event-stream messages, not bare SSE."""
        self._frames = FrameDecoder() if framed else None
        self._sse = SseParser(max_event_bytes)
        self._begun = False  #: whether an event has arrived
        self.done = False  #: whether [DONE] has arrived
        self.problem: StreamError | None = None

    @property
    def over(self) -> bool:
        """True if nothing more must be read."""
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
        documents: list[Document] = []
        for payload in payloads:
            documents += self._documents(payload)
            if self.done or self.problem is not None:
                return documents
        if broken is not None:
            self.problem = _of_message(broken)
        return documents

    def finish(self, *, finished: bool) -> list[Document]:
        """Process the end of the bytes; ``finished``: a finish_reason has arrived."""
        if self.over:
            return []
        if self._frames is not None and not self._frames.is_whole:
            self.problem = StreamCut("The stream was cut in the middle of a message.")
            return []
        documents, problem = self._rest_at_end()
        if problem is None and not (self.done or finished or any(map(_finishes, documents))):
            problem = StreamCut(
                "The stream ended before the answer was complete: no finish_reason and no [DONE] arrived."
            )
        self.problem = problem
        return documents

    def _rest_at_end(self) -> tuple[list[Document], StreamError | None]:
        """Return the events at the end; a damaged event there counts as cut."""
        try:
            documents = self._parsed(self._sse.finish())
        except SseError as error:
            return [], self._not_a_stream(error) or StreamCut("The stream was cut in the middle of a line.")
        if isinstance(self.problem, StreamDamaged):
            return documents, StreamCut("The stream was cut in the middle of an event.")
        return documents, self.problem

    def _documents(self, payload: bytes) -> list[Document]:
        try:
            events = self._sse.feed(payload)
        except SseError as error:
            documents = self._parsed(list(error.events))
            if not self.over:
                self.problem = self._not_a_stream(error) or _of_line(error)
            return documents
        return self._parsed(events)

    def _not_a_stream(self, error: SseError) -> StreamError | None:
        """Return the error if the engine answered with one JSON document, else None."""
        if self._begun or not isinstance(error, StrangeLine) or not error.line.lstrip().startswith(b"{"):
            return None
        try:
            document = json.loads(error.line)
        except (ValueError, RecursionError):  # on several lines, or cut
            document = {}
        return _reported(document) or StreamDamaged(
            "The engine ignored `stream`: it answered with one JSON document instead of a stream of events.",
            next_step=_WHOLE_STEP,
        )

    def _parsed(self, events: list[bytes]) -> list[Document]:
        documents: list[Document] = []
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
                    what = "not UTF-8" if isinstance(error, UnicodeDecodeError) else "not JSON"
                    self.problem = StreamDamaged(f"The stream has an event that is {what}: {_quoted(event)}")
                break
            self.problem = self._document_error(document, event)
            if self.problem is not None:
                break
            documents.append(document)
            if b"abort" in event or b"error" in event:  # a fast test that is rarely true
                self.problem = _aborted(document)
                if self.problem is not None:
                    break
        return documents

    def _document_error(self, document: Any, event: bytes) -> StreamError | None:
        """Return the error of one document, if any."""
        if not isinstance(document, dict):
            return StreamDamaged(f"The stream has an event that is not an object: {_quoted(event)}")
        if "error" in document or "choices" not in document:
            reported = _reported(document)
            if reported is not None:
                return reported
            if "choices" not in document:
                return StreamDamaged(f"The stream has an event that is not a completion: {_quoted(event)}")
        if b"\\u" in event and _SURROGATE.search(event) and not _is_text(document):
            return StreamDamaged(f"The stream has half a character: {_quoted(event)}")
        return None


def _reported(document: Document) -> StreamError | None:
    """Return the error in a document, with the engine's fields in its details."""
    message = error_in(document)
    if message is None:
        return None
    return StreamReportedError(
        f"The engine reported an error in the stream: {message[:500]}",
        next_step=_FAILED_STEP,
        details={"engine_error": dict(engine_error(document) or {})},
    )


def _aborted(document: Document) -> StreamError | None:
    """Return the error of an answer that the engine aborted; its last text counts."""
    reason = aborted_in(document)
    if reason is None:
        return None
    return StreamReportedError(
        f"The engine aborted the answer: finish_reason {reason!r}.",
        next_step=_FAILED_STEP,
        details={"finish_reason": reason},
    )


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
        return StreamTooLarge(f"The stream was closed: {error}.", next_step=_SMALLER_STEP)
    return StreamDamaged(f"The stream is damaged: {error}.")


def _is_text(document: Document) -> bool:
    """Return whether all strings are valid text; surrogate pairs are."""
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


MAX_ANSWER_BYTES = 64 * 1024 * 1024
"""Limit of one answer's size: a hundred times the text of eight minutes at 300 tokens/s."""

_ONE_STEP = "Request one answer per stream (one prompt, n=1), or all answers without a stream."
_OTHER_FORM = (AttributeError, IndexError, KeyError, OverflowError, TypeError, ValueError)


class Assembler:
    """Assembler from timed parts to chunks, and to the answer or a `problem`."""

    def __init__(
        self,
        *,
        framed: bool,
        max_event_bytes: int = MAX_EVENT_BYTES,
        max_answer_bytes: int = MAX_ANSWER_BYTES,
    ) -> None:
        """Start empty; ``framed``: in AWS event-stream messages, not bare SSE."""
        self._events = EventReader(framed=framed, max_event_bytes=max_event_bytes)
        self._room = max_answer_bytes
        self._text = StringIO()
        self._reasoning = StringIO()
        self._calls = ToolCalls()
        self._logprobs: list[TokenLogprob] = []
        self._finish_reason: str | None = None
        self._usage: Usage | None = None
        self._last: Mapping[str, Any] = {}
        self._acceptance: Acceptance | None = None
        self._counted = 0
        self._first_ms: float | None = None
        self._last_ms: float | None = None

    @property
    def done(self) -> bool:
        """True if the engine marked the answer as complete; later bytes do not matter."""
        return self._events.done

    @property
    def over(self) -> bool:
        """True if the answer is complete, or an error ended it."""
        return self._events.over

    @property
    def problem(self) -> StreamError | None:
        """Error that ended the stream early; it came after the chunks of `feed`."""
        return self._events.problem

    @property
    def text(self) -> str:
        """Text of the answer so far."""
        return self._text.getvalue()

    @property
    def reasoning(self) -> str:
        """Reasoning text so far."""
        return self._reasoning.getvalue()

    @property
    def tool_calls(self) -> tuple[ToolCall, ...]:
        """Tool calls so far; the last may be incomplete before the end."""
        return self._calls.all()

    @property
    def logprobs(self) -> tuple[TokenLogprob, ...]:
        """Log-probabilities so far, one per token; empty unless requested."""
        return tuple(self._logprobs)

    def feed(self, part: bytes, at_ms: float) -> list[Chunk]:
        """Return the chunks that ``part`` completes; ``at_ms`` is its arrival time."""
        return self._chunks(self._events.feed(part), at_ms)

    def finish(self, at_ms: float) -> list[Chunk]:
        """Return the remaining chunks at the end; check that the answer is complete."""
        return self._chunks(self._events.finish(finished=self._finish_reason is not None), at_ms)

    def fail(self, problem: StreamError) -> None:
        """Record a transport error, unless the answer is complete or a problem exists."""
        if not self._events.over:
            self._events.problem = problem

    def told(self, problem: StreamError, request_id: str) -> PeagleError:
        """Return ``problem`` with the text before it and the request's id.

        vLLM checks some fields only after it has opened the stream (min_p with speculation): a 4xx before any
        output refuses the request, as the same 4xx without a stream does.
        """
        if self._first_ms is None:
            reported = problem.details.get("engine_error") or {}
            code = reported.get("code")
            if isinstance(code, int) and 400 <= code < 500:
                return refused_by_engine(code, str(reported.get("message", "")), {"request_id": request_id})
        return with_what_came(problem, self.text, request_id)

    def summary(self, request_id: str, total_ms: float) -> StreamSummary:
        """Return the figures of a request that took ``total_ms``."""
        return summarise(
            self._usage,
            self._acceptance,
            finish_reason=self._finish_reason,
            request_id=request_id,
            total_ms=total_ms,
            first_ms=self._first_ms,
            last_ms=self._last_ms,
        )

    def completion(self, summary: StreamSummary) -> Completion:
        """Return the whole answer; ``raw`` is the last document with usage, if any."""
        return Completion(
            self.text,
            self._finish_reason,
            summary,
            self._last,
            summary.request_id,
            self.reasoning,
            self.tool_calls,
            self.logprobs,
        )

    def _chunks(self, documents: list[Document], at_ms: float) -> list[Chunk]:
        chunks: list[Chunk] = []
        for document in documents:
            try:
                if _is_of_another(document["choices"]):
                    self._events.problem = StreamDamaged(
                        "The stream has several answers; expected one.", next_step=_ONE_STEP
                    )
                    break
                chunk = self._chunk(document, at_ms)
            except _OTHER_FORM as error:
                self._events.problem = StreamDamaged(
                    f"The stream has an event that is not a completion: {error!r}"
                )
                break
            if chunk is not None:
                chunks.append(chunk)
                if self._room < 0:
                    self._events.problem = StreamTooLarge(
                        "The stream was closed: the answer is larger than the limit.",
                        next_step="Request fewer tokens, or fewer logprobs.",
                    )
                    break
        return chunks

    def _chunk(self, document: Document, at_ms: float) -> Chunk | None:
        usage = self._take_usage(document) if document.get("usage") else None
        choices = document["choices"]
        if not choices:
            return None
        choice = choices[0]
        text, reasoning, calls, logprobs = choice_content(choice)
        reason = choice.get("finish_reason")
        if reason is not None and not isinstance(reason, str):
            raise TypeError(f"finish_reason of type {type(reason).__name__}")
        ids = choice.get("token_ids")
        if not (text or reason or reasoning or calls or logprobs or ids):
            return None  # the role that starts a chat answer
        chunk = Chunk(text, self._tokens_in(ids, usage), reason, at_ms, reasoning, calls, logprobs)
        self._room -= self._text.write(text)
        if reasoning or calls or logprobs:
            self._keep(chunk)
        if text or reasoning or calls:
            if self._first_ms is None:
                self._first_ms = at_ms
            self._last_ms = at_ms
        if reason:
            self._finish_reason = reason
        return chunk

    def _keep(self, chunk: Chunk) -> None:
        """Keep rare chunk fields; the sizes are rough sizes of Python objects."""
        self._room -= self._reasoning.write(chunk.reasoning)
        for call in chunk.tool_calls:
            self._calls.add(call)
            self._room -= 64 + len(call.arguments)
        self._logprobs += chunk.logprobs
        self._room -= sum(200 + 150 * len(each.top) for each in chunk.logprobs)

    def _take_usage(self, document: Document) -> Usage:
        usage = usage_of(document["usage"])
        self._usage, self._last = usage, document
        self._acceptance = acceptance_of(document) or self._acceptance
        return usage

    def _tokens_in(self, ids: Any, usage: Usage | None) -> int | None:
        if isinstance(ids, list):
            return len(ids)
        if usage is None or usage.completion_tokens is None:
            return None
        before, self._counted = self._counted, usage.completion_tokens
        return self._counted - before


def _is_of_another(choices: Sequence[Mapping[str, Any]]) -> bool:
    """Return whether an event belongs to another answer than the first."""
    return bool(choices) and (len(choices) > 1 or (choices[0].get("index") or 0) != 0)
