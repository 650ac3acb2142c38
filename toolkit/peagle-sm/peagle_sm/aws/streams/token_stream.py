"""`TokenStream`: reader of a response stream; `AsyncTokenStream` is the same for asyncio.

Every early end is a `StreamError`. The bytes come from the HTTP response below botocore's EventStream, or
from its events. `Patience` holds a stream's timeouts; `Deadline` ends a blocked read.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
import weakref
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import dataclass
from typing import Any, TextIO, TypeVar

from peagle_sm.aws.session.session import RUNTIME_READ_TIMEOUT_S
from peagle_sm.aws.streams.answers import Chunk, Completion, StreamSummary, TokenLogprob, ToolCall
from peagle_sm.aws.streams.decoding import Assembler
from peagle_sm.core.errors import (
    ModelStreamFailed,
    PeagleError,
    SpecError,
    StreamCut,
    StreamDamaged,
    StreamError,
    StreamStalled,
)

Result = TypeVar("Result")

READ_TIMEOUT_S = float(RUNTIME_READ_TIMEOUT_S)
"""SageMaker ends a stream after 8 minutes; the first token may take that long."""
TOTAL_TIMEOUT_S = 500.0
DRAIN_S = 1.0
"""Wait for the response's end after a complete answer, so that its connection can be reused."""


@dataclass(frozen=True)
class Patience:
    """Timeouts: ``read_s`` for the next bytes, ``total_s`` from the sending on."""

    read_s: float = READ_TIMEOUT_S
    total_s: float = TOTAL_TIMEOUT_S

    def __post_init__(self) -> None:
        """Raises: SpecError: a timeout is not above 0."""
        for name, value in (("read_timeout_s", self.read_s), ("total_timeout_s", self.total_s)):
            if not value > 0:
                raise SpecError(
                    f"{name}: found {value}; allowed: seconds above 0.",
                    next_step="Leave it out for SageMaker's maximum (8 minutes).",
                )

    @classmethod
    def of(cls, read_s: float | None, total_s: float | None) -> Patience:
        """Create timeouts; a missing one is SageMaker's maximum."""
        return cls(
            READ_TIMEOUT_S if read_s is None else read_s, TOTAL_TIMEOUT_S if total_s is None else total_s
        )

    @property
    def silence_s(self) -> float:
        """Longest wait for the next bytes."""
        return min(self.read_s, self.total_s)

    def silent(self) -> StreamStalled:
        """Return the error for a read timeout."""
        if self.total_s < self.read_s:
            return self.too_long()
        return StreamStalled(
            f"The stream stalled: no bytes for {self.read_s:g} s.",
            details={"read_timeout_s": self.read_s},
        )

    def too_long(self) -> StreamStalled:
        """Return the error for a total timeout."""
        return StreamStalled(
            f"The stream was closed: it did not end within {self.total_s:g} s after the request.",
            details={"total_timeout_s": self.total_s},
        )


class Deadline:
    """Timer thread that calls ``interrupt`` at its end, to stop a blocked read.

    A socket's timeout counts only silence, so a slow trickle would never reach a total timeout.
    """

    def __init__(self, seconds: float, interrupt: Callable[[], object]) -> None:
        self.passed = False
        self._until = time.monotonic() + seconds
        self._interrupt = interrupt
        self._over = False
        self._changed = threading.Condition()
        threading.Thread(target=self._watch, name="peagle-sm stream deadline", daemon=True).start()

    def shorten(self, seconds: float) -> None:
        """End ``seconds`` from now, if that is earlier."""
        with self._changed:
            self._until = min(self._until, time.monotonic() + seconds)
            self._changed.notify()

    def cancel(self) -> None:
        """Cancel the timer."""
        with self._changed:
            self._over = True
            self._changed.notify()

    def _watch(self) -> None:
        with self._changed:
            while not self._over:
                left = self._until - time.monotonic()
                if left <= 0:
                    self.passed = True
                    break
                self._changed.wait(left)
            else:
                return
        self._interrupt()


def call_within(seconds: float, call: Callable[[], Result], discard: Callable[[Result], object]) -> Result:
    """Run ``call`` in a thread; return its result, or raise its error.

    A socket's timeout counts only silence, so slowly arriving headers would never reach a total timeout.
    After a timeout the call ends in its thread, and ``discard`` receives its result.

    Raises:
        CallTooLong: it did not end within ``seconds``.
    """
    outcome: Future[Result] = Future()

    def run() -> None:
        try:
            result = call()
        except BaseException as error:  # raised again in the waiting thread
            outcome.set_exception(error)
        else:
            outcome.set_result(result)

    threading.Thread(target=run, name="peagle-sm stream request", daemon=True).start()
    ended, _ = wait([outcome], timeout=seconds)
    if not ended:
        outcome.add_done_callback(lambda late: late.exception() is None and discard(late.result()))
        raise CallTooLong
    return outcome.result()


class CallTooLong(Exception):
    """A call did not end within its timeout."""


def _no_op() -> None:
    """Do nothing: there is nothing to close."""


@dataclass
class ByteSource:
    """Source of parts, cut anywhere; ``interrupt`` ends a blocked read."""

    parts: Iterator[bytes]
    framed: bool = False
    close: Callable[[], object] = _no_op
    interrupt: Callable[[], None] | None = None


def source_of(events: Any) -> ByteSource:
    """Return the bytes below botocore's EventStream.

    Its decoder drops a ModelStreamError's ErrorCode, and reports no error if the bytes end in the middle of a
    message. So this reads the bytes below it. ``_raw_stream`` is not part of botocore's public API: without
    it, the events are read as botocore returns them, without the ErrorCode.
    """
    close = getattr(events, "close", _no_op)
    raw = getattr(events, "_raw_stream", None)
    if raw is None or not callable(getattr(raw, "stream", None)):
        return ByteSource(_payloads(events), close=close)
    interrupt = _interrupter(raw) if callable(getattr(raw, "shutdown", None)) else None
    return ByteSource(_parts(raw), framed=True, close=close, interrupt=interrupt)


def _parts(raw: Any) -> Iterator[bytes]:
    if getattr(raw, "chunked", True) or not hasattr(raw, "read1"):
        yield from raw.stream()
        return
    while part := raw.read1():  # `stream` would wait for 64 KiB
        yield part


def _payloads(events: Any) -> Iterator[bytes]:
    for event in events:
        part = event.get("PayloadPart")
        if part is not None:
            yield part.get("Bytes", b"")


def _interrupter(raw: Any) -> Callable[[], None]:
    """Return a function that shuts the socket's read side, by a weak reference."""
    alive = weakref.ref(raw)

    def interrupt() -> None:
        response = alive()
        if response is not None:
            # The socket is closed, or back in the pool: nothing to interrupt.
            with contextlib.suppress(OSError, RuntimeError, ValueError, AttributeError):
                response.shutdown()

    return interrupt


class TokenStream(Iterator[Chunk]):
    """Chunks of one answer, then its `summary` and `completion`.

    It never retries a request: after the first byte a retry would give another answer.

    Raises:
        StreamError: while iterating, after all earlier chunks: `StreamCut`, `StreamStalled`,
            `StreamDamaged`, `StreamTooLarge`, `ModelStreamFailed` or `StreamReportedError`.
        SpecError: while iterating, before any chunk: the engine refuses the request.
    """

    def __init__(
        self,
        source: ByteSource | Iterable[bytes],
        *,
        request_id: str = "",
        started: float,
        monotonic: Callable[[], float],
        patience: Patience | None = None,
        assembler: Assembler | None = None,
    ) -> None:
        """Read ``source``; ``started`` is ``monotonic()`` at the sending."""
        chosen = source if isinstance(source, ByteSource) else ByteSource(iter(source))
        self.request_id = request_id
        self._source = chosen
        self._assembler = assembler or Assembler(framed=chosen.framed)
        self._patience = patience or Patience()
        self._monotonic = monotonic
        self._started = started
        self._ready: deque[Chunk] = deque()
        self._closed = False
        self._error: PeagleError | None = None
        self._summary: StreamSummary | None = None
        self._deadline: Deadline | None = None
        if chosen.interrupt is not None:
            left = self._patience.total_s - (monotonic() - started)
            self._deadline = Deadline(max(left, 0.0), chosen.interrupt)
            weakref.finalize(self, self._deadline.cancel)

    @property
    def text(self) -> str:
        """Text so far."""
        return self._assembler.text

    @property
    def reasoning(self) -> str:
        """Reasoning text so far."""
        return self._assembler.reasoning

    @property
    def tool_calls(self) -> tuple[ToolCall, ...]:
        """Tool calls so far; the last may be incomplete before the end."""
        return self._assembler.tool_calls

    @property
    def logprobs(self) -> tuple[TokenLogprob, ...]:
        """Log-probabilities so far, one per token, if requested."""
        return self._assembler.logprobs

    @property
    def summary(self) -> StreamSummary:
        """Figures of the request; available after its end.

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
        """Whole answer, as `Endpoint.invoke` returns it.

        Raises:
            PeagleError: the stream has not been read to its end.
        """
        return self._assembler.completion(self.summary)

    def _now_ms(self) -> float:
        return (self._monotonic() - self._started) * 1000

    def _take(self, part: bytes | None) -> None:
        """Decode the next part, or the end (None)."""
        at_ms = self._now_ms()
        if part is None:
            self._ready += self._assembler.finish(at_ms)
            return
        self._ready += self._assembler.feed(part, at_ms)
        if at_ms > self._patience.total_s * 1000:
            self._assembler.fail(self._patience.too_long())

    def _is_whole(self) -> bool:
        """Return whether the answer ended whole, with its figures; else set the error to raise."""
        problem = self._assembler.problem
        if problem is not None:
            self._error = self._assembler.told(problem, self.request_id)
            return False
        if self._summary is None:
            self._summary = self._assembler.summary(self.request_id, self._now_ms())
        return True

    def __next__(self) -> Chunk:
        ready = self._ready
        while not ready:
            self._read()
        return ready.popleft()

    def read_some(self) -> list[Chunk]:
        """Return the next chunk and those that arrived with it; empty at the end; errors as `__next__`."""
        first = next(self, None)
        if first is None:
            return []
        chunks = [first, *self._ready]
        self._ready.clear()
        return chunks

    def close(self) -> None:
        """Stop reading and free the connection, from any thread; the engine then stops."""
        self._closed = True
        self._ready.clear()
        self._stop_counting()
        if self._source.interrupt is not None:
            self._source.interrupt()  # a blocked read in another thread holds a lock
        self._source.close()

    def show(self, file: TextIO | None = None) -> StreamSummary:
        """Print the answer while it arrives, to ``file`` or stdout; return its figures.

        Reasoning text is not printed; see `reasoning`.

        Raises:
            StreamError: as while iterating; the text before it is printed.
        """
        for chunk in self:
            print(chunk.text, end="", file=file, flush=True)
        print(file=file, flush=True)
        return self.summary

    def __enter__(self) -> TokenStream:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _read(self) -> None:
        """Process one part; StopIteration at the end of a whole answer."""
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
            part = next(self._source.parts, None)
        except Exception as error:
            problem = self._problem(error)
            if problem is None:
                raise
            problem.__cause__ = error
            assembler.fail(problem)
        else:
            self._take(part)
            if part is not None and not assembler.over:
                return
        if not self._is_whole():
            self._stop_counting()
            self._free()
        elif not assembler.done:  # at the end of the bytes; after [DONE] the rest is drained
            self._closed = True
            self._stop_counting()

    def _stop_counting(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()

    def _free(self) -> None:
        """Free the connection."""
        with contextlib.suppress(Exception):
            self._source.close()

    def _drain(self) -> None:
        """Read the response's end for a short time, so that its connection can be reused."""
        self._closed = True
        began = self._monotonic()
        if self._deadline is not None:
            self._deadline.shorten(DRAIN_S)
        with contextlib.suppress(Exception):  # the answer is whole, so later errors do not matter
            while next(self._source.parts, None) is not None:
                if self._monotonic() - began > DRAIN_S:
                    break
            else:
                return
        self._free()

    def _problem(self, error: Exception) -> StreamError | None:
        """Convert a transport error; None if it is another error."""
        from botocore.exceptions import BotoCoreError, ClientError
        from botocore.exceptions import ReadTimeoutError as BotocoreTimeout
        from urllib3.exceptions import HTTPError, ReadTimeoutError

        if self._closed:
            return StreamCut("The stream was closed by this program while it was being read.")
        if self._deadline is not None and self._deadline.passed:
            return self._patience.too_long()
        if isinstance(error, ReadTimeoutError | BotocoreTimeout):
            return self._patience.silent()
        if isinstance(error, ClientError):  # an exception message that botocore decoded
            answer = error.response.get("Error", {})
            name = str(answer.get("Code") or "error")
            return ModelStreamFailed(f"The stream broke: {name}: {answer.get('Message') or error}", name=name)
        if isinstance(error, BotoCoreError | HTTPError | OSError):
            return StreamCut(f"The connection broke in the middle of the stream: {error}")
        if type(error).__module__ == "botocore.eventstream":
            # Its ParserErrors (wrong checksum or length) are not subclasses of BotoCoreError.
            return StreamDamaged(f"The stream is damaged: {error}.")
        return None


class AsyncTokenStream(AsyncIterator[Chunk]):
    """Chunks of one answer for asyncio, then its `summary` and `completion`.

    Entering it sends the request. A thread of its own reads a `TokenStream`, so errors and timeouts are the
    same. Leaving the block, or a cancelled task, closes the connection::

        async with endpoint.astream(messages=[{"role": "user", "content": "Hello"}]) as stream:
            async for chunk in stream:
                print(chunk.text, end="")

    Raises:
        StreamError: while iterating, after all earlier chunks: see `TokenStream`. Entering it, or the first
            chunk without entering, raises the errors of `Endpoint.stream`.
    """

    def __init__(self, send: Callable[[], TokenStream]) -> None:
        """Take ``send``, which sends the request; it runs in the thread, at most once."""
        self._send = send
        self._thread = ThreadPoolExecutor(1, "peagle-sm astream")
        self._opened: TokenStream | None = None
        self._refused: PeagleError | None = None
        self._ready: deque[Chunk] = deque()
        self._closed = False

    async def __aenter__(self) -> AsyncTokenStream:
        await self._open()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    async def __anext__(self) -> Chunk:
        if not self._ready:
            if self._closed:
                raise StopAsyncIteration
            stream = self._opened or await self._open()
            self._ready += await self._in_thread(stream.read_some)
            if not self._ready:
                raise StopAsyncIteration
        return self._ready.popleft()

    async def aclose(self) -> None:
        """Stop reading and free the connection; the engine then drops the request."""
        self._closed = True
        self._ready.clear()
        if self._opened is not None:
            self._opened.close()
        self._thread.shutdown(wait=False)

    @property
    def stream(self) -> TokenStream:
        """The stream that the thread reads.

        Raises:
            PeagleError: the request has not been sent.
        """
        if self._opened is None:
            raise PeagleError(
                "The stream has not ended, so there is no summary yet.",
                next_step="Enter the stream and read all chunks first.",
            )
        return self._opened

    @property
    def text(self) -> str:
        """Text so far."""
        return self.stream.text

    @property
    def reasoning(self) -> str:
        """Reasoning text so far."""
        return self.stream.reasoning

    @property
    def tool_calls(self) -> tuple[ToolCall, ...]:
        """Tool calls so far."""
        return self.stream.tool_calls

    @property
    def logprobs(self) -> tuple[TokenLogprob, ...]:
        """Log-probabilities so far, if requested."""
        return self.stream.logprobs

    @property
    def summary(self) -> StreamSummary:
        """Figures of the request; errors as `TokenStream.summary`."""
        return self.stream.summary

    @property
    def completion(self) -> Completion:
        """Whole answer, as `Endpoint.invoke` returns it; errors as `TokenStream.completion`."""
        return self.stream.completion

    async def _open(self) -> TokenStream:
        if self._refused is not None:
            raise self._refused  # the request is not sent again
        try:
            self._opened = await self._in_thread(self._send, lambda late: late.close())
        except PeagleError as error:
            self._refused = error
            raise
        return self._opened

    async def _in_thread(
        self, call: Callable[[], Result], discard: Callable[[Result], object] = lambda late: None
    ) -> Result:
        """Run ``call`` in the thread; after a cancellation ``discard`` receives its late result."""
        future = self._thread.submit(call)
        try:
            return await asyncio.wrap_future(future)
        except PeagleError:
            raise
        except BaseException:  # mostly a cancellation
            future.add_done_callback(
                lambda late: None if late.cancelled() or late.exception() else discard(late.result())
            )
            await self.aclose()
            raise
