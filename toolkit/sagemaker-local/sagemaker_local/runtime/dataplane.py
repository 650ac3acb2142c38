"""Invocations: from a client's request to the engine and back.

`DataPlane` has the path that every invocation takes: choose the engine, apply the fault, forward the body,
pass on the answer or the stream within its time, and record metrics. A `Dialect` has what differs between
the clients: authentication, the request's checks, framing and the shape of errors. There are two, in
`sagemaker_route` and `openai_route`. Wordings and limits are AWS's; each is a row in
docs/explanation/local.md with its source.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from time import monotonic
from typing import Protocol
from urllib.parse import quote

import aiohttp
from aiohttp import web

from sagemaker_local.control import ApiError, NoCapacity, Route
from sagemaker_local.faults import (
    ClientLeft,
    EndedByFault,
    FaultBook,
    ModelFailure,
    PartWriter,
    Refusal,
    Strike,
    refusal_of,
    request_of,
    sent_whole,
    silence_of,
)
from sagemaker_local.faults.wires import Wire
from sagemaker_local.runtime.logs import group_of, group_of_component
from sagemaker_local.runtime.metrics import Invocation, Recorder

log = logging.getLogger(__name__)

_TIMED_OUT = (
    "Your invocation timed out while waiting for a response from container primary. Review the latency "
    "metrics for each container in Amazon CloudWatch, resolve the issue, and try again."
)


@dataclass(frozen=True)
class Limits:
    """What SageMaker Runtime allows: seconds and bytes."""

    invoke_s: float = 60.0
    stream_s: float = 8 * 60.0
    body_bytes: int = 6_291_456


@dataclass(frozen=True)
class Call:
    """A request that passed the checks of its dialect.

    Attributes:
        operation: its name for faults: "invoke", "stream" or "openai".
        variant: the production variant that the client chose, if any.
        component: the inference component that the client named, if any.
        path: the container's path, for example "/invocations".
        headers: the headers for the container.
        seconds: limit of the whole answer.
    """

    operation: str
    endpoint: str
    variant: str | None
    component: str | None
    body: bytes
    path: str
    headers: Mapping[str, str]
    seconds: float


class ModelError(Exception):
    """An error answer of the container; ``status`` is 0 without an answer.

    Attributes:
        original: the container's own body, or the reason why there is none.
    """

    def __init__(self, status: int, original: str) -> None:
        super().__init__(original)
        self.status = status
        self.original = original


class Dialect(Protocol):
    """What differs between the clients of an endpoint."""

    @property
    def wire(self) -> Wire:
        """The framing of a stream."""

    async def accept(self, request: web.Request) -> Call:
        """Authenticate, check and read a request; ApiError if AWS would refuse it."""

    def refusal(self, error: ApiError | Refusal) -> web.Response:
        """Make the answer to a refused request."""

    def model_error(self, error: ModelError, message: str, log_group_arn: str) -> web.Response:
        """Make the answer for an error of the container; ``message`` quotes it."""

    def is_stream(self, call: Call, answer: aiohttp.ClientResponse) -> bool:
        """Return whether a good answer of the container is passed on part by part."""

    def headers(self, answer: aiohttp.ClientResponse, *, stream: bool) -> dict[str, str]:
        """Return the headers of the answer to the client, without those that each answer has."""

    def ending(self, call: Call, error: Exception) -> bytes | None:
        """Return the last bytes of a stream that broke off; None if only a closed connection can show it."""


@dataclass(frozen=True)
class _Exchange:
    """An accepted request, the engine that serves it, its fault and its metrics."""

    request: web.Request
    dialect: Dialect
    call: Call
    route: Route
    strike: Strike | None
    invocation: Invocation

    def headers(self, answer: aiohttp.ClientResponse, *, stream: bool) -> dict[str, str]:
        """Return the headers of the answer to the client."""
        return {
            # Without the id a client cannot name the request that failed; AWS sends it with every answer.
            "x-amzn-RequestId": str(uuid.uuid4()),
            "x-Amzn-Invoked-Production-Variant": self.route.variant_name,
            **self.dialect.headers(answer, stream=stream),
        }


class DataPlane:
    """Answers invocations, in any dialect."""

    def __init__(
        self,
        *,
        route: Callable[[str, str | None, str | None], Route],
        recorder: Recorder,
        account: str,
        region: str,
        faults: FaultBook,
    ) -> None:
        self._route = route
        self._recorder = recorder
        self._account = account
        self._region = region
        self._faults = faults
        self._session: aiohttp.ClientSession | None = None

    async def open(self) -> None:
        """Open the connections to the engines."""
        self._session = aiohttp.ClientSession(
            # vLLM closes an idle connection after 5 s; one that it closes just now would cost a request.
            connector=aiohttp.TCPConnector(limit=0, keepalive_timeout=2.0),
            timeout=aiohttp.ClientTimeout(total=None, sock_connect=10),
            auto_decompress=False,
        )

    async def close(self) -> None:
        """Close the connections to the engines."""
        if self._session is not None:
            await self._session.close()

    async def answer(self, request: web.Request, dialect: Dialect) -> web.StreamResponse:
        """Answer an invocation."""
        began = monotonic()
        try:
            call = await dialect.accept(request)
            route = self._route(call.endpoint, call.variant, call.component)
        except ApiError as refused:
            if isinstance(refused, NoCapacity):
                self._recorder.no_capacity(refused.component)
            return dialect.refusal(refused)
        strike = self._faults.strike(call.operation, call.endpoint)
        instead = refusal_of(strike)
        if isinstance(instead, Refusal):
            return dialect.refusal(instead)
        with (
            route.hold(),
            self._recorder.invocation(
                route.endpoint_name, route.variant_name, began, route.copies, component=route.component_name
            ) as invocation,
        ):
            exchange = _Exchange(request, dialect, call, route, strike, invocation)
            try:
                if isinstance(instead, ModelFailure):
                    raise ModelError(instead.status, instead.message)
                return await self._forward(exchange)
            except ModelError as error:
                invocation.model_done(error.status or 500)
                return self._model_error(exchange, error)

    async def _forward(self, exchange: _Exchange) -> web.StreamResponse:
        """Pass the request to the engine, and its answer to the client."""
        if self._session is None:
            raise RuntimeError("the data plane is not open: call open() first")
        call, strike = exchange.call, exchange.strike
        url = exchange.route.engine_url + call.path
        deadline = asyncio.get_running_loop().time() + call.seconds
        try:
            async with (
                asyncio.timeout_at(deadline) as limit,
                self._session.post(url, data=request_of(strike, call.body), headers=call.headers) as answer,
            ):
                if answer.status < 400 and exchange.dialect.is_stream(call, answer):
                    limit.reschedule(None)  # from here on a late engine ends the stream, not the request
                    return await self._relay(exchange, answer, deadline)
                payload = await answer.read()
                await asyncio.sleep(silence_of(strike))
        except TimeoutError:
            raise ModelError(0, _TIMED_OUT) from None
        except aiohttp.ClientError as error:
            raise ModelError(
                0,
                f"Amazon SageMaker could not get a response from the {call.endpoint} endpoint. "
                "Please try again later.",
            ) from error
        if answer.status >= 400:
            raise ModelError(answer.status, payload.decode(errors="replace"))
        exchange.invocation.model_done(answer.status)
        whole = web.Response(body=payload, headers=exchange.headers(answer, stream=False))
        return await sent_whole(exchange.request, whole, strike)

    async def _relay(
        self, exchange: _Exchange, answer: aiohttp.ClientResponse, deadline: float
    ) -> web.StreamResponse:
        """Pass on a stream, one part for each read from the engine; if it breaks off, end it visibly."""
        request, invocation = exchange.request, exchange.invocation
        response = web.StreamResponse(headers=exchange.headers(answer, stream=True))
        await response.prepare(request)
        writer = PartWriter(request, response, exchange.dialect.wire, exchange.strike)
        try:
            async with asyncio.timeout_at(deadline):
                async for chunk in answer.content.iter_any():
                    invocation.chunk()
                    await writer.part(chunk)
                await writer.end()
        except ClientLeft:
            await writer.left(answer.content.iter_any())
            # Leaving the engine's answer before its end closes the connection, which ends the engine's work.
            return response
        except asyncio.CancelledError:  # so aiohttp says that the client has left while the engine was silent
            await writer.left(answer.content.iter_any())
            raise
        except EndedByFault:
            invocation.broken_off()
        except Exception as error:  # also a defect of the local server must end the client's stream
            if not isinstance(error, TimeoutError | aiohttp.ClientError):
                log.exception("passing on a stream of endpoint %s failed", exchange.call.endpoint)
            invocation.broken_off()
            ending = exchange.dialect.ending(exchange.call, error)
            if ending is not None:
                with contextlib.suppress(ClientLeft):
                    await writer.raw(ending)
            elif request.transport is not None:
                request.transport.abort()  # a client misses the last chunk of the transfer coding
        invocation.model_done(answer.status)
        return response

    def _model_error(self, exchange: _Exchange, error: ModelError) -> web.Response:
        side = "client" if 400 <= error.status < 500 else "server"
        component = exchange.route.component_name
        group = group_of(exchange.route.endpoint_name) if component is None else group_of_component(component)
        console = (
            f"https://{self._region}.console.aws.amazon.com/cloudwatch/home?region={self._region}"
            f"#logEventViewer:group={quote(group, safe='/')}"
        )
        message = (
            f'Received {side} error ({error.status}) from primary with message "{error.original}". '
            f"See {console} in account {self._account} for more information."
        )
        arn = f"arn:aws:logs:{self._region}:{self._account}:log-group:{group}"
        return exchange.dialect.model_error(error, message, arn)
