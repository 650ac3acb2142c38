"""From a response stream's bytes to the engine's own, and whether each answer is whole."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Mapping
from typing import Any

from peagle_sm.aws.streams.figures import aborted_in, error_in
from peagle_sm.aws.streams.frames import FrameDecoder, FrameException
from peagle_sm.core.errors import StreamError

_DONE = "[DONE]"


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


class AnswerCheck:
    """Whether a stream of server-sent events is every answer of its request, each of them whole.

    The rules are those of `aws.streams.events` and of `serve`, which read bytes; AIPerf gives messages.
    """

    def __init__(self, answers: int = 1) -> None:
        """``answers``: how many the request asks for, its prompts times n; each needs a finish reason."""
        self._answers = answers
        self._events = 0
        self._done = False
        self._seen: set[int] = set()
        self._finished: set[int] = set()

    def take(self, text: str) -> None:
        """Take the data of one message; what comes after `[DONE]` does not matter.

        Raises:
            StreamError: the engine reported an error, gave an answer up, or wrote no event of an answer.
        """
        if self._done or not text:
            return
        self._events += 1
        if text.strip() == _DONE:
            self._done = True
            return
        try:
            self._take(json.loads(text))
        except (AttributeError, KeyError, TypeError, ValueError, RecursionError) as error:
            raise StreamError(f"the stream holds an event that is no completion's: {text[:200]}") from error

    def finish(self) -> None:
        """The connection has ended.

        Raises:
            StreamError: it was cut: an answer has no finish reason.
        """
        unfinished = max(self._answers, len(self._seen)) - len(self._finished)
        if unfinished and not (self._done and not (self._finished and self._finished < self._seen)):
            raise StreamError(
                f"the response stream was cut after {self._events} events: {unfinished} of "
                f"{unfinished + len(self._finished)} answers have no finish reason"
            )

    def _take(self, document: Mapping[str, Any]) -> None:
        reported = error_in(document)
        if reported is not None:
            raise StreamError(f"the engine reported an error in the stream: {reported[:500]}")
        given_up = aborted_in(document)
        if given_up is not None:
            raise StreamError(f"the engine gave the answer up: finish_reason {given_up!r}")
        for choice in document["choices"] or ():
            index = choice.get("index") or 0
            self._seen.add(index)
            if choice.get("finish_reason"):
                self._finished.add(index)
