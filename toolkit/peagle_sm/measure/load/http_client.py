"""Send one request over HTTP to a SageMaker endpoint (SigV4) or a bare vLLM, and time each part it returns.

CPU-heavy steps run one at a time, and the event loop gets its turn between them, so that arrival times stay
true. aiohttp is imported only when a load starts.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import time
from collections import deque
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol
from urllib.parse import urlsplit

from peagle_sm.aws.session.session import USER_AGENT, Session
from peagle_sm.aws.session.signing import (
    certificates,
    error_name,
    is_remote,
    json_object,
    signed_stream_request,
)
from peagle_sm.aws.streams.runtime import BODY_LIMIT_BYTES
from peagle_sm.core.errors import NotFound, SpecError
from peagle_sm.core.words import install_command
from peagle_sm.measure.load.answer import Answer, AnswerReader
from peagle_sm.measure.load.work import Clock, Timeouts
from peagle_sm.measure.results.records import ArmRecord

if TYPE_CHECKING:
    from peagle_sm.measure.load.arrival_times import Intake


_SAYS_ERROR_BYTES = 500


class Target(Protocol):
    """One side of a measurement, as the client needs it."""

    @property
    def arm(self) -> str:
        """The name that its records carry."""

    @property
    def framed(self) -> bool:
        """Whether answers come as ``application/vnd.amazon.eventstream`` around server-sent events."""

    @property
    def remote(self) -> bool:
        """Whether it is on another machine, where proxies and certificates of the environment apply."""

    def request(self, body: Mapping[str, Any], data: bytes) -> tuple[str, dict[str, str]]:
        """Return the URL to post ``data`` to, and the headers."""

    def failure(self, status: int, headers: Mapping[str, str], content: bytes) -> tuple[str, str]:
        """Return the name and the message of an answer with an error status."""


@dataclass(frozen=True)
class SageMakerTarget:
    """An endpoint of SageMaker (or of the local one), asked for a response stream.

    ``credentials`` are botocore's (``get_frozen_credentials``), so that expiring ones renew themselves.
    ``utc`` gives the time of the signature as seconds since 1970.
    """

    endpoint_url: str
    region: str
    credentials: Any
    endpoint_name: str
    component: str | None = None
    arm: str = ""
    utc: Callable[[], float] = field(default=time.time, compare=False)
    framed: bool = True

    def __post_init__(self) -> None:
        if not self.arm:
            object.__setattr__(self, "arm", self.component or self.endpoint_name)

    @property
    def remote(self) -> bool:
        """Whether calls leave this machine."""
        return is_remote(self.endpoint_url)

    def request(self, body: Mapping[str, Any], data: bytes) -> tuple[str, dict[str, str]]:
        """Sign a call of InvokeEndpointWithResponseStream.

        Raises:
            SpecError: the body is larger than SageMaker takes.
        """
        if len(data) > BODY_LIMIT_BYTES:
            raise SpecError(
                f"a request body has {len(data):,} bytes; allowed: {BODY_LIMIT_BYTES:,} (SageMaker's limit).",
                next_step="Take the prompt out of the workload, or shorten it.",
            )
        return signed_stream_request(
            endpoint_url=self.endpoint_url,
            region=self.region,
            keys=self.credentials.get_frozen_credentials(),
            endpoint=self.endpoint_name,
            component=self.component,
            body=data,
            utc=self.utc(),
        )

    def failure(self, status: int, headers: Mapping[str, str], content: bytes) -> tuple[str, str]:
        """Name an error as AWS does (``ThrottlingException``, ``ModelError`` …)."""
        told = json_object(content)
        name = error_name(headers, told) or f"HTTP {status}"
        original = told.get("OriginalMessage") or told.get("Message") or told.get("message")
        message = _engine_words(str(original)) if original else _excerpt(content)
        code = told.get("OriginalStatusCode")
        return name, f"{code}: {message}" if code else message


@dataclass(frozen=True)
class HttpTarget:
    """A bare vLLM (or any server of OpenAI's API).

    ``path`` None: ``/v1/chat/completions`` for a body with ``messages``, ``/v1/completions`` otherwise.
    ``headers``: for example ``{"authorization": "Bearer …"}``.
    """

    base_url: str
    path: str | None = None
    arm: str = ""
    headers: Mapping[str, str] = field(default_factory=dict)
    framed: bool = False

    def __post_init__(self) -> None:
        parts = urlsplit(self.base_url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise SpecError(
                f"{self.base_url!r} is no address of a server; allowed: http://HOST:PORT or https://HOST.",
                next_step="Give the address that the server prints when it starts.",
            )
        if not self.arm:
            object.__setattr__(self, "arm", self.base_url)

    @property
    def remote(self) -> bool:
        """Whether calls leave this machine."""
        return is_remote(self.base_url)

    def request(self, body: Mapping[str, Any], data: bytes) -> tuple[str, dict[str, str]]:
        """Choose the path by the kind of body."""
        path = self.path or ("/v1/chat/completions" if "messages" in body else "/v1/completions")
        headers = {"content-type": "application/json", "user-agent": USER_AGENT, **self.headers}
        return self.base_url.rstrip("/") + path, headers

    def failure(self, status: int, headers: Mapping[str, str], content: bytes) -> tuple[str, str]:
        """Name an error by its status; the message is the server's."""
        told = json_object(content)
        if not told:
            return f"HTTP {status}", _excerpt(content)
        return f"HTTP {status}", _engine_words(json.dumps(told))


def make_target(session: Session | None, arm: ArmRecord) -> SageMakerTarget | HttpTarget:
    """Return the target of ``arm``: its ``endpoint`` is a name, or a URL where its transport is "http".

    Raises:
        SpecError: a URL that is none, or an endpoint of SageMaker without a session.
        CredentialsError: the session has no credentials.
    """
    if arm.transport == "http":
        return HttpTarget(arm.endpoint, arm=arm.name)
    if session is None:
        raise SpecError(
            f"{arm.endpoint!r} is an endpoint of SageMaker, and there is no session to reach it.",
            next_step="Give an address (http://…), or an AWS session.",
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
    """The message inside an engine's JSON error, else the text itself, cut to a readable length."""
    told = json_object(message.encode())
    inner = told.get("error", told)
    if isinstance(inner, dict) and inner.get("message"):
        message = str(inner["message"])
    elif isinstance(inner, str):
        message = inner
    return message[:_SAYS_ERROR_BYTES]


def _excerpt(content: bytes) -> str:
    return content[:_SAYS_ERROR_BYTES].decode(errors="replace")


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


#: vLLM's server closes an idle connection after 5 s; one that it closes just now would cost a request.
#: SageMaker keeps them longer, and a new one there costs a TLS handshake.
KEEP_ALIVE_S = {"http": 3.0, "sagemaker": 20.0}
#: How often streams are looked at for silence; also bounds how late a timeout comes.
_WATCH_S = 0.25


class Sender(Protocol):
    """Sends one body to a target and returns what came back; it raises only what ends the whole load."""

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
    """Sends through aiohttp. A request is tried once: a load tool that repeats hides what users would see."""

    def __init__(self, session: Any, timeouts: Timeouts, clock: Clock) -> None:
        """Use `open_sender`, which closes the session."""
        self._session = session
        self._timeouts = timeouts
        self._clock = clock
        self._flights: set[_Flight] = set()
        self._desk = Desk()
        self._urls: dict[str, Any] = {}

    async def send(self, target: Target, body: Mapping[str, Any]) -> Answer:
        """Send ``body`` and read its answer to the end.

        Raises:
            SpecError: the body cannot be written as JSON, or is too large for the target.
        """
        await self._desk.turn()
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

        from peagle_sm.measure.load.arrival_times import Intake, StampingHandler

        where = self._urls.get(url)
        if where is None:
            # The path is signed as it is written, so nobody may encode it anew.
            where = self._urls[url] = URL(url, encoded=True)
        # A redirect is no answer, and its signature would be for another place.
        post = self._session.post(where, data=data, headers=headers, allow_redirects=False)
        async with post as response:
            if response.status >= 300:
                reader.fail(*target.failure(response.status, response.headers, await response.read()))
                return
            connection = response.connection
            if connection is not None and isinstance(connection.protocol, StampingHandler):
                flight.intake = Intake(connection.protocol, response.content, reader.take)
                await flight.intake.whole()
                await self._desk.turn()
                flight.intake.fetch()
                return
            while part := await response.content.readany():
                flight.last = self._clock()
                if not reader.take([(part, flight.last)]):
                    response.close()
                    return

    async def watch(self) -> None:
        """End requests that overstay; one look for all costs less than a timer for every part of each."""
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
    """Open the connections; leaving closes them all, those in use too.

    Raises:
        NotFound: aiohttp is not installed.
    """
    try:
        import aiohttp

        from peagle_sm.measure.load.arrival_times import stamp_arrivals
    except ImportError as error:
        raise NotFound(
            "the load client needs aiohttp, which is not installed",
            next_step=install_command("measure"),
        ) from error
    remote = any(target.remote for target in targets)
    connector = aiohttp.TCPConnector(
        limit=connections,
        keepalive_timeout=KEEP_ALIVE_S["sagemaker" if all(each.framed for each in targets) else "http"],
        ssl=certificates() if remote else True,
        ttl_dns_cache=60,
    )
    # The watch counts read and total time itself: aiohttp would set a timer anew for every part.
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
    """Return the JSON of a streamed request with its usage asked for.

    Raises:
        SpecError: the body cannot be written as JSON, or asks for several answers at once.
    """
    if body.get("n", 1) != 1:
        raise SpecError(
            f"n: found {body['n']} in a request body; allowed: 1, since answers are streamed.",
            next_step="Leave n out of the workload's bodies.",
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
    """The name under which an error of the connection is counted, and its words.

    Raises:
        Exception: the error itself, where it is none of the connection's.
    """
    import aiohttp

    if isinstance(error, aiohttp.ClientConnectorError):
        return "ConnectionFailed", str(error)
    if isinstance(error, TimeoutError):
        return "Timeout", f"no connection was made in time: {error}".rstrip(": ")
    if isinstance(error, aiohttp.ClientPayloadError):
        return "StreamError", f"the connection broke in the middle of the stream: {error}"
    if isinstance(error, aiohttp.ClientError | OSError):
        return "ConnectionLost", str(error) or type(error).__name__
    raise error
