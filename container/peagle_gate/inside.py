"""Asks the engine's own routes from within its process, as a client would over HTTP, but without a socket."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Message, Receive, Send], Awaitable[None]]


async def ask(app: App, state: Message, method: str, path: str, body: object = None) -> tuple[int, bytes]:
    """Return the status and body of the application's answer.

    Args:
        app: the ASGI application below the gate.
        state: the `app` and `state` entries of the server's own scope, without which routes find no engine.
        method: of the request.
        path: of the request.
        body: sent as JSON; None sends none.
    """
    content = b"" if body is None else json.dumps(body).encode()
    status, parts = 0, list[bytes]()
    waiting = [{"type": "http.request", "body": content, "more_body": False}]

    async def receive() -> Message:
        if waiting:
            return waiting.pop()
        # Nobody hangs up on this request: who asks again waits for ever, until the task is cancelled.
        await asyncio.Event().wait()
        return {"type": "http.disconnect"}

    async def send(message: Message) -> None:
        nonlocal status
        if message["type"] == "http.response.start":
            status = message["status"]
        elif message["type"] == "http.response.body":
            parts.append(message.get("body", b""))

    scope: Message = {
        **state,
        "type": "http",
        "asgi": {"version": "3.0"},
        "http_version": "1.1",
        "method": method,
        "scheme": "http",
        "path": path,
        "raw_path": path.encode(),
        "root_path": "",
        "query_string": b"",
        "headers": [(b"content-type", b"application/json"), (b"host", b"localhost")],
        "client": ("127.0.0.1", 0),
        "server": ("127.0.0.1", 0),
    }
    await app(scope, receive, send)
    return status, b"".join(parts)
