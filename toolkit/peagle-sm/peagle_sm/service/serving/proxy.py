"""Web application of `peagle-sm serve`: OpenAI requests in, invocations out.

`start` serves on a port. `run` stops in order: accept no new requests, finish those in flight, close the
port.
"""

from __future__ import annotations

import asyncio
import hmac
import json
import signal
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from time import monotonic
from typing import Any
from urllib.parse import urlsplit

import aiohttp
from aiohttp import web

from peagle_sm.aws.session.signing import json_object
from peagle_sm.aws.streams.answers import aborted_in, engine_error
from peagle_sm.aws.streams.refusals import refuse_ignored
from peagle_sm.aws.streams.runtime import BODY_LIMIT_BYTES, answers_asked
from peagle_sm.core.errors import PeagleError, SpecError
from peagle_sm.core.words import encoded_utf8
from peagle_sm.service.serving.listening import reachable
from peagle_sm.service.serving.upstream import (
    STARTING_S,
    USAGE,
    Problem,
    Relay,
    Upstream,
    asking_for_usage,
    figures_of,
    gave_up,
    invalid,
    of_aws,
    of_document,
    of_error,
    of_stream,
    open_http,
    unavailable,
)
from peagle_sm.traffic.recorder import LABELS_NAME, Recorder, Recording

#: The engine distinguishes the two by the body: `messages` or `prompt`.
CALLS = {"/v1/chat/completions": "messages", "/v1/completions": "prompt"}
SERVED = (*(f"POST {path}" for path in CALLS), "GET /v1/models", "GET /health")
_STREAM = "text/event-stream"
_LOOPBACK = ("localhost", "127.0.0.1", "::1")
_LEFT = "the client disconnected"


@dataclass
class Served:
    """Result of one request, for its log line."""

    method: str
    path: str
    status: int = 0
    streamed: bool = False
    tokens: int | None = None
    acceptance_length: float | None = None
    milliseconds: float = 0.0
    whole: bool = False
    failed: str | None = None

    def leave(self) -> None:
        """Record that the client closed the connection before the answer ended."""
        if not self.whole and self.failed is None:
            self.failed = _LEFT

    @property
    def left(self) -> bool:
        """True if the client closed the connection before the answer ended."""
        return self.failed == _LEFT

    def line(self) -> str:
        """Return one line: the request, its status, tokens, acceptance length and time."""
        kind = " stream" if self.streamed else ""
        tokens = "-" if self.tokens is None else str(self.tokens)
        length = "-" if self.acceptance_length is None else f"{self.acceptance_length:.2f}"
        why = f"  {self.failed}" if self.failed else ""
        return (
            f"{self.method} {self.path} {self.status}{kind}  tokens {tokens}  AL {length}  "
            f"{self.milliseconds:.0f} ms{why}"
        )

    def to_dict(self) -> dict[str, Any]:
        """Return plain JSON types."""
        return dict(vars(self))


class Proxy:
    """Proxy for one endpoint; ``busy`` counts the requests in flight."""

    def __init__(
        self,
        upstream: Upstream,
        *,
        api_key: str | None = None,
        any_host: bool = False,
        on_served: Callable[[Served], None] = lambda served: None,
        recorder: Recorder | None = None,
    ) -> None:
        """Take the endpoint; ``any_host`` also accepts Host headers other than loopback."""
        self._recorder = recorder
        self._upstream = upstream
        self._api_key = api_key
        self._any_host = any_host
        self._on_served = on_served
        self._http: aiohttp.ClientSession | None = None
        self.model = upstream.component or upstream.endpoint
        self.keyed = api_key is not None
        self.busy = 0
        self.draining = False

    def app(self) -> web.Application:
        """Build the application, which opens and closes the connections to SageMaker."""
        app = web.Application(client_max_size=BODY_LIMIT_BYTES + 1)
        app.router.add_route("*", "/{path:.*}", self.handle)
        app.cleanup_ctx.append(self._connections)
        return app

    async def _connections(self, app: web.Application) -> Any:
        self._http = open_http(self._upstream.endpoint_url)
        yield
        await self._http.close()

    async def handle(self, request: web.Request) -> web.StreamResponse:
        """Answer one request and report it."""
        served = Served(request.method, request.path)
        began = monotonic()
        self.busy += 1
        try:
            problem = self._refusal(request)
            if problem is not None:
                return self._fail(served, problem)
            return await self._answer(request, served)
        except asyncio.CancelledError:
            served.leave()
            raise
        finally:
            self.busy -= 1
            served.milliseconds = (monotonic() - began) * 1000
            self._on_served(served)

    def _refusal(self, request: web.Request) -> Problem | None:
        if self.draining:
            return Problem(
                503, "peagle-sm serve is shutting down", "server_error", "ending", retry_after_s=STARTING_S
            )
        # A web page must not spend the user's money, neither by DNS rebinding nor from its own origin.
        if not self._any_host and not _is_loopback(f"//{request.host}"):
            return invalid(f"found Host {request.host!r}; allowed: {', '.join(_LOOPBACK)}", 403)
        origin = request.headers.get("Origin")
        if origin is not None and not _is_loopback(origin):
            return invalid(f"found Origin {origin!r}; allowed: pages on this machine", 403)
        if self._api_key is None or request.path in ("/health", "/ping"):
            return None
        scheme, _, given = request.headers.get("Authorization", "").partition(" ")
        if scheme.lower() == "bearer" and hmac.compare_digest(given.encode(), self._api_key.encode()):
            return None
        return Problem(401, "the API key is not that of --api-key", "authentication_error", "invalid_api_key")

    async def _answer(self, request: web.Request, served: Served) -> web.StreamResponse:
        if request.method in ("GET", "HEAD"):
            return self._looked_up(request, served)
        if request.path not in CALLS or request.method != "POST":
            return self._fail(served, _not_served(request))
        try:
            body, relay = self._parse_request(await request.read(), request.path, served)
        except web.HTTPRequestEntityTooLarge:
            return self._fail(served, _TOO_LARGE)
        except SpecError as error:
            return self._fail(served, invalid(error.message))
        except RecursionError:  # from parsing the JSON, or from writing it
            return self._fail(served, invalid("the JSON of the request body is nested too deeply"))
        return await self._invoke(request, body, relay, served)

    def _looked_up(self, request: web.Request, served: Served) -> web.Response:
        model = {"id": self.model, "object": "model", "created": 0, "owned_by": "sagemaker"}
        known: Mapping[str, Any] = {
            "/v1/models": {"object": "list", "data": [model]},
            f"/v1/models/{self.model}": model,
            "/health": {"status": "ok", "endpoint": self._upstream.endpoint},
            "/ping": {"status": "ok", "endpoint": self._upstream.endpoint},
        }
        document = known.get(request.path)
        if document is None:
            return self._fail(served, _not_served(request))
        served.status = 200
        return web.json_response(document)

    def _parse_request(self, raw: bytes, path: str, served: Served) -> tuple[bytes, Relay]:
        """Return a request's body for SageMaker, and the relay of its answer.

        Raises:
            SpecError: the body is invalid for this path.
        """
        needed, document = CALLS[path], _document(raw)
        if needed not in document:
            raise SpecError(f"the request body lacks {needed!r}")
        stream = document.get("stream")
        if stream is not None and not isinstance(stream, bool):
            # The engine reads 1 and "true" as true; SageMaker has another call for streams.
            raise SpecError(f"stream: found {json.dumps(stream)[:100]}; allowed: true or false")
        served.streamed = bool(stream)
        refuse_ignored(document)
        options = document.get("stream_options")
        asks = isinstance(options, dict) and options.get("include_usage") is True
        if self._recorder is not None and served.streamed and not asks and isinstance(options, dict | None):
            # vLLM reports the drafts of a stream only with its usage, and few clients ask for that.
            relay = Relay(answers=answers_asked(document), hides_usage=True)
            asking = None if document.get("model") == self.model else asking_for_usage(raw, document)
            body = asking or self._encoded({**document, "stream_options": {**(options or {}), **USAGE}})
            return body, relay
        relay = Relay(answers=answers_asked(document))
        # Send the body unchanged, unless its model is this server's name for the endpoint.
        return (self._encoded(document) if document.get("model") == self.model else raw), relay

    def _encoded(self, document: dict[str, Any]) -> bytes:
        """Return the body; this server's model name becomes empty, as the engine expects."""
        if document.get("model") == self.model:
            document = {**document, "model": ""}
        return encoded_utf8(json.dumps(document, ensure_ascii=False), "the request body")

    async def _invoke(
        self, request: web.Request, body: bytes, relay: Relay, served: Served
    ) -> web.StreamResponse:
        if len(body) > BODY_LIMIT_BYTES:
            return self._fail(served, _TOO_LARGE)
        recording = self._recording(request, body, served)
        try:
            return await self._send(request, body, relay, served, recording)
        finally:
            if recording is not None:
                left = not served.whole and (served.failed is None or served.left)
                status = served.status if served.status >= 400 else None
                recording.end(left=left, problem=None if left else served.failed, status=status)

    def _recording(self, request: web.Request, body: bytes, served: Served) -> Recording | None:
        if self._recorder is None:
            return None
        labels = self._recorder.labels_of(request.headers.get(LABELS_NAME))
        return self._recorder.begin(body, streamed=served.streamed, framed=served.streamed, labels=labels)

    async def _send(
        self, request: web.Request, body: bytes, relay: Relay, served: Served, recording: Recording | None
    ) -> web.StreamResponse:
        assert self._http is not None, "the application has not been started"
        response: web.StreamResponse | None = None
        labels = request.headers.get(LABELS_NAME)
        try:
            async with self._upstream.send(
                self._http, body, streamed=served.streamed, labels=labels
            ) as answer:
                if answer.status >= 400:
                    content = await answer.read()
                    return self._fail(served, of_aws(answer.status, answer.headers, content))
                if not served.streamed:
                    content = await answer.read()
                    if recording is not None:
                        recording.add(content)
                    return self._whole_answer(answer, content, served)
                response = await _start_response(request, answer, served)
                await _relay(relay, answer, response, served, recording)
                return response
        except PeagleError as error:
            return self._fail(served, of_error(error))
        except (aiohttp.ClientError, TimeoutError) as error:
            if response is not None:  # aiohttp raises this after a disconnect; nobody reads an answer
                served.leave()
                return response
            return self._fail(served, unavailable(f"no answer from SageMaker: {error}"))

    def _whole_answer(self, answer: aiohttp.ClientResponse, content: bytes, served: Served) -> web.Response:
        document = json_object(content)
        failed = engine_error(document)
        if failed is not None:
            return self._fail(served, of_document(failed))
        reason = aborted_in(document)
        if reason is not None:
            return self._fail(served, gave_up(reason))
        served.status, served.whole = 200, True
        served.tokens, served.acceptance_length = figures_of(document)
        return web.Response(body=content, headers=_headers(answer, answer.headers.get("Content-Type")))

    def _fail(self, served: Served, problem: Problem) -> web.Response:
        served.status, served.failed = problem.status, problem.message[:200]
        headers = {"Content-Type": "application/json", **problem.all_headers()}
        return web.Response(status=problem.status, body=problem.body(), headers=headers)


def _document(raw: bytes) -> dict[str, Any]:
    try:
        document = json.loads(raw)
    except ValueError as error:
        raise SpecError(f"the request body is not JSON: {error}") from error
    if not isinstance(document, dict):
        raise SpecError(f"the request body: found a JSON {type(document).__name__}; allowed: an object")
    return document


async def _start_response(
    request: web.Request, answer: aiohttp.ClientResponse, served: Served
) -> web.StreamResponse:
    served.status = 200
    inner = answer.headers.get("X-Amzn-SageMaker-Content-Type", "")
    if not inner.startswith(_STREAM):
        inner = _STREAM  # another content type gives the error event of a stream
    response = web.StreamResponse(headers={**_headers(answer, inner), "Cache-Control": "no-cache"})
    await response.prepare(request)
    return response


async def _relay(
    relay: Relay,
    answer: aiohttp.ClientResponse,
    response: web.StreamResponse,
    served: Served,
    recording: Recording | None,
) -> None:
    """Relay whole events; a slow client slows the engine down and uses no memory."""
    try:
        await _pass_on(relay, answer, response, recording)
        if relay.problem is not None:
            served.failed = relay.problem.message
            await response.write(of_stream(relay.problem).event())
        await response.write_eof()
    finally:  # also after a disconnect: many clients close the connection right after [DONE]
        served.tokens, served.acceptance_length = relay.tokens, relay.acceptance_length
        served.whole = relay.is_answer


async def _pass_on(
    relay: Relay,
    answer: aiohttp.ClientResponse,
    response: web.StreamResponse,
    recording: Recording | None,
) -> None:
    parts = answer.content.iter_any()
    while relay.problem is None:
        try:
            part = await anext(parts)
        except StopAsyncIteration:
            break
        except (aiohttp.ClientError, TimeoutError) as error:
            relay.broke(f"The connection to SageMaker broke: {error}.")
            break
        if recording is not None:
            recording.add(part)
        events = relay.feed(part)
        if events:
            await response.write(events)
    rest = relay.finish()
    if rest:
        await response.write(rest)


def _headers(answer: aiohttp.ClientResponse, content_type: str | None) -> dict[str, str]:
    headers = {"Content-Type": content_type or "application/json"}
    if "x-amzn-RequestId" in answer.headers:
        # OpenAI's SDK reads `x-request-id` and shows it in its errors.
        headers["x-request-id"] = headers["x-amzn-RequestId"] = answer.headers["x-amzn-RequestId"]
    return headers


def _is_loopback(address: str) -> bool:
    try:
        host = urlsplit(address).hostname or ""
    except ValueError:
        return False
    return host in _LOOPBACK or host.endswith(".localhost")


def _not_served(request: web.Request) -> Problem:
    return invalid(f"found {request.method} {request.path}; allowed: {', '.join(SERVED)}", 404, "unknown_url")


_TOO_LARGE = invalid(
    f"the request body is larger than {BODY_LIMIT_BYTES:,} bytes, SageMaker's limit", 413, "body_too_large"
)


#: A SageMaker stream lasts at most 8 minutes.
DRAIN_S = 8 * 60.0
_LOOK_S = 0.05


@dataclass
class Running:
    """A running proxy."""

    url: str
    port: int
    proxy: Proxy
    _runner: web.AppRunner

    async def drain(self, seconds: float = DRAIN_S) -> bool:
        """Refuse new requests and wait for those in flight; return whether all ended."""
        self.proxy.draining = True
        deadline = asyncio.get_running_loop().time() + seconds
        while self.proxy.busy and asyncio.get_running_loop().time() < deadline:
            await asyncio.sleep(_LOOK_S)
        return not self.proxy.busy

    async def close(self) -> None:
        """Stop now, and cut the requests in flight."""
        await self._runner.cleanup()


def run(
    proxy: Proxy,
    host: str,
    port: int,
    *,
    ready: Callable[[Running], None],
    draining: Callable[[int], None],
) -> None:
    """Serve until Ctrl-C or SIGTERM, then drain; a second signal stops at once.

    Works in the main thread only. ``ready`` is called once it listens, ``draining`` with the number of
    requests in flight.
    """
    asyncio.run(_until_signal(proxy, host, port, ready, draining))


async def _until_signal(
    proxy: Proxy,
    host: str,
    port: int,
    ready: Callable[[Running], None],
    draining: Callable[[int], None],
) -> None:
    stop, stop_now = asyncio.Event(), asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(
            number, lambda: (stop_now if stop.is_set() else stop).set()
        )
    running = await start(proxy, host, port)
    try:
        ready(running)
        await stop.wait()
        if proxy.busy:
            draining(proxy.busy)
            waits = [asyncio.create_task(running.drain()), asyncio.create_task(stop_now.wait())]
            _, left = await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
            for task in left:
                task.cancel()
            await asyncio.gather(*left, return_exceptions=True)
    finally:
        await running.close()


async def start(proxy: Proxy, host: str, port: int) -> Running:
    """Listen on ``host`` and ``port`` (0: any free one).

    Raises:
        SpecError: the address is in use or not available.
    """
    # A disconnecting client cancels its request, and with it the connection to SageMaker.
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
    return Running(f"http://{reachable(host)}:{bound}/v1", bound, proxy, runner)
