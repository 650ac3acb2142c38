"""aiohttp connection that records when bytes arrive, without waking a task.

Reading part by part through aiohttp's public stream costs a future, a task step and (from 3.14) a second
parser call for each chunk, and the chunk gets its time only after them. Here the connection records the time
as the event loop delivers the bytes, and many parts are fetched at once. Two private attributes of aiohttp
are used: the handler's ``_reading_paused``, and the connector's ``_factory``, without which `HttpSender`
reads part by part.
"""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Callable
from typing import Any

import aiohttp
from aiohttp.client_proto import ResponseHandler

from peagle_bench.load.answer import BATCH
from peagle_bench.load.work import Clock
from peagle_sm.aws.streams.framing import Timed

#: Far below the buffer size at which aiohttp stops reading from the socket.
_FETCH_BYTES = 128 * 1024


class StampingHandler(ResponseHandler):
    """Connection that records in ``stamp`` when bytes last arrived."""

    clock: Clock
    stamp = 0.0
    intake: Intake | None = None

    def data_received(self, data: bytes) -> None:
        """Record the time, parse the bytes, and notify the intake."""
        if data:
            self.stamp = self.clock()
        super().data_received(data)
        if self.intake is not None:
            self.intake.arrived(self.stamp)

    def connection_lost(self, exc: BaseException | None) -> None:
        """Fetch the remaining bytes before aiohttp drops them with the connection."""
        if self.intake is not None:
            self.intake.fetch()
        super().connection_lost(exc)

    def resume_reading(self, *args: Any, **options: Any) -> None:
        """Do nothing if reading was not paused: else aiohttp would parse an empty part at every read."""
        if self._reading_paused:
            super().resume_reading(*args, **options)


class Intake:
    """Body of one answer as it arrives through a `StampingHandler`."""

    def __init__(
        self, handler: StampingHandler, content: aiohttp.StreamReader, take: Callable[[list[Timed]], bool]
    ) -> None:
        """``take`` gets the parts in order, each with its time; False from it closes the connection."""
        self.stamp = handler.stamp  #: when bytes last arrived
        self.ended: float | None = None  #: when the end of the body arrived
        self._handler = handler
        self._content = content
        self._take = take
        self._fetched = 0
        self._ends: list[tuple[int, float]] = []
        if not content.is_eof():
            handler.intake = self
        self.arrived(handler.stamp)  # bytes that came together with the headers
        # The connection returns to the pool, and may carry another answer, before a task would notice.
        content.on_eof(self._end)

    def arrived(self, at: float) -> None:
        """Note that more bytes may have arrived at ``at``."""
        total = self._content.total_bytes
        ends = self._ends
        if total > (ends[-1][0] if ends else self._fetched):
            self.stamp = at
            ends.append((total, at))
            if len(ends) >= BATCH or total - self._fetched > _FETCH_BYTES:
                self.fetch()

    def fetch(self) -> None:
        """Pass on all bytes that have arrived."""
        ends, self._ends = self._ends, []
        if not ends:
            return
        data, start, parts = self._content.read_nowait(), 0, []
        for total, at in ends:
            end = total - self._fetched
            parts.append((data[start:end], at))
            start = end
        self._fetched = ends[-1][0]
        if not self._take(parts) and not self._content.is_eof():
            self._handler.close()

    async def whole(self) -> None:
        """Wait for the end of the body, without fetching its last parts; raise the error that broke it."""
        try:
            if (broken := self._content.exception()) is not None:
                raise broken
            await self._content.wait_eof()
        except asyncio.CancelledError:
            self.fetch()  # leaving the response drops unread bytes
            raise
        finally:
            self._let_go()

    def _end(self) -> None:
        self.ended = self._handler.stamp
        self.arrived(self.ended)
        self._let_go()

    def _let_go(self) -> None:
        if self._handler.intake is self:
            self._handler.intake = None


def stamp_arrivals(connector: aiohttp.TCPConnector, clock: Clock) -> None:
    """Make a connector's connections record arrival times; do nothing if aiohttp has no such hook."""
    factory = getattr(connector, "_factory", None)
    if not isinstance(factory, functools.partial):
        return

    def make() -> StampingHandler:
        handler = StampingHandler(*factory.args, **factory.keywords)
        handler.clock = clock
        return handler

    connector._factory = make  # type: ignore[assignment]  # typed as the partial it was
