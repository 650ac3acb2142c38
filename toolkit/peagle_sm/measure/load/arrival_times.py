"""aiohttp's connection, which notes when bytes arrive instead of waking a task to find out.

Reading part by part through aiohttp's public stream costs a future, a task's step and (from 3.14) a second
call of the parser a chunk, and stamps the chunk only after them. Here the connection stamps the bytes as
the event loop hands them over, and they are fetched many parts at a time. Two things of aiohttp's inside
are used: the connector's ``_factory``, without which `HttpSender` reads part by part and all else stays the
same, and the handler's ``_reading_paused``.
"""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Callable
from typing import Any

import aiohttp
from aiohttp.client_proto import ResponseHandler

from peagle_sm.aws.streams.framing import Timed
from peagle_sm.measure.load.answer import BATCH
from peagle_sm.measure.load.work import Clock

#: Far below the size at which aiohttp would stop reading from the socket.
_FETCH_BYTES = 128 * 1024


class StampingHandler(ResponseHandler):
    """One connection; ``stamp`` is when bytes last came."""

    clock: Clock
    stamp = 0.0
    intake: Intake | None = None

    def data_received(self, data: bytes) -> None:
        """Note the time, have the bytes parsed, and tell who waits for them."""
        if data:
            self.stamp = self.clock()
        super().data_received(data)
        if self.intake is not None:
            self.intake.arrived(self.stamp)

    def connection_lost(self, exc: BaseException | None) -> None:
        """Fetch what is there before aiohttp drops it with the connection."""
        if self.intake is not None:
            self.intake.fetch()
        super().connection_lost(exc)

    def resume_reading(self, *args: Any, **options: Any) -> None:
        """Do nothing where reading was not paused: aiohttp parses an empty part at every read."""
        if self._reading_paused:
            super().resume_reading(*args, **options)


class Intake:
    """The body of one answer as it comes through a `StampingHandler`."""

    def __init__(
        self, handler: StampingHandler, content: aiohttp.StreamReader, take: Callable[[list[Timed]], bool]
    ) -> None:
        """``take`` gets the parts in order, each with its time; False from it drops the connection."""
        self.stamp = handler.stamp  #: when bytes last came
        self.ended: float | None = None  #: when the body's end came
        self._handler = handler
        self._content = content
        self._take = take
        self._fetched = 0
        self._ends: list[tuple[int, float]] = []
        if not content.is_eof():
            handler.intake = self
        self.arrived(handler.stamp)  # what came together with the headers
        # The connection goes back to the pool, and may carry another answer, before a task could notice.
        content.on_eof(self._end)

    def arrived(self, at: float) -> None:
        """More bytes may be there since ``at``."""
        total = self._content.total_bytes
        ends = self._ends
        if total > (ends[-1][0] if ends else self._fetched):
            self.stamp = at
            ends.append((total, at))
            if len(ends) >= BATCH or total - self._fetched > _FETCH_BYTES:
                self.fetch()

    def fetch(self) -> None:
        """Hand over all that has arrived."""
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
        """Wait for the end of the body, and leave the last of it to `fetch`; what broke it is raised."""
        try:
            if (broken := self._content.exception()) is not None:
                raise broken
            await self._content.wait_eof()
        except asyncio.CancelledError:
            self.fetch()  # leaving the response drops what has not been read
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
    """Make ``connector``'s connections stamp their bytes; one without that seam stays as it is."""
    factory = getattr(connector, "_factory", None)
    if not isinstance(factory, functools.partial):
        return

    def make() -> StampingHandler:
        handler = StampingHandler(*factory.args, **factory.keywords)
        handler.clock = clock
        return handler

    connector._factory = make  # type: ignore[assignment]  # typed as the partial it was
