"""Middleware `Gate`, which vLLM loads by ``--middleware peagle_gate.asgi.Gate``, outside its own.

``/ping`` is healthy after the canary has passed, until SIGTERM. Requests are checked against the limits.
After SIGTERM new requests are refused while vLLM finishes the running ones (``--shutdown-timeout``). `ask`
calls the engine's own routes inside its process, without a socket.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
import time
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

from peagle_gate import acceptance
from peagle_gate.acceptance import Counts
from peagle_gate.canary import CanaryError, scrape, verdict
from peagle_gate.drift import Detector
from peagle_gate.limits import Refusal, Request, judged, too_large
from peagle_gate.slice_counts import Following, SliceCounter, log_lines
from peagle_gate.slice_values import read_chosen
from peagle_gate.startup import FORCED_USAGE, block_outlines, read_settings, speculation

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
        # This request never disconnects: a second receive waits until the task is cancelled.
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


#: What SageMaker sends and the metrics it scrapes; everything else of vLLM's server stays closed.
OPEN = frozenset(
    {"/ping", "/health", "/metrics", "/version", "/v1/models", "/invocations"}
    | {"/v1/chat/completions", "/v1/completions"}
)
HEALTH = frozenset({"/ping", "/health"})
_STARTING = "starting: the canary has not finished"
_STOPPING = "stopping after SIGTERM: running requests are finished, new ones are refused"


class Gate:
    """Middleware with limits, health and draining; one per server process.

    Attributes:
        reason: why ``/ping`` is not healthy; "" if it is.
    """

    def __init__(self, app: App, sleep: Callable[[float], Awaitable[None]] = asyncio.sleep) -> None:
        self._app = app
        self._sleep = sleep
        block_outlines(sys.modules)
        self._settings = read_settings(os.environ)
        self._speculation = speculation(sys.argv)
        chosen = read_chosen(filter(None, self._settings.slices.split(";")))
        self._counter: SliceCounter | None = None
        if chosen and self._speculation is not None:
            self._counter = SliceCounter(chosen, usage_is_forced=FORCED_USAGE in sys.argv)
        self._canary_due = self._speculation is not None and self._settings.canary_prompts > 0
        self._tasks: set[asyncio.Task[None]] = set()
        self._server: Message = {}
        self._stopping = False
        self.reason = _STARTING if self._canary_due else ""

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        """Handle an ASGI call."""
        if scope["type"] == "lifespan":
            await self._app(scope, receive, self._starts_with(scope, send))
        elif scope["type"] != "http":
            await self._close(receive, send)
        else:
            await self._http(scope, receive, send)

    def _starts_with(self, scope: Message, send: Send) -> Send:
        """Start the gate's own work when the application has started."""

        async def sending(message: Message) -> None:
            await send(message)
            if message["type"] == "lifespan.startup.complete":
                self._server = {key: scope[key] for key in ("app", "state") if key in scope}
                self._start()

        return sending

    def _start(self) -> None:
        loop = asyncio.get_running_loop()
        # vLLM drains on SIGINT as on SIGTERM, so the one may announce what the other then does.
        loop.add_signal_handler(signal.SIGTERM, self._stop)
        self._keep(loop.create_task(self._watch()))

    def _keep(self, task: asyncio.Task[None]) -> None:
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _stop(self) -> None:
        if self._stopping:
            return
        self._stopping, self.reason = True, _STOPPING
        _log(_STOPPING)
        os.kill(os.getpid(), signal.SIGINT)

    async def _ask(self, method: str, path: str, body: object) -> tuple[int, bytes]:
        return await ask(self._app, self._server, method, path, body)

    async def _watch(self) -> None:
        """Run the canary, then watch the drafting until the server ends."""
        if self._canary_due:
            await self._canary()
        if self._speculation is not None and self._settings.sample_s and self._settings.namespace:
            if self._counter is not None:
                self._keep(asyncio.get_running_loop().create_task(self._sample_slices(self._counter)))
            await self._sample()

    async def _canary(self) -> None:
        assert self._speculation is not None
        began = time.monotonic()
        try:
            wrong, seen = await verdict(self._ask, self._settings, self._speculation)
        except CanaryError as error:
            wrong, seen = f"the canary got no answer: {error}", ""
        except Exception as error:
            # After any error: an endpoint that was not checked must not be reported as healthy.
            wrong, seen = f"the canary failed: {type(error).__name__}: {error}", ""
        _log(f"canary: {wrong or 'passed'}; {seen} ({time.monotonic() - began:.1f} s)")
        if not self._stopping:
            self.reason = f"unhealthy: {wrong}" if wrong else ""

    async def _sample(self) -> None:
        """Log the acceptance length until the server ends, counted from after the canary."""
        before = await self._counts()
        while True:
            await self._sleep(self._settings.sample_s)
            now = await self._counts()
            counts = now.since(before)
            if counts.drafts:
                print(
                    acceptance.log_line(counts, self._settings.namespace, time.time_ns() // 1_000_000),
                    flush=True,
                )
            before = now

    async def _sample_slices(self, counter: SliceCounter) -> None:
        """Log the counts by slice until the server ends, and what the detector finds in them."""
        detector = Detector(counter.dimensions)
        since = time.time()
        while True:
            await self._sleep(self._settings.sample_s)
            counts, uncounted = counter.take()
            now = time.time()
            if counts or uncounted:
                detector.add(since, counts)
                # In a thread: it takes some milliseconds, in which streams go on.
                changes = await asyncio.to_thread(detector.changes)
                lines = log_lines(
                    counter,
                    counts,
                    uncounted,
                    changes,
                    namespace=self._settings.namespace,
                    since=since,
                    unix_ms=round(now * 1000),
                )
                print("\n".join(lines), flush=True)
            since = now

    async def _counts(self) -> Counts:
        """Return the engine's counts; log a failure once, and retry."""
        is_logged = False
        while True:
            try:
                return await scrape(self._ask)
            except Exception as error:
                # The endpoint still serves, but the end of its metrics must be visible.
                if not is_logged:
                    _log(f"drafting metrics unavailable: {type(error).__name__}: {error}")
                is_logged = True
            await self._sleep(self._settings.sample_s)

    async def _http(self, scope: Message, receive: Receive, send: Send) -> None:
        path = scope["path"]
        if path in HEALTH and self.reason:
            await _answer(send, 503, self.reason)
        elif path not in OPEN:
            await _answer(send, 404, f"{path} is not served by this container")
        elif scope["method"] != "POST" or path in HEALTH:
            await self._app(scope, receive, send)
        elif self._stopping:
            await _answer(send, 503, _STOPPING)
        else:
            await self._limited(scope, receive, send)

    async def _limited(self, scope: Message, receive: Receive, send: Send) -> None:
        body, refusal = await self._read(receive)
        if body is None:
            return  # the client went away
        request: Request = {}
        if refusal is None:
            request, refusal = judged(body, self._settings.limits)
        if refusal is not None:
            await _answer(send, refusal.status, refusal.message, refusal.param)
        elif self._counter is None:
            await self._pass_on(scope, body, receive, send)
        else:
            await self._counted(self._counter.follow(request, scope["headers"]), scope, body, receive, send)

    async def _pass_on(self, scope: Message, body: bytes, receive: Receive, send: Send) -> None:
        first: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]

        async def again() -> Message:
            return first.pop() if first else await receive()

        await self._app(scope, again, send)

    async def _counted(
        self, following: Following, scope: Message, body: bytes, receive: Receive, send: Send
    ) -> None:
        """Pass a request on, and count its drafts from the answer."""

        async def sending(message: Message) -> None:
            if message["type"] == "http.response.start":
                following.started(message["status"])
            elif content := message.get("body"):
                kept = following.part(content)
                if kept is not content:
                    if not kept and message.get("more_body"):
                        return
                    message = {**message, "body": kept}
            await send(message)

        try:
            await self._pass_on(_with_length(scope, body := following.body(body)), body, receive, sending)
        finally:
            following.ended()

    async def _read(self, receive: Receive) -> tuple[bytes | None, Refusal | None]:
        parts, size = list[bytes](), 0
        while True:
            message = await receive()
            if message["type"] == "http.disconnect":
                return None, None
            part = message.get("body", b"")
            parts.append(part)
            size += len(part)
            refusal = too_large(size, self._settings.limits)
            if refusal is not None or not message.get("more_body"):
                return b"".join(parts), refusal

    async def _close(self, receive: Receive, send: Send) -> None:
        """Refuse a web socket: this container does not support SageMaker's bidirectional streams."""
        await receive()
        await send({"type": "websocket.close", "code": 1008, "reason": "not served by this container"})


def _with_length(scope: Message, body: bytes) -> Message:
    """Return the scope with the length of a body that may have been extended."""
    length = str(len(body)).encode()
    headers = [(name, length if name == b"content-length" else value) for name, value in scope["headers"]]
    return {**scope, "headers": headers}


async def _answer(send: Send, status: int, message: str, param: str = "") -> None:
    """Respond in the format of vLLM's errors, so that clients read both in the same way."""
    kind = "BadRequestError" if status in (400, 413) else "NotFoundError" if status == 404 else "Unavailable"
    document = {"error": {"message": message, "type": kind, "param": param or None, "code": status}}
    content = json.dumps(document).encode()
    headers = [(b"content-type", b"application/json"), (b"content-length", str(len(content)).encode())]
    if status == 503:
        headers.append((b"retry-after", b"5"))
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": content})


def _log(sentence: str) -> None:
    print(f"peagle_gate: {sentence}", file=sys.stderr, flush=True)
