"""A response stream read without asyncio; every way to end early is a `StreamError`."""

from __future__ import annotations

import contextlib
import weakref
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from typing import TextIO

from peagle_sm.aws.streams.assembly import Assembler
from peagle_sm.aws.streams.figures import Chunk, StreamSummary
from peagle_sm.aws.streams.patience import DRAIN_S, Deadline, Patience
from peagle_sm.aws.streams.sources import Source
from peagle_sm.aws.streams.streamed import StreamedAnswer
from peagle_sm.core.errors import PeagleError, StreamError
from peagle_sm.core.stream_errors import ModelStreamFailed, StreamCut, StreamDamaged


class TokenStream(StreamedAnswer, Iterator[Chunk]):
    """The chunks of one answer, then its `summary` and `completion`.

    It never repeats a request: after the first byte a repetition would be another answer.

    Raises:
        StreamError: while iterating, after all chunks that came before: `StreamCut`, `StreamStalled`,
            `StreamDamaged`, `StreamTooLarge`, `ModelStreamFailed` or `StreamReportedError`.
        SpecError: while iterating, before any chunk: the engine refuses the request.
    """

    def __init__(
        self,
        source: Source | Iterable[bytes],
        *,
        request_id: str = "",
        started: float,
        monotonic: Callable[[], float],
        patience: Patience | None = None,
        assembler: Assembler | None = None,
    ) -> None:
        """Read ``source`` (bytes cut anywhere); ``started`` is ``monotonic()`` when the request was sent."""
        chosen = source if isinstance(source, Source) else Source(iter(source))
        super().__init__(assembler or Assembler(framed=chosen.framed), monotonic, started)
        self.request_id = request_id
        self._source = chosen
        self._patience = patience or Patience()
        self._ready: deque[Chunk] = deque()
        self._closed = False
        self._error: PeagleError | None = None
        self._deadline: Deadline | None = None
        if chosen.interrupt is not None:
            left = self._patience.total_s - (monotonic() - started)
            self._deadline = Deadline(max(left, 0.0), chosen.interrupt)
            weakref.finalize(self, self._deadline.cancel)

    def __next__(self) -> Chunk:
        """Return the next chunk."""
        ready = self._ready
        while not ready:
            self._read()
        return ready.popleft()

    def close(self) -> None:
        """Stop reading and free the connection, from any thread; the engine then drops the request."""
        self._closed = True
        self._ready.clear()
        self._stop_counting()
        if self._source.interrupt is not None:
            self._source.interrupt()  # a read that is blocked in another thread holds a lock on the rest
        self._source.close()

    def show(self, file: TextIO | None = None) -> StreamSummary:
        """Print the answer as it comes, on ``file`` or stdout, and return its figures.

        What a reasoning model thinks is not printed; `reasoning` has it.

        Raises:
            StreamError: as while iterating; what came before is printed.
        """
        for chunk in self:
            print(chunk.text, end="", file=file, flush=True)
        print(file=file, flush=True)
        return self.summary

    def __enter__(self) -> TokenStream:
        """Return itself."""
        return self

    def __exit__(self, *_: object) -> None:
        """Close."""
        self.close()

    def _read(self) -> None:
        """Take one part; StopIteration at the end of a whole answer."""
        assembler = self._assembler
        if self._error is not None:
            raise self._error
        if self._closed:
            raise StopIteration
        if assembler.done:
            self._drain()
            self._stop_counting()
            raise StopIteration
        try:
            part = next(self._source.parts)
        except StopIteration:
            self._ready += assembler.finish(self._now_ms())
            self._settle(at_end=True)
            return
        except Exception as error:
            problem = self._problem(error)
            if problem is None:
                raise
            problem.__cause__ = error
            assembler.fail(problem)
            self._settle()
            return
        at_ms = self._now_ms()
        self._ready += assembler.feed(part, at_ms)
        if at_ms > self._patience.total_s * 1000:
            assembler.fail(self._patience.too_long())
        if assembler.over:
            self._settle()

    def _settle(self, *, at_end: bool = False) -> None:
        """The answer is whole, or something is wrong with it."""
        problem = self._assembler.problem
        if problem is None:
            self._conclude()
            if at_end:
                self._closed = True
                self._stop_counting()
            return
        self._error = self._told(problem)
        self._stop_counting()
        self._free()

    def _stop_counting(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()

    def _free(self) -> None:
        """Give the connection up."""
        with contextlib.suppress(Exception):
            self._source.close()

    def _drain(self) -> None:
        """Read to the end of the response, so that its connection can be used again; not for long."""
        self._closed = True
        began = self._monotonic()
        if self._deadline is not None:
            self._deadline.shorten(DRAIN_S)
        with contextlib.suppress(Exception):  # the answer is whole; what breaks after it does not matter
            while next(self._source.parts, None) is not None:
                if self._monotonic() - began > DRAIN_S:
                    break
            else:
                return
        self._free()

    def _problem(self, error: Exception) -> StreamError | None:
        """What an error of the transport means; None for one that is no transport's."""
        from botocore.exceptions import BotoCoreError, ClientError
        from botocore.exceptions import ReadTimeoutError as BotocoreTimeout
        from urllib3.exceptions import HTTPError, ReadTimeoutError

        if self._closed:
            return StreamCut("The stream was closed by this program while it was being read.")
        if self._deadline is not None and self._deadline.passed:
            return self._patience.too_long()
        if isinstance(error, ReadTimeoutError | BotocoreTimeout):
            return self._patience.silent()
        if isinstance(error, ClientError):  # an exception message, decoded by botocore
            told = error.response.get("Error", {})
            name = str(told.get("Code") or "error")
            return ModelStreamFailed(f"The stream broke: {name}: {told.get('Message') or error}", name=name)
        if isinstance(error, BotoCoreError | HTTPError | OSError):
            return StreamCut(f"The connection broke in the middle of the stream: {error}")
        if type(error).__module__ == "botocore.eventstream":
            # Its ParserErrors (bad checksum, bad lengths) have no base in common with BotoCoreError.
            return StreamDamaged(f"The stream is damaged: {error}.")
        return None
