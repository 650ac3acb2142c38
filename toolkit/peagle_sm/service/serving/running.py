"""Starts the proxy on a port and ends it: first nothing new, then what is under way, then the door."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable
from dataclasses import dataclass

from aiohttp import web

from peagle_sm.core.errors import SpecError
from peagle_sm.service.serving.proxy import Proxy

#: A stream of SageMaker lasts at most 8 minutes.
DRAIN_S = 8 * 60.0
_LOOK_S = 0.05


@dataclass
class Running:
    """A proxy that listens."""

    url: str
    port: int
    proxy: Proxy
    _runner: web.AppRunner

    async def drain(self, seconds: float = DRAIN_S) -> bool:
        """Take nothing new and wait for what is under way; say whether all of it ended in time."""
        self.proxy.draining = True
        deadline = asyncio.get_running_loop().time() + seconds
        while self.proxy.busy and asyncio.get_running_loop().time() < deadline:
            await asyncio.sleep(_LOOK_S)
        return not self.proxy.busy

    async def close(self) -> None:
        """End now, with what is under way."""
        await self._runner.cleanup()


def run(
    proxy: Proxy,
    host: str,
    port: int,
    *,
    ready: Callable[[Running], None],
    draining: Callable[[int], None],
) -> None:
    """Serve until Ctrl-C or SIGTERM, then drain; a second one ends at once. In the main thread only.

    ``ready`` is called once it listens, ``draining`` with the number of requests that are waited for.
    """
    asyncio.run(_until_asked(proxy, host, port, ready, draining))


async def _until_asked(
    proxy: Proxy,
    host: str,
    port: int,
    ready: Callable[[Running], None],
    draining: Callable[[int], None],
) -> None:
    asked, again = asyncio.Event(), asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(
            number, lambda: (again if asked.is_set() else asked).set()
        )
    running = await start(proxy, host, port)
    try:
        ready(running)
        await asked.wait()
        if proxy.busy:
            draining(proxy.busy)
            waits = [asyncio.create_task(running.drain()), asyncio.create_task(again.wait())]
            _, left = await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
            for task in left:
                task.cancel()
            await asyncio.gather(*left, return_exceptions=True)
    finally:
        await running.close()


async def start(proxy: Proxy, host: str, port: int) -> Running:
    """Listen on ``host`` and ``port`` (0: any free one).

    Raises:
        SpecError: the address cannot be listened on.
    """
    # A client that leaves cancels its request, and with it the connection to SageMaker.
    runner = web.AppRunner(proxy.app(), handler_cancellation=True, access_log=None, shutdown_timeout=0.5)
    await runner.setup()
    site = web.TCPSite(runner, host, port)
    try:
        await site.start()
    except OSError as error:
        await runner.cleanup()
        raise SpecError(
            f"cannot listen on {host}:{port}: {error.strerror or error}; allowed: a free port.",
            next_step="Give another --port, or --port 0 for any free one.",
            details={"host": host, "port": port},
        ) from error
    bound = runner.addresses[0][1]
    shown = "127.0.0.1" if host in ("0.0.0.0", "::") else host
    return Running(f"http://{shown}:{bound}/v1", bound, proxy, runner)
