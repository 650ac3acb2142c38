"""`AsyncTokenStream`: a response stream read with asyncio, over aiohttp.

Requests are signed here. It has the same decoder and the same errors as `TokenStream`.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from peagle_sm.aws.session.errors import NO_ANSWER
from peagle_sm.aws.session.session import CONNECT_TIMEOUT_S, Session
from peagle_sm.aws.session.signing import (
    certificates,
    end_with_its_connection,
    error_name,
    is_remote,
    json_object,
    signed_stream_request,
)
from peagle_sm.aws.streams.answers import Chunk
from peagle_sm.aws.streams.decoding import Assembler
from peagle_sm.aws.streams.refusals import Asked, refusal
from peagle_sm.aws.streams.token_stream import DRAIN_S, Patience, StreamedAnswer
from peagle_sm.core.errors import NotFound, PeagleError, ServiceFault, StreamCut, StreamError
from peagle_sm.core.words import install_command

if TYPE_CHECKING:
    import aiohttp


class AsyncSource(Protocol):
    """The bytes of one response."""

    request_id: str

    async def part(self) -> bytes:
        """Return what has come, cut anywhere; nothing at the end."""

    async def close(self) -> None:
        """Free the connection; where the response was read to its end it may be used again."""

    def problem(self, error: Exception) -> StreamError | None:
        """What an error of `part` means; None for one that is no transport's."""


class AsyncTokenStream(StreamedAnswer, AsyncIterator[Chunk]):
    """The chunks of one answer, then its `summary` and `completion`; the request is sent as it is opened.

    Use it as a context manager, so that a loop that is left frees the connection::

        async with endpoint.astream(prompt="def fib(n):", max_tokens=64) as stream:
            async for chunk in stream:
                print(chunk.text, end="")

    A task that is cancelled frees it too. It never repeats a request.

    Raises:
        StreamError: while iterating, after all chunks that came before: see `TokenStream`. Opening, or the
            first chunk without opening, raises what `Endpoint.stream` does.
    """

    def __init__(
        self,
        send: Callable[[], Awaitable[AsyncSource]],
        *,
        monotonic: Callable[[], float],
        patience: Patience | None = None,
        assembler: Assembler | None = None,
    ) -> None:
        """``send`` sends the request and returns its response, or raises."""
        super().__init__(assembler or Assembler(framed=True), monotonic, monotonic())
        self._send = send
        self._patience = patience or Patience()
        self._source: AsyncSource | None = None
        self._ready: deque[Chunk] = deque()
        self._total_ms = self._patience.total_s * 1000
        self._live = False  #: there is a response, and more of the answer to come
        self._closed = False
        self._error: PeagleError | None = None

    async def __aenter__(self) -> AsyncTokenStream:
        """Send the request."""
        await self._entered()
        return self

    async def __aexit__(self, *_: object) -> None:
        """Close."""
        await self.aclose()

    async def __anext__(self) -> Chunk:
        """Return the next chunk."""
        ready = self._ready
        while not ready:
            try:
                await self._take(self._source if self._live and self._source else await self._entered())
            except (StopAsyncIteration, PeagleError):
                raise
            except BaseException:  # cancelled, above all: nobody reads on
                await self.aclose()
                raise
        return ready.popleft()

    async def aclose(self) -> None:
        """Stop reading and free the connection; the engine then drops the request."""
        self._closed = True
        self._ready.clear()
        await self._free()

    async def _entered(self) -> AsyncSource:
        """The response to read from; StopAsyncIteration at the end of a whole answer."""
        if self._error is not None:
            raise self._error
        if self._assembler.done:
            await self._drain()
            raise StopAsyncIteration
        if self._closed:
            raise StopAsyncIteration
        if self._source is None:
            self._started = self._monotonic()
            try:
                self._source = await self._send()
            except PeagleError as error:
                self._error = error  # asked again, it is not sent again
                raise
            self.request_id = self._source.request_id
            self._live = True
        return self._source

    async def _free(self) -> None:
        source, self._source = self._source, None
        self._live = False
        if source is not None:
            await source.close()

    async def _take(self, source: AsyncSource) -> None:
        """Take one part."""
        assembler = self._assembler
        try:
            part = await source.part()
        except Exception as error:
            problem = source.problem(error)
            if problem is None:
                raise
            problem.__cause__ = error
            assembler.fail(problem)
            await self._settle()
            return
        at_ms = (self._monotonic() - self._started) * 1000
        self._ready += assembler.feed(part, at_ms) if part else assembler.finish(at_ms)
        if at_ms > self._total_ms:
            assembler.fail(self._patience.too_long())
        if assembler.over or not part:
            await self._settle()

    async def _settle(self) -> None:
        """The answer is whole, or something is wrong with it."""
        self._live = False
        problem = self._assembler.problem
        if problem is not None:
            self._error = self._told(problem)
            await self._free()
            return
        self._conclude()
        if not self._assembler.done:
            self._closed = True
            await self._free()

    async def _drain(self) -> None:
        """Read to the end of the response, so that its connection can be used again; not for long."""
        source = self._source
        if source is not None:
            with contextlib.suppress(Exception):  # the answer is whole; what breaks after it does not matter
                async with asyncio.timeout(DRAIN_S):
                    while await source.part():
                        pass
        await self._free()


_OPERATION = "InvokeEndpointWithResponseStream"


@dataclass(frozen=True)
class AsyncCall:
    """One request; ``http`` is the caller's own aiohttp session, None for one of the call's own."""

    session: Session
    endpoint: str
    body: bytes
    patience: Patience
    http: aiohttp.ClientSession | None = None
    utc: Callable[[], float] = time.time

    async def send(self, component: str | None) -> AiohttpSource:
        """Send it and return its response once the headers are there. It is tried once.

        Raises:
            ComponentRequired: the endpoint runs inference components, and none was named.
            CredentialsError: there are no credentials, or they are refused.
            NotFound: there is no such endpoint, or aiohttp is not installed.
            ServiceFault: the engine failed, or nobody answered.
            SpecError: the engine refuses the request as wrong.
            StreamStalled: nothing came in time.
        """
        aiohttp = _aiohttp()
        # Making a client and renewing credentials may take long, and neither knows asyncio.
        endpoint_url, keys = await asyncio.to_thread(self._place)
        url, headers = signed_stream_request(
            endpoint_url=endpoint_url,
            region=self.session.region,
            keys=keys,
            endpoint=self.endpoint,
            component=component,
            body=self.body,
            utc=self.utc(),
        )
        own = None if self.http is not None else _own_session(aiohttp, endpoint_url)
        try:
            return await self._post(aiohttp, self.http or own, own, url, headers, component)
        except BaseException:
            if own is not None:
                await own.close()
            raise

    def _place(self) -> tuple[str, Any]:
        url = str(self.session.client("sagemaker-runtime").meta.endpoint_url)
        return url, self.session.credentials().get_frozen_credentials()

    async def _post(
        self, aiohttp: Any, http: Any, own: Any, url: str, headers: dict[str, str], component: str | None
    ) -> AiohttpSource:
        from yarl import URL

        patience = self.patience
        loop = asyncio.get_running_loop()
        began = loop.time()
        # The source counts by itself: aiohttp would set a timer anew for every part.
        timeout = aiohttp.ClientTimeout(total=None, sock_connect=CONNECT_TIMEOUT_S)
        try:
            async with asyncio.timeout(patience.silence_s) as waiting:
                # A redirect is no answer, and its signature would be for another place.
                response = await http.post(
                    URL(url, encoded=True),
                    data=self.body,
                    headers=headers,
                    timeout=timeout,
                    allow_redirects=False,
                )
                if response.status >= 300:
                    raise await self._refused(response, component)
        except TimeoutError as error:
            if not waiting.expired():
                raise self._nobody(error) from error
            raise patience.silent() from error
        except (aiohttp.ClientError, OSError) as error:
            raise self._nobody(error) from error
        end_with_its_connection(response)
        return AiohttpSource(response, own, patience, loop, began + patience.total_s)

    def _nobody(self, error: Exception) -> ServiceFault:
        local = self.session.local_url
        return ServiceFault(
            f"{_OPERATION}: no answer: {str(error) or type(error).__name__}",
            operation=_OPERATION,
            code=NO_ANSWER,
            next_step="Check the network and the region."
            if local is None
            else "Look with `peagle-sm local status`; start the local SageMaker with `peagle-sm local up`.",
            details={"operation": _OPERATION, "code": NO_ANSWER},
        )

    async def _refused(self, response: Any, component: str | None) -> PeagleError:
        """The error that boto3's answer to the same response becomes."""
        from botocore.exceptions import ClientError

        async with response:
            told = json_object(await response.read())
        answer = {
            **told,
            "Error": {
                "Code": error_name(response.headers, told) or str(response.status),
                # Throttling comes with `"message": null`; a proxy's page has no JSON at all.
                "Message": told.get("Message") or told.get("message") or ("" if told else response.reason),
            },
            "ResponseMetadata": {
                "RequestId": response.headers.get("x-amzn-RequestId", ""),
                "HTTPStatusCode": response.status,
            },
        }
        asked = Asked(self.session, _OPERATION, self.endpoint, component)
        # It may ask AWS what the matter is.
        return await asyncio.to_thread(refusal, ClientError(answer, _OPERATION), asked)  # type: ignore[arg-type]


class AiohttpSource:
    """The body of one response; one timer watches it, however many parts come."""

    def __init__(
        self, response: Any, own: Any, patience: Patience, loop: asyncio.AbstractEventLoop, until: float
    ) -> None:
        """``own``: an aiohttp session to close with it; ``until``: the end of patience by ``loop``'s time."""
        self.request_id = str(response.headers.get("x-amzn-RequestId", ""))
        self._response = response
        self._content = response.content
        self._own = own
        self._patience = patience
        self._loop = loop
        self._until = until
        self._waiting_since: float | None = None
        self._late: StreamError | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._watch()

    async def part(self) -> bytes:
        """Return what has come; nothing at the end."""
        self._waiting_since = self._loop.time()
        part: bytes = await self._content.readany()
        self._waiting_since = None  # however long the program now takes, it is no silence
        return part

    async def close(self) -> None:
        """Close a connection in mid-answer, give back one that was read to its end."""
        if self._timer is not None:
            self._timer.cancel()
        self._response.close()
        if self._own is not None:
            with contextlib.suppress(Exception):
                await self._own.close()

    def problem(self, error: Exception) -> StreamError | None:
        """What an error of `part` means; None for one that is not the transport's."""
        import aiohttp

        if self._late is not None:
            return self._late
        if isinstance(error, aiohttp.ClientError | OSError):
            return StreamCut(f"The connection broke in the middle of the stream: {error}")
        return None

    def _watch(self) -> None:
        """End a read that has waited too long, else look again when it would have."""
        now, since = self._loop.time(), self._waiting_since
        silent_at = (now if since is None else since) + self._patience.read_s
        if now >= self._until:
            self._late = self._patience.too_long()
        elif now >= silent_at:
            self._late = self._patience.silent()
        else:
            self._timer = self._loop.call_at(min(silent_at, self._until), self._watch)
            return
        self._response.close()  # the read that waits ends with an error


def _aiohttp() -> Any:
    try:
        import aiohttp
    except ImportError as error:
        raise NotFound(
            "an asynchronous stream needs aiohttp, which is not installed",
            next_step=f"{install_command('async')}; without it, use stream() in a thread.",
        ) from error
    return aiohttp


def _own_session(aiohttp: Any, endpoint_url: str) -> Any:
    remote = is_remote(endpoint_url)
    connector = aiohttp.TCPConnector(limit=1, ssl=certificates() if remote else True)
    return aiohttp.ClientSession(connector=connector, auto_decompress=False, trust_env=remote)
