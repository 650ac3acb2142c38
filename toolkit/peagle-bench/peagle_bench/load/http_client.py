"""HTTP client of the load tool: sends one request to SageMaker (SigV4) or a bare vLLM, and times each part.

CPU-heavy steps run one at a time, and the event loop runs between them, so that arrival times stay correct.
aiohttp is imported only when a load starts.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections import deque
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol
from urllib.parse import urlsplit

from peagle_bench.load.answer import Answer, AnswerReader
from peagle_bench.load.work import Clock, Timeouts
from peagle_bench.results.records import ArmRecord
from peagle_sm.aws.session.session import USER_AGENT, Session
from peagle_sm.aws.session.signing import (
    certificates,
    error_name,
    is_remote,
    json_object,
    signed_invocation,
)
from peagle_sm.aws.streams.runtime import BODY_LIMIT_BYTES
from peagle_sm.core.errors import SpecError

if TYPE_CHECKING:
    from peagle_bench.load.arrival_times import Intake


_SAYS_ERROR_BYTES = 500


class Target(Protocol):
    """Address, format and error names of an arm, as the client needs them."""

    @property
    def arm(self) -> str:
        """Name of the arm in its records."""

    @property
    def framed(self) -> bool:
        """Whether answers come as ``application/vnd.amazon.eventstream`` around server-sent events."""

    @property
    def remote(self) -> bool:
        """Whether it is on another machine; then the environment's proxies and certificates apply."""

    def request(self, body: Mapping[str, Any], data: bytes) -> tuple[str, dict[str, str]]:
        """Return the URL to post ``data`` to, and the headers."""

    def failure(self, status: int, headers: Mapping[str, str], content: bytes) -> tuple[str, str]:
        """Return the name and the message of an answer with an error status."""


@dataclass(frozen=True)
class SageMakerTarget:
    """A SageMaker endpoint (or one of the local SageMaker), invoked with a response stream.

    ``credentials`` are botocore's (``get_frozen_credentials``), which refresh themselves.
    """

    endpoint_url: str
    region: str
    credentials: Any
    endpoint_name: str
    component: str | None = None
    arm: str = ""
    framed: bool = True

    def __post_init__(self) -> None:
        if not self.arm:
            object.__setattr__(self, "arm", self.component or self.endpoint_name)

    @property
    def remote(self) -> bool:
        """Whether calls leave this machine."""
        return is_remote(self.endpoint_url)

    def request(self, body: Mapping[str, Any], data: bytes) -> tuple[str, dict[str, str]]:
        """Sign an InvokeEndpointWithResponseStream request.

        Raises:
            SpecError: the body exceeds SageMaker's limit.
        """
        if len(data) > BODY_LIMIT_BYTES:
            raise SpecError(
                f"a request body has {len(data):,} bytes; allowed: {BODY_LIMIT_BYTES:,} (SageMaker's limit).",
                next_step="Shorten the prompt, or remove it from the workload.",
            )
        keys = self.credentials.get_frozen_credentials()
        return signed_invocation(
            self.endpoint_url, self.region, keys, self.endpoint_name, self.component, data
        )

    def failure(self, status: int, headers: Mapping[str, str], content: bytes) -> tuple[str, str]:
        """Return AWS's error name (``ThrottlingException``, ``ModelError`` …) and the message."""
        document = json_object(content)
        name = error_name(headers, document) or f"HTTP {status}"
        original = document.get("OriginalMessage") or document.get("Message") or document.get("message")
        message = _engine_words(str(original)) if original else _excerpt(content)
        code = document.get("OriginalStatusCode")
        return name, f"{code}: {message}" if code else message


@dataclass(frozen=True)
class HttpTarget:
    """A bare vLLM (or any server with the OpenAI API).

    A body with ``messages`` goes to ``/v1/chat/completions``, any other to ``/v1/completions``.
    """

    base_url: str
    arm: str = ""
    framed: bool = False

    def __post_init__(self) -> None:
        parts = urlsplit(self.base_url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise SpecError(
                f"{self.base_url!r} is not a server URL; allowed: http://HOST:PORT or https://HOST.",
                next_step="Give the URL that the server prints when it starts.",
            )
        if not self.arm:
            object.__setattr__(self, "arm", self.base_url)

    @property
    def remote(self) -> bool:
        """Whether calls leave this machine."""
        return is_remote(self.base_url)

    def request(self, body: Mapping[str, Any], data: bytes) -> tuple[str, dict[str, str]]:
        """Choose the path by the kind of body."""
        path = "/v1/chat/completions" if "messages" in body else "/v1/completions"
        headers = {"content-type": "application/json", "user-agent": USER_AGENT}
        return self.base_url.rstrip("/") + path, headers

    def failure(self, status: int, headers: Mapping[str, str], content: bytes) -> tuple[str, str]:
        """Return the HTTP status as the error name, and the server's message."""
        document = json_object(content)
        if not document:
            return f"HTTP {status}", _excerpt(content)
        return f"HTTP {status}", _engine_words(json.dumps(document))


def make_target(session: Session | None, arm: ArmRecord) -> SageMakerTarget | HttpTarget:
    """Return the target of ``arm``: its ``endpoint`` is a name, or a URL if its transport is "http".

    Raises:
        SpecError: an invalid URL, or a SageMaker endpoint without a session.
        CredentialsError: the session has no credentials.
    """
    if arm.transport == "http":
        return HttpTarget(arm.endpoint, arm=arm.name)
    if session is None:
        raise SpecError(
            f"{arm.endpoint!r} is a SageMaker endpoint, and no session was given to reach it.",
            next_step="Give a URL (http://…), or an AWS session.",
        )
    client = session.client("sagemaker-runtime")
    return SageMakerTarget(
        client.meta.endpoint_url,
        session.region,
        session.credentials(),
        arm.endpoint,
        arm.component,
        arm.name,
    )


def _engine_words(message: str) -> str:
    """Extract the message of an engine's JSON error, else the text itself; cut to a readable length."""
    document = json_object(message.encode())
    inner = document.get("error", document)
    if isinstance(inner, dict) and inner.get("message"):
        message = str(inner["message"])
    elif isinstance(inner, str):
        message = inner
    return message[:_SAYS_ERROR_BYTES]


def _excerpt(content: bytes) -> str:
    return content[:_SAYS_ERROR_BYTES].decode(errors="replace")


class TurnQueue:
    """Queue that lets tasks run one by one, each in its own iteration of the event loop.

    Answers of equal length end in the same engine step. Reading 128 of them to the end and signing 128 new
    requests would block the loop for 50 ms, and every chunk in that time would get a late time. In a queue
    they take as long, but a chunk waits for one of them at most.
    """

    def __init__(self) -> None:
        """Start with an empty queue."""
        self._waiting: deque[asyncio.Future[None]] = deque()

    async def turn(self) -> None:
        """Wait for the caller's turn."""
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


#: vLLM's server closes an idle connection after 5 s; a request on a closing connection would fail.
#: SageMaker keeps connections longer, and a new one costs a TLS handshake.
KEEP_ALIVE_S = {"http": 3.0, "sagemaker": 20.0}
#: Seconds between two checks for stalled streams; also the largest delay of a timeout.
_WATCH_S = 0.25


class Sender(Protocol):
    """Sender of one body to a target; it raises only errors that end the whole load."""

    async def send(self, target: Target, body: Mapping[str, Any]) -> Answer:
        """Send ``body``; errors of the request are in the answer."""


@dataclass(eq=False)
class _Flight:
    task: asyncio.Task[Any]
    began: float
    last: float
    intake: Intake | None = None
    overstayed: str | None = None


class HttpSender:
    """Sender through aiohttp. It never retries: retries would hide errors that users see."""

    def __init__(self, session: Any, timeouts: Timeouts, clock: Clock) -> None:
        """Use `open_sender`, which closes the session."""
        self._session = session
        self._timeouts = timeouts
        self._clock = clock
        self._flights: set[_Flight] = set()
        self._turns = TurnQueue()
        self._urls: dict[str, Any] = {}

    async def send(self, target: Target, body: Mapping[str, Any]) -> Answer:
        """Send ``body`` and read its answer to the end.

        Raises:
            SpecError: the body cannot be written as JSON, or is too large for the target.
        """
        await self._turns.turn()
        data = encode(body)
        url, headers = target.request(body, data)
        reader = AnswerReader(framed=target.framed)
        now = self._clock()
        task = asyncio.current_task()
        assert task is not None
        flight = _Flight(task, now, now)
        self._flights.add(flight)
        try:
            await self._exchange(target, url, headers, data, reader, flight)
        except asyncio.CancelledError:
            if flight.overstayed is None:
                raise
            task.uncancel()
            reader.fail("Timeout", flight.overstayed)
        except Exception as error:
            reader.fail(*_named(error))
        finally:
            self._flights.discard(flight)
        ended = None if flight.intake is None else flight.intake.ended
        return reader.finish(self._clock() if ended is None else ended, sent=now)

    async def _exchange(
        self,
        target: Target,
        url: str,
        headers: Mapping[str, str],
        data: bytes,
        reader: AnswerReader,
        flight: _Flight,
    ) -> None:
        from yarl import URL

        from peagle_bench.load.arrival_times import Intake, StampingHandler

        where = self._urls.get(url)
        if where is None:
            # The path is signed as written, so it must not be encoded again.
            where = self._urls[url] = URL(url, encoded=True)
        # A redirect is not an answer, and the signature would not fit the new URL.
        post = self._session.post(where, data=data, headers=headers, allow_redirects=False)
        async with post as response:
            if response.status >= 300:
                reader.fail(*target.failure(response.status, response.headers, await response.read()))
                return
            connection = response.connection
            if connection is not None and isinstance(connection.protocol, StampingHandler):
                flight.intake = Intake(connection.protocol, response.content, reader.take)
                await flight.intake.whole()
                await self._turns.turn()
                flight.intake.fetch()
                return
            while part := await response.content.readany():
                flight.last = self._clock()
                if not reader.take([(part, flight.last)]):
                    response.close()
                    return

    async def watch(self) -> None:
        """Cancel requests that time out; one check for all costs less than a timer for each part."""
        limits = self._timeouts
        every = min(_WATCH_S, limits.read_s / 4, limits.total_s / 4)
        while True:
            await asyncio.sleep(every)
            now = self._clock()
            for flight in self._flights:
                if flight.overstayed is not None:
                    continue
                last = flight.last if flight.intake is None else flight.intake.stamp
                if now - last > limits.read_s:
                    flight.overstayed = f"nothing arrived for {limits.read_s:g} s"
                elif now - flight.began > limits.total_s:
                    flight.overstayed = f"the answer was not whole after {limits.total_s:g} s"
                if flight.overstayed is not None:
                    flight.task.cancel()


@contextlib.asynccontextmanager
async def open_sender(
    targets: list[Target], timeouts: Timeouts, connections: int, clock: Clock
) -> AsyncIterator[HttpSender]:
    """Open the connections; the end of the context closes them all, also those in use."""
    import aiohttp

    from peagle_bench.load.arrival_times import stamp_arrivals

    remote = any(target.remote for target in targets)
    connector = aiohttp.TCPConnector(
        limit=connections,
        keepalive_timeout=KEEP_ALIVE_S["sagemaker" if all(each.framed for each in targets) else "http"],
        ssl=certificates() if remote else True,
        ttl_dns_cache=60,
    )
    # `watch` checks read and total time itself: aiohttp would reset a timer for every part.
    stamp_arrivals(connector, clock)
    timeout = aiohttp.ClientTimeout(total=None, sock_connect=timeouts.connect_s)
    async with aiohttp.ClientSession(
        connector=connector, timeout=timeout, auto_decompress=False, trust_env=remote
    ) as session:
        sender = HttpSender(session, timeouts, clock)
        watching = asyncio.create_task(sender.watch())
        try:
            yield sender
        finally:
            watching.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await watching


def encode(body: Mapping[str, Any]) -> bytes:
    """Encode a request body as JSON, with streaming and usage switched on.

    Raises:
        SpecError: the body cannot be written as JSON, or asks for several answers at once.
    """
    if body.get("n", 1) != 1:
        raise SpecError(
            f"n: found {body['n']} in a request body; allowed: 1, since answers are streamed.",
            next_step="Remove n from the workload's bodies.",
        )
    options = {"include_usage": True, **(body.get("stream_options") or {})}
    try:
        return json.dumps({**body, "stream": True, "stream_options": options}, ensure_ascii=False).encode()
    except (TypeError, ValueError) as error:
        raise SpecError(
            f"a request body cannot be written as JSON: {error}",
            next_step="Use text, numbers, true/false, lists and mappings only.",
        ) from error


def _named(error: Exception) -> tuple[str, str]:
    """Return the name under which a connection error is counted, and its message.

    Raises:
        Exception: the error itself, if it is not a connection error.
    """
    import aiohttp

    if isinstance(error, aiohttp.ClientConnectorError):
        return "ConnectionFailed", str(error)
    if isinstance(error, TimeoutError):
        return "Timeout", f"connecting timed out: {error}".rstrip(": ")
    if isinstance(error, aiohttp.ClientPayloadError):
        return "StreamError", f"the connection broke in the middle of the stream: {error}"
    if isinstance(error, aiohttp.ClientError | OSError):
        return "ConnectionLost", str(error) or type(error).__name__
    raise error
