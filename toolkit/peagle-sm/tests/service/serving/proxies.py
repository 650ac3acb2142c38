"""A proxy on a port of its own, in a thread of this process."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import openai

from peagle_sm.service.serving.proxy import Proxy, Running, Served, start
from peagle_sm.service.serving.upstream import Upstream
from tests.local.serving import Server, eventually, local_session


@dataclass
class Serving:
    """A running proxy and what it has served."""

    running: Running
    loop: asyncio.AbstractEventLoop
    served: list[Served] = field(default_factory=list)

    @property
    def url(self) -> str:
        return self.running.url

    def client(self, api_key: str = "any") -> openai.OpenAI:
        return openai.OpenAI(base_url=self.url, api_key=api_key, max_retries=0)

    def drain(self, seconds: float) -> Any:
        return asyncio.run_coroutine_threadsafe(self.running.drain(seconds), self.loop)

    def last(self) -> Served:
        """The newest request's line: it is written after the answer, so wait until none is under way."""

        async def newest() -> Served | None:
            return self.served[-1] if self.served and not self.running.proxy.busy else None

        return eventually(  # type: ignore[no-any-return]
            lambda: asyncio.run_coroutine_threadsafe(newest(), self.loop).result(30)
        )


@contextmanager
def serving(
    server: Server, endpoint: str, component: str | None = None, url: str | None = None, **options: Any
) -> Iterator[Serving]:
    """Serve an endpoint; `url` sends its requests elsewhere than to the server."""
    session = local_session(server)
    upstream = Upstream(url or server.url, session.region, session.credentials(), endpoint, component)
    served: list[Served] = []
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    proxy = Proxy(upstream, on_served=served.append, **options)
    running = asyncio.run_coroutine_threadsafe(start(proxy, "127.0.0.1", 0), loop).result(30)
    try:
        yield Serving(running, loop, served)
    finally:
        asyncio.run_coroutine_threadsafe(running.close(), loop).result(30)
        loop.call_soon_threadsafe(loop.stop)
        thread.join(30)
        loop.close()
