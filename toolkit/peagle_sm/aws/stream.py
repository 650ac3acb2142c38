"""From the parts of a response stream to typed chunks; every way to end early is a StreamError."""

from __future__ import annotations

import json
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from typing import Any

from peagle_sm.aws.figures import Chunk, StreamSummary, error_in, summarise, text_of
from peagle_sm.aws.sse import EventTooLarge, SseParser
from peagle_sm.core.errors import PeagleError, StreamError

_CUT_STEP = "The text so far is in partial_text; send the request again for a whole answer."


class TokenStream(Iterator[Chunk]):
    """The chunks of one answer, then its `summary`.

    It never repeats a request: after the first byte a repetition would be another answer.

    Raises:
        StreamError: while iterating: the stream was cut, carried an error, or is not what it should be.
    """

    def __init__(
        self,
        parts: Iterable[bytes],
        *,
        request_id: str = "",
        started: float,
        monotonic: Callable[[], float],
        close: Callable[[], None] = lambda: None,
    ) -> None:
        """Read ``parts`` (bytes cut anywhere); ``started`` is ``monotonic()`` when the request was sent."""
        self.request_id = request_id
        self.text = ""
        self._parts = parts
        self._started = started
        self._monotonic = monotonic
        self._close = close
        self._finish_reason: str | None = None
        self._done = False
        self._usage: Mapping[str, Any] = {}
        self._counted = 0
        self._first_ms: float | None = None
        self._last_ms: float | None = None
        self._summary: StreamSummary | None = None
        self._chunks = self._read()

    def __next__(self) -> Chunk:
        """Return the next chunk."""
        return next(self._chunks)

    @property
    def summary(self) -> StreamSummary:
        """The figures; there are none before the end.

        Raises:
            PeagleError: the stream has not been read to its end.
        """
        if self._summary is None:
            raise PeagleError(
                "The stream has not ended, so there is no summary yet.",
                next_step="Read all chunks first: `for chunk in stream: …`.",
            )
        return self._summary

    def close(self) -> None:
        """Stop reading and drop the connection."""
        self._chunks.close()
        self._close()

    def __enter__(self) -> TokenStream:
        """Return itself."""
        return self

    def __exit__(self, *_: object) -> None:
        """Close."""
        self.close()

    def _now_ms(self) -> float:
        return (self._monotonic() - self._started) * 1000

    def _read(self) -> Generator[Chunk, None, None]:
        parser = SseParser()
        for part in self._bytes():
            if self._done:
                continue  # read to the end, so that the connection can be used again
            yield from self._chunks_of(self._fed(parser, part))
        if not self._done:
            yield from self._chunks_of(parser.finish(), at_end=True)
        if not self._done and self._finish_reason is None:
            raise self._error("The stream ended before the answer did: no finish_reason and no [DONE] came.")
        if self._summary is None:
            self._conclude()

    def _bytes(self) -> Iterator[bytes]:
        from botocore.exceptions import BotoCoreError, ClientError
        from urllib3.exceptions import HTTPError

        try:
            yield from self._parts
        except Exception as error:
            if self._done:
                return  # the answer is whole; what breaks after it does not matter
            if isinstance(error, ClientError):  # an exception frame: ModelStreamError, InternalStreamFailure
                told = error.response.get("Error", {})
                message = f"The stream broke: {told.get('Code') or 'error'}: {told.get('Message') or error}"
            elif isinstance(error, BotoCoreError | HTTPError | OSError):
                message = f"The connection broke in the middle of the stream: {error}"
            elif type(error).__module__ == "botocore.eventstream":
                # Its ParserErrors (bad checksum, bad lengths) have no base in common with BotoCoreError.
                message = f"The stream is damaged: {error}"
            else:
                raise
            raise self._error(message) from error

    def _fed(self, parser: SseParser, part: bytes) -> list[bytes]:
        try:
            return parser.feed(part)
        except EventTooLarge as error:
            self._close()
            raise self._error(f"The stream was dropped: {error}.") from error

    def _chunks_of(self, events: list[bytes], at_end: bool = False) -> Iterator[Chunk]:
        for event in events:
            if self._done:
                return
            if event.strip() == b"[DONE]":
                self._done = True
                self._conclude()
                return
            chunk = self._chunk(self._document(event, at_end))
            if chunk is not None:
                yield chunk

    def _document(self, event: bytes, at_end: bool) -> Mapping[str, Any]:
        try:
            document = json.loads(event.decode("utf-8"))
        except ValueError as error:
            if at_end:
                raise self._error("The stream was cut in the middle of an event.") from error
            raise self._error(f"The stream holds an event that is not JSON: {event[:200]!r}") from error
        if not isinstance(document, Mapping):
            raise self._error(f"The stream holds an event that is not an object: {event[:200]!r}")
        told = error_in(document)
        if told is not None:
            raise self._error(f"The engine reported an error in the stream: {told}")
        return document

    def _chunk(self, document: Mapping[str, Any]) -> Chunk | None:
        usage = document.get("usage")
        if usage:
            self._usage = document
        choices = document.get("choices") or []
        if not choices:
            return None
        choice = choices[0]
        text, reasoning = text_of(choice)
        self._finish_reason = choice.get("finish_reason") or self._finish_reason
        at_ms = self._now_ms()
        if text or reasoning:
            self._first_ms = at_ms if self._first_ms is None else self._first_ms
            self._last_ms = at_ms
            self.text += text
        elif not choice.get("finish_reason"):
            return None  # the role that opens a chat answer
        return Chunk(text, self._tokens_in(choice, usage), choice.get("finish_reason"), at_ms, reasoning)

    def _tokens_in(self, choice: Mapping[str, Any], usage: Any) -> int | None:
        if isinstance(choice.get("token_ids"), list):
            return len(choice["token_ids"])
        if isinstance(usage, Mapping) and isinstance(usage.get("completion_tokens"), int):
            before, self._counted = self._counted, usage["completion_tokens"]
            return self._counted - before
        return None

    def _conclude(self) -> None:
        self._summary = summarise(
            self._usage,
            finish_reason=self._finish_reason,
            request_id=self.request_id,
            total_ms=self._now_ms(),
            first_ms=self._first_ms,
            last_ms=self._last_ms,
        )

    def _error(self, message: str) -> StreamError:
        return StreamError(
            message,
            partial_text=self.text,
            request_id=self.request_id,
            next_step=_CUT_STEP,
            details={"partial_text": self.text, "request_id": self.request_id},
        )
