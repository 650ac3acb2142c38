"""One request over HTTP: send, stamp every part as it arrives, and name whatever goes wrong."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from peagle_sm.aws.session.wire import certificates
from peagle_sm.core.errors import NotFound, SpecError
from peagle_sm.core.extras import install_command
from peagle_sm.measure.load.answer import Answer, AnswerReader
from peagle_sm.measure.load.desk import Desk
from peagle_sm.measure.load.targets import Target
from peagle_sm.measure.load.work import Clock, Timeouts

if TYPE_CHECKING:
    from peagle_sm.measure.load.stamping import Intake

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

        from peagle_sm.measure.load.stamping import Intake, StampingHandler

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

        from peagle_sm.measure.load.stamping import stamp_arrivals
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
