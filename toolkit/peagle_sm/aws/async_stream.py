"""A response stream read with asyncio; the same decoder and the same errors as `TokenStream`."""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Protocol

from peagle_sm.aws.assembly import Assembler
from peagle_sm.aws.figures import Chunk
from peagle_sm.aws.patience import DRAIN_S, Patience
from peagle_sm.aws.streamed import StreamedAnswer
from peagle_sm.core.errors import StreamError


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
        self._closed = False
        self._error: StreamError | None = None

    async def __aenter__(self) -> AsyncTokenStream:
        """Send the request."""
        await self._opened()
        return self

    async def __aexit__(self, *_: object) -> None:
        """Close."""
        await self.aclose()

    async def __anext__(self) -> Chunk:
        """Return the next chunk."""
        while not self._ready:
            try:
                await self._read()
            except (StopAsyncIteration, StreamError):
                raise
            except BaseException:  # cancelled, above all: nobody reads on
                await self.aclose()
                raise
        return self._ready.popleft()

    async def aclose(self) -> None:
        """Stop reading and free the connection; the engine then drops the request."""
        self._closed = True
        self._ready.clear()
        await self._free()

    async def _opened(self) -> AsyncSource:
        if self._source is None:
            self._started = self._monotonic()
            self._source = await self._send()
            self.request_id = self._source.request_id
        return self._source

    async def _free(self) -> None:
        source, self._source = self._source, None
        if source is not None:
            await source.close()

    async def _read(self) -> None:
        """Take one part; StopAsyncIteration at the end of a whole answer."""
        assembler = self._assembler
        if self._error is not None:
            raise self._error
        if assembler.done:
            await self._drain()
            raise StopAsyncIteration
        if self._closed:
            raise StopAsyncIteration
        source = await self._opened()
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
        at_ms = self._now_ms()
        if part:
            self._ready += assembler.feed(part, at_ms)
        else:
            self._ready += assembler.finish(at_ms)
        if at_ms > self._patience.total_s * 1000:
            assembler.fail(self._patience.too_long())
        if assembler.over or not part:
            await self._settle()

    async def _settle(self) -> None:
        """The answer is whole, or something is wrong with it."""
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
