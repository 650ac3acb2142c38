"""From the bytes of a response stream to typed chunks and the whole answer. Pure.

`TokenStream` and `AsyncTokenStream` only move bytes; what the bytes mean is decided here, once.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from io import StringIO
from typing import Any

from peagle_sm.aws.streams.events import Document, EventReader
from peagle_sm.aws.streams.figures import (
    Acceptance,
    Chunk,
    Completion,
    StreamSummary,
    acceptance_of,
    summarise,
)
from peagle_sm.aws.streams.parts import (
    TokenLogprob,
    ToolCall,
    ToolCalls,
    Usage,
    said_in,
    usage_of,
)
from peagle_sm.aws.streams.sse import MAX_EVENT_BYTES
from peagle_sm.core.errors import PeagleError, StreamError
from peagle_sm.core.stream_errors import StreamDamaged, StreamTooLarge, refused_by_engine, with_what_came

MAX_ANSWER_BYTES = 64 * 1024 * 1024
"""The most that is kept of one answer: a hundred times what eight minutes at 300 tokens/s are as text."""

_ONE_STEP = "Ask for one answer a stream (one prompt, n=1), or for all without a stream."
_OTHER_FORM = (AttributeError, IndexError, KeyError, OverflowError, TypeError, ValueError)


class Assembler:
    """Feed parts and the time of their arrival, get chunks; in the end the answer, or `problem`."""

    def __init__(
        self,
        *,
        framed: bool,
        max_event_bytes: int = MAX_EVENT_BYTES,
        max_answer_bytes: int = MAX_ANSWER_BYTES,
    ) -> None:
        """``framed``: the bytes are ``application/vnd.amazon.eventstream``, not bare server-sent events."""
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
        """Whether the engine has said that the answer is whole; what comes after it does not matter."""
        return self._events.done

    @property
    def over(self) -> bool:
        """Whether the answer is whole, or something ended it before."""
        return self._events.over

    @property
    def problem(self) -> StreamError | None:
        """What ended the stream before the answer; it came after the chunks that `feed` returned."""
        return self._events.problem

    @property
    def text(self) -> str:
        """The answer so far."""
        return self._text.getvalue()

    @property
    def reasoning(self) -> str:
        """What a reasoning model has thought so far."""
        return self._reasoning.getvalue()

    @property
    def tool_calls(self) -> tuple[ToolCall, ...]:
        """The tool calls so far; the last may not be whole before the end."""
        return self._calls.all()

    @property
    def logprobs(self) -> tuple[TokenLogprob, ...]:
        """The log-probabilities so far, one a token; empty unless asked for."""
        return tuple(self._logprobs)

    def feed(self, part: bytes, at_ms: float) -> list[Chunk]:
        """Return the chunks that ``part`` completes; ``at_ms`` is when it came."""
        return self._chunks(self._events.feed(part), at_ms)

    def finish(self, at_ms: float) -> list[Chunk]:
        """The bytes have ended: return what was left, and judge whether the answer is whole."""
        return self._chunks(self._events.finish(finished=self._finish_reason is not None), at_ms)

    def fail(self, problem: StreamError) -> None:
        """The transport broke; nothing happens where the answer is whole, or a problem came before."""
        if not self._events.over:
            self._events.problem = problem

    def told(self, problem: StreamError, request_id: str) -> PeagleError:
        """Return ``problem`` with the text that came before it and the request's id.

        vLLM checks some fields only after it has opened the stream (min_p with speculation): a 4xx that
        comes before any output refuses the request, as the same 4xx does without a stream.
        """
        if self._first_ms is None:
            reported = problem.details.get("engine_error") or {}
            code = reported.get("code")
            if isinstance(code, int) and 400 <= code < 500:
                return refused_by_engine(code, str(reported.get("message", "")), {"request_id": request_id})
        return with_what_came(problem, self.text, request_id)

    def summary(self, request_id: str, total_ms: float) -> StreamSummary:
        """The figures, of a request that took ``total_ms`` to its end."""
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
        """The whole answer; its ``raw`` is the engine's last document with usage, if any."""
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
                        "The stream holds several answers, and this reader reads one.", next_step=_ONE_STEP
                    )
                    break
                chunk = self._chunk(document, at_ms)
            except _OTHER_FORM as error:
                self._events.problem = StreamDamaged(
                    f"The stream holds an event that is no completion's: {error!r}"
                )
                break
            if chunk is not None:
                chunks.append(chunk)
                if self._room < 0:
                    self._events.problem = StreamTooLarge(
                        "The stream was dropped: the answer is larger than the reader keeps.",
                        next_step="Ask for fewer tokens, or for less beside them (logprobs).",
                    )
                    break
        return chunks

    def _chunk(self, document: Document, at_ms: float) -> Chunk | None:
        usage = self._take_usage(document) if document.get("usage") else None
        choices = document["choices"]
        if not choices:
            return None
        choice = choices[0]
        text, reasoning, calls, logprobs = said_in(choice)
        reason = choice.get("finish_reason")
        if reason is not None and not isinstance(reason, str):
            raise TypeError(f"finish_reason of type {type(reason).__name__}")
        ids = choice.get("token_ids")
        if not (text or reason or reasoning or calls or logprobs or ids):
            return None  # the role that opens a chat answer
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
        """Keep what few chunks have; the sizes are those of Python's objects, roughly."""
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
    """Whether an event belongs to another answer than the first: another prompt, or n above 1."""
    return bool(choices) and (len(choices) > 1 or (choices[0].get("index") or 0) != 0)
