"""One piece of heavy work between two looks at the sockets."""

from __future__ import annotations

import asyncio
from collections import deque


class Desk:
    """Lets tasks through one by one, each in an iteration of the event loop of its own.

    Answers of one length end in one step of the engine: 128 of them read to the end, and 128 new requests
    signed and sent, would hold the loop for 50 ms, in which every chunk that comes would be stamped late. In
    a queue they take as long, but no chunk waits for more than one of them.
    """

    def __init__(self) -> None:
        """Nobody waits."""
        self._waiting: deque[asyncio.Future[None]] = deque()

    async def turn(self) -> None:
        """Wait for one's turn."""
        loop = asyncio.get_running_loop()
        mine: asyncio.Future[None] = loop.create_future()
        self._waiting.append(mine)
        if len(self._waiting) == 1:
            loop.call_soon(self._next, loop)
        await mine

    def _next(self, loop: asyncio.AbstractEventLoop) -> None:
        waiting = self._waiting.popleft()
        if not waiting.done():  # it may have been cancelled
            waiting.set_result(None)
        if self._waiting:
            loop.call_soon(self._next, loop)
