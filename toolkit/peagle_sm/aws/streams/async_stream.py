"""A response stream read with asyncio; the same decoder and the same errors as `TokenStream`."""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Protocol

from peagle_sm.aws.streams.assembly import Assembler
from peagle_sm.aws.streams.figures import Chunk
from peagle_sm.aws.streams.patience import DRAIN_S, Patience
from peagle_sm.aws.streams.streamed import StreamedAnswer
from peagle_sm.core.errors import PeagleError, StreamError


class AsyncSource(Protocol):
    """The bytes of one response."""

    request_id: str

    async def part(self) -> bytes:
        """Return what has come, cut anywhere; nothing at the end."""

    async def close(self) -> None:
        """Free the connection; where the response was read to its end it may be used again."""

    def problem(self, error: Exception) -> StreamError | None:
        """What an error of `part` means; None for one that is no transport's."""


class AsyncTokenStream(StreamedAnswer, AsyncIterator[Chunk]):
    """The chunks of one answer, then its `summary` and `completion`; the request is sent as it is opened.

    Use it as a context manager, so that a loop that is left frees the connection::

        async with endpoint.astream(prompt="def fib(n):", max_tokens=64) as stream:
            async for chunk in stream:
                print(chunk.text, end="")

    A task that is cancelled frees it too. It never repeats a request.

    Raises:
        StreamError: while iterating, after all chunks that came before: see `TokenStream`. Opening, or the
            first chunk without opening, raises what `Endpoint.stream` does.
    """

    def __init__(
        self,
        send: Callable[[], Awaitable[AsyncSource]],
        *,
        monotonic: Callable[[], float],
        patience: Patience | None = None,
        assembler: Assembler | None = None,
    ) -> None:
        """``send`` sends the request and returns its response, or raises."""
        super().__init__(assembler or Assembler(framed=True), monotonic, monotonic())
        self._send = send
        self._patience = patience or Patience()
        self._source: AsyncSource | None = None
        self._ready: deque[Chunk] = deque()
        self._total_ms = self._patience.total_s * 1000
        self._live = False  #: there is a response, and more of the answer to come
        self._closed = False
        self._error: PeagleError | None = None

    async def __aenter__(self) -> AsyncTokenStream:
        """Send the request."""
        await self._entered()
        return self

    async def __aexit__(self, *_: object) -> None:
        """Close."""
        await self.aclose()

    async def __anext__(self) -> Chunk:
        """Return the next chunk."""
        ready = self._ready
        while not ready:
            try:
                await self._take(self._source if self._live and self._source else await self._entered())
            except (StopAsyncIteration, PeagleError):
                raise
            except BaseException:  # cancelled, above all: nobody reads on
                await self.aclose()
                raise
        return ready.popleft()

    async def aclose(self) -> None:
        """Stop reading and free the connection; the engine then drops the request."""
        self._closed = True
        self._ready.clear()
        await self._free()

    async def _entered(self) -> AsyncSource:
        """The response to read from; StopAsyncIteration at the end of a whole answer."""
        if self._error is not None:
            raise self._error
        if self._assembler.done:
            await self._drain()
            raise StopAsyncIteration
        if self._closed:
            raise StopAsyncIteration
        if self._source is None:
            self._started = self._monotonic()
            try:
                self._source = await self._send()
            except PeagleError as error:
                self._error = error  # asked again, it is not sent again
                raise
            self.request_id = self._source.request_id
            self._live = True
        return self._source

    async def _free(self) -> None:
        source, self._source = self._source, None
        self._live = False
        if source is not None:
            await source.close()

    async def _take(self, source: AsyncSource) -> None:
        """Take one part."""
        assembler = self._assembler
        try:
            part = await source.part()
        except Exception as error:
            problem = source.problem(error)
            if problem is None:
                raise
            problem.__cause__ = error
            assembler.fail(problem)
            await self._settle()
            return
        at_ms = (self._monotonic() - self._started) * 1000
        self._ready += assembler.feed(part, at_ms) if part else assembler.finish(at_ms)
        if at_ms > self._total_ms:
            assembler.fail(self._patience.too_long())
        if assembler.over or not part:
            await self._settle()

    async def _settle(self) -> None:
        """The answer is whole, or something is wrong with it."""
        self._live = False
        problem = self._assembler.problem
        if problem is not None:
            self._error = self._told(problem)
            await self._free()
            return
        self._conclude()
        if not self._assembler.done:
            self._closed = True
            await self._free()

    async def _drain(self) -> None:
        """Read to the end of the response, so that its connection can be used again; not for long."""
        source = self._source
        if source is not None:
            with contextlib.suppress(Exception):  # the answer is whole; what breaks after it does not matter
                async with asyncio.timeout(DRAIN_S):
                    while await source.part():
                        pass
        await self._free()
