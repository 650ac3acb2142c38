"""`AsyncTokenStream`: a response stream read with asyncio, over aiohttp.

It signs its requests itself. Decoder and errors are the same as of `TokenStream`.
"""

from __future__ import annotations

import asyncio
import contextlib
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
    signed_invocation,
)
from peagle_sm.aws.streams.answers import Chunk
from peagle_sm.aws.streams.decoding import Assembler
from peagle_sm.aws.streams.refusals import Invocation, refusal
from peagle_sm.aws.streams.token_stream import DRAIN_S, Patience, StreamedAnswer
from peagle_sm.core.errors import NotFound, PeagleError, ServiceFault, StreamCut, StreamError
from peagle_sm.core.words import install_command

if TYPE_CHECKING:
    import aiohttp


class AsyncSource(Protocol):
    """Source of one response's bytes."""

    request_id: str

    async def part(self) -> bytes:
        """Return the next bytes, cut anywhere; empty at the end."""

    async def close(self) -> None:
        """Free the connection; it can be reused if the response was read to its end."""

    def drop(self) -> None:
        """Close the connection without waiting, from any thread."""

    def problem(self, error: Exception) -> StreamError | None:
        """Convert an error of `part`; None if it is not a transport error."""


class AsyncTokenStream(StreamedAnswer, AsyncIterator[Chunk]):
    """Chunks of one answer, then its `summary` and `completion`.

    Entering it sends the request. Use it as a context manager, so that leaving a loop frees the connection::

        async with endpoint.astream(prompt="def fib(n):", max_tokens=64) as stream:
            async for chunk in stream:
                print(chunk.text, end="")

    A cancelled task frees the connection, too, and so does an object that is garbage collected. It never
    retries a request.

    Raises:
        StreamError: while iterating, after all earlier chunks: see `TokenStream`. Entering it, or the first
            chunk without entering, raises the errors of `Endpoint.stream`.
    """

    def __init__(
        self,
        send: Callable[[], Awaitable[AsyncSource]],
        *,
        monotonic: Callable[[], float],
        patience: Patience | None = None,
        assembler: Assembler | None = None,
    ) -> None:
        """Take ``send``, which sends the request and returns its response, or raises."""
        super().__init__(assembler or Assembler(framed=True), patience, monotonic, monotonic())
        self._send = send
        self._source: AsyncSource | None = None
        self._live = False  #: a response exists, and its answer is not complete

    async def __aenter__(self) -> AsyncTokenStream:
        await self._open_source()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    async def __anext__(self) -> Chunk:
        ready = self._ready
        while not ready:
            try:
                await self._read(self._source if self._live and self._source else await self._open_source())
            except (StopAsyncIteration, PeagleError):
                raise
            except BaseException:  # mostly a cancellation
                await self.aclose()
                raise
        return ready.popleft()

    def __del__(self) -> None:
        source = getattr(self, "_source", None)  # absent if the construction failed
        if source is not None:
            source.drop()

    async def aclose(self) -> None:
        """Stop reading and free the connection; the engine then drops the request."""
        self._closed = True
        self._end_tap(left=True)
        self._ready.clear()
        await self._free()

    async def _open_source(self) -> AsyncSource:
        """Return the response; StopAsyncIteration at the end of a whole answer."""
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
                self._error = error  # a second call raises this error again, and does not send again
                raise
            self.request_id = self._source.request_id
            self._live = True
        return self._source

    async def _free(self) -> None:
        source, self._source = self._source, None
        self._live = False
        if source is not None:
            await source.close()

    async def _read(self, source: AsyncSource) -> None:
        """Process one part."""
        try:
            part = await source.part()
        except Exception as error:
            problem = source.problem(error)
            if problem is None:
                raise
            problem.__cause__ = error
            self._assembler.fail(problem)
        else:
            self._take(part or None)
            if part and not self._assembler.over:
                return
        self._live = False
        if self._is_whole() and self._assembler.done:
            return  # the rest is drained
        self._closed = True
        await self._free()

    async def _drain(self) -> None:
        """Read the response's end for a short time, so that its connection can be reused."""
        source = self._source
        if source is not None:
            with contextlib.suppress(Exception):  # the answer is whole, so later errors do not matter
                async with asyncio.timeout(DRAIN_S):
                    while await source.part():
                        pass
        await self._free()


_OPERATION = "InvokeEndpointWithResponseStream"


@dataclass(frozen=True)
class AsyncCall:
    """One request; ``http`` is the caller's aiohttp session, None for a new one."""

    session: Session
    endpoint: str
    body: bytes
    patience: Patience
    http: aiohttp.ClientSession | None = None

    async def send(self, component: str | None) -> AiohttpSource:
        """Send it once and return its response after the headers arrive.

        Raises:
            ComponentRequired: the endpoint runs inference components, and none was named.
            CredentialsError: there are no credentials, or AWS refuses them.
            NotFound: the endpoint does not exist, or aiohttp is not installed.
            ServiceFault: the engine failed, or no answer came.
            SpecError: the engine refuses the request as invalid.
            StreamStalled: no answer came within the timeout.
        """
        aiohttp = _aiohttp()
        # Creating a client and refreshing credentials may be slow, and both are blocking calls.
        endpoint_url, keys = await asyncio.to_thread(self._place)
        url, headers = signed_invocation(
            endpoint_url, self.session.region, keys, self.endpoint, component, self.body
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
        # The source has its own timer: aiohttp would set a new timer for every part.
        timeout = aiohttp.ClientTimeout(total=None, sock_connect=CONNECT_TIMEOUT_S)
        try:
            async with asyncio.timeout(patience.silence_s) as waiting:
                # A redirect is not an answer, and the signature would not fit its target.
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
                raise self._no_answer(error) from error
            raise patience.silent() from error
        except (aiohttp.ClientError, OSError) as error:
            raise self._no_answer(error) from error
        end_with_its_connection(response)
        return AiohttpSource(response, own, patience, loop, began + patience.total_s)

    def _no_answer(self, error: Exception) -> ServiceFault:
        local = self.session.local_url
        return ServiceFault(
            f"{_OPERATION}: no answer: {str(error) or type(error).__name__}",
            operation=_OPERATION,
            code=NO_ANSWER,
            next_step="Check the network and the region."
            if local is None
            else "Check it with `peagle-sm local status`, or start it with `peagle-sm local up`.",
            details={"operation": _OPERATION, "code": NO_ANSWER},
        )

    async def _refused(self, response: Any, component: str | None) -> PeagleError:
        """Return the same error as for boto3's response."""
        from botocore.exceptions import ClientError

        async with response:
            document = json_object(await response.read())
        answer = {
            **document,
            "Error": {
                "Code": error_name(response.headers, document) or str(response.status),
                # Throttling has `"message": null`; an error page of a proxy has no JSON.
                "Message": document.get("Message")
                or document.get("message")
                or ("" if document else response.reason),
            },
            "ResponseMetadata": {
                "RequestId": response.headers.get("x-amzn-RequestId", ""),
                "HTTPStatusCode": response.status,
            },
        }
        invocation = Invocation(self.session, _OPERATION, self.endpoint, component)
        # It may call AWS to find the cause.
        return await asyncio.to_thread(refusal, ClientError(answer, _OPERATION), invocation)  # type: ignore[arg-type]


#: A loop keeps only weak references to its tasks.
_CLOSING: set[asyncio.Task[None]] = set()


class AiohttpSource:
    """Body of one response, with one timer for all its parts."""

    def __init__(
        self, response: Any, own: Any, patience: Patience, loop: asyncio.AbstractEventLoop, until: float
    ) -> None:
        """Take the response; ``own`` is a session to close, ``until`` the deadline."""
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
        """Return the next bytes; empty at the end."""
        self._waiting_since = self._loop.time()
        part: bytes = await self._content.readany()
        self._waiting_since = None  # time that the program takes now is not silence of the server
        return part

    async def close(self) -> None:
        """Close the connection, or return it to the pool if it was read to its end."""
        if self._timer is not None:
            self._timer.cancel()
        self._response.close()
        if self._own is not None:
            with contextlib.suppress(Exception):
                await self._own.close()

    def drop(self) -> None:
        """Close the connection without waiting, from any thread."""
        with contextlib.suppress(RuntimeError):  # the loop is closed, and its connections with it
            self._loop.call_soon_threadsafe(self._end_now)

    def _end_now(self) -> None:
        closing = self._loop.create_task(self.close())
        _CLOSING.add(closing)
        closing.add_done_callback(_CLOSING.discard)

    def problem(self, error: Exception) -> StreamError | None:
        """Convert an error of `part`; None if it is not a transport error."""
        import aiohttp

        if self._late is not None:
            return self._late
        if isinstance(error, aiohttp.ClientError | OSError):
            return StreamCut(f"The connection broke in the middle of the stream: {error}")
        return None

    def _watch(self) -> None:
        """End a read that has waited too long, else check again at its deadline."""
        now, since = self._loop.time(), self._waiting_since
        silent_at = (now if since is None else since) + self._patience.read_s
        if now >= self._until:
            self._late = self._patience.too_long()
        elif now >= silent_at:
            self._late = self._patience.silent()
        else:
            self._timer = self._loop.call_at(min(silent_at, self._until), self._watch)
            return
        self._response.close()  # the waiting read then raises an error


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
