"""What a streamed answer tells, read with or without asyncio."""

from __future__ import annotations

from collections.abc import Callable

from peagle_sm.aws.streams.assembly import Assembler
from peagle_sm.aws.streams.figures import Completion, StreamSummary
from peagle_sm.aws.streams.parts import TokenLogprob, ToolCall
from peagle_sm.core.errors import PeagleError, StreamError


class StreamedAnswer:
    """The answer as far as it has come, and its figures once it has ended."""

    def __init__(self, assembler: Assembler, monotonic: Callable[[], float], started: float) -> None:
        """``started`` is ``monotonic()`` when the request was sent."""
        self.request_id = ""
        self._assembler = assembler
        self._monotonic = monotonic
        self._started = started
        self._summary: StreamSummary | None = None

    @property
    def text(self) -> str:
        """The text so far."""
        return self._assembler.text

    @property
    def reasoning(self) -> str:
        """What a reasoning model has thought so far."""
        return self._assembler.reasoning

    @property
    def tool_calls(self) -> tuple[ToolCall, ...]:
        """The tool calls so far, their pieces joined; the last may not be whole before the end."""
        return self._assembler.tool_calls

    @property
    def logprobs(self) -> tuple[TokenLogprob, ...]:
        """The log-probabilities so far, one a token, where they were asked for."""
        return self._assembler.logprobs

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

    @property
    def completion(self) -> Completion:
        """The whole answer, as `Endpoint.invoke` returns it.

        Raises:
            PeagleError: the stream has not been read to its end.
        """
        return self._assembler.completion(self.summary)

    def _now_ms(self) -> float:
        return (self._monotonic() - self._started) * 1000

    def _conclude(self) -> None:
        """The answer is whole: settle its figures, once."""
        if self._summary is None:
            self._summary = self._assembler.summary(self.request_id, self._now_ms())

    def _told(self, problem: StreamError) -> PeagleError:
        return self._assembler.told(problem, self.request_id)
