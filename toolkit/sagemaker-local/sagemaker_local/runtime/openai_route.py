"""The OpenAI route of an endpoint: ``/endpoints/NAME/openai/v1/chat/completions``, by bearer token.

The container's own answer, byte for byte: no event-stream framing. Errors come in OpenAI's envelope, also
those of SageMaker itself. Each behaviour is a row in docs/explanation/local.md with its source.
"""

from __future__ import annotations

import asyncio
import json
import re
import uuid
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import datetime
from time import monotonic
from urllib.parse import quote, unquote

import aiohttp
from aiohttp import web

from sagemaker_local.clock import LocalClock
from sagemaker_local.control import ApiError, NoCapacity, Route
from sagemaker_local.faults import (
    BareWire,
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
from sagemaker_local.runtime import bearer
from sagemaker_local.runtime.dataplane import Limits
from sagemaker_local.runtime.logs import group_of, group_of_component
from sagemaker_local.runtime.metrics import Invocation, Recorder
from sagemaker_local.wire import awsjson

_PATH = re.compile(
    r"/endpoints/(?P<endpoint>[^/]+)(/inference-components/(?P<component>[^/]+))?/openai/v1(?P<call>/.*)?"
)
_CALL = "/chat/completions"
_COMPONENT_HEADER = "X-Amzn-SageMaker-Inference-Component"
_PASSED_ON = ("Content-Type", "Accept")
_STREAM = "text/event-stream"


@dataclass(frozen=True)
class Address:
    """What a path asks for; ``call`` is what follows ``/openai/v1``."""

    endpoint: str
    component: str | None
    call: str


def address_of(path: str) -> Address | None:
    """Read a path (percent-encoded); None when it is not of this route."""
    found = _PATH.fullmatch(path)
    if found is None:
        return None
    component = found["component"]
    return Address(
        unquote(found["endpoint"]), None if component is None else unquote(component), found["call"] or ""
    )


class OpenAiRoute:
    """Serves the route; what is invoked, held and recorded is as in the data plane."""

    def __init__(
        self,
        *,
        route: Callable[[str, str | None, str | None], Route],
        recorder: Recorder,
        clock: LocalClock,
        account: str,
        region: str,
        limits: Limits,
        faults: FaultBook,
    ) -> None:
        """Set up with routing, metrics, the local clock, limits and faults."""
        self._route = route
        self._recorder = recorder
        self._clock = clock
        self._account = account
        self._region = region
        self._limits = limits
        self._faults = faults
        self._session: aiohttp.ClientSession | None = None

    async def open(self) -> None:
        """Open the connections to the engines."""
        self._session = aiohttp.ClientSession(
            # As in the data plane: vLLM closes an idle connection after 5 s.
            connector=aiohttp.TCPConnector(limit=0, keepalive_timeout=2.0),
            timeout=aiohttp.ClientTimeout(total=None, sock_connect=10),
            auto_decompress=False,
        )

    async def close(self) -> None:
        """Close the connections to the engines."""
        if self._session is not None:
            await self._session.close()

    def takes(self, request: web.Request) -> bool:
        """Return whether a request is for this route, with any or no signature."""
        return address_of(request.rel_url.raw_path) is not None

    async def handle(self, request: web.Request) -> web.StreamResponse:
        """Answer a request to the route."""
        began = monotonic()
        asked = address_of(request.rel_url.raw_path)
        assert asked is not None, "takes() was not asked"
        try:
            self._authenticate(request)
            body, route = await self._accept(request, asked)
            strike = self._strike(asked.endpoint)
        except ApiError as refused:
            if isinstance(refused, NoCapacity):
                self._recorder.no_capacity(refused.component)
            return error_answer(refused.code, refused.message, refused.status)
        with (
            route.hold(),
            self._recorder.invocation(
                route.endpoint_name, route.variant_name, began, route.copies, component=route.component_name
            ) as invocation,
        ):
            return await self._invoke(request, route, body, invocation, strike)

    def _strike(self, endpoint: str) -> Strike | None:
        strike = self._faults.strike("openai", endpoint)
        instead = refusal_of(strike)
        if isinstance(instead, Refusal):
            # Clients of OpenAI know a throttled request by its status.
            status = 429 if strike is not None and strike.kind == "throttle" else instead.status
            raise ApiError(instead.code, instead.message or "Rate exceeded", status)
        return strike

    def _authenticate(self, request: web.Request) -> None:
        scheme, _, token = request.headers.get("Authorization", "").partition(" ")
        if scheme.lower() != "bearer" or not token:
            raise ApiError("MissingAuthenticationTokenException", "Missing Authentication Token", 403)
        now: datetime = self._clock.now()
        try:
            bearer.verify(
                token.strip(), region=self._region, now=now, local_time_of=self._clock.local_time_of
            )
        except bearer.BearerRefused as refused:
            raise ApiError(refused.code, refused.message, 403) from refused

    async def _accept(self, request: web.Request, asked: Address) -> tuple[bytes, Route]:
        if asked.call != _CALL or request.method != "POST":
            raise ApiError(
                "UnknownOperationException",
                f"{request.method} /openai/v1{asked.call} is not supported: SageMaker routes only "
                f"POST /openai/v1{_CALL}",
                404,
            )
        if _COMPONENT_HEADER in request.headers:
            raise ApiError(
                "ValidationError",
                f"{_COMPONENT_HEADER} is not supported here: name the inference component in the URL.",
            )
        limit = self._limits.body_bytes
        kept = bytearray()
        async for chunk in request.content.iter_any():
            if len(kept) <= limit:
                kept += chunk
        if len(kept) > limit:
            raise ApiError(
                "ValidationError",
                "1 validation error detected: Value at 'body' failed to satisfy constraint: "
                f"Member must have length less than or equal to {limit}",
            )
        return bytes(kept), self._route(asked.endpoint, None, asked.component)

    async def _invoke(
        self,
        request: web.Request,
        route: Route,
        body: bytes,
        invocation: Invocation,
        strike: Strike | None,
    ) -> web.StreamResponse:
        instead = refusal_of(strike)
        if isinstance(instead, ModelFailure):
            return self._model_error(route, invocation, instead.status, instead.message)
        seconds = self._limits.stream_s if _asks_for_stream(body) else self._limits.invoke_s
        deadline = asyncio.get_running_loop().time() + seconds
        try:
            asked = request_of(strike, body)
            async with (
                asyncio.timeout_at(deadline) as limit,
                self._call(request, route, asked) as answer,
            ):
                if answer.status < 400 and answer.content_type == _STREAM:
                    limit.reschedule(None)  # from here on a late engine ends the stream, not the request
                    response = web.StreamResponse(headers=_headers(answer, route))
                    await response.prepare(request)
                    writer = PartWriter(request, response, BareWire(), strike)
                    return await self._relay(request, writer, answer, invocation, deadline)
                payload = await answer.read()
                await asyncio.sleep(silence_of(strike))
        except TimeoutError:
            return self._model_error(route, invocation, 0, _TIMED_OUT)
        except aiohttp.ClientError:
            return self._model_error(route, invocation, 0, _no_response(route.endpoint_name))
        if answer.status >= 400:
            return self._model_error(route, invocation, answer.status, payload.decode(errors="replace"))
        invocation.model_done(answer.status)
        whole = web.Response(body=payload, headers=_headers(answer, route))
        return await sent_whole(request, whole, strike)

    @asynccontextmanager
    async def _call(
        self, request: web.Request, route: Route, body: bytes
    ) -> AsyncIterator[aiohttp.ClientResponse]:
        if self._session is None:
            raise RuntimeError("the OpenAI route is not open: call open() first")
        headers = {name: request.headers[name] for name in _PASSED_ON if name in request.headers}
        async with self._session.post(f"{route.engine_url}/v1{_CALL}", data=body, headers=headers) as answer:
            yield answer

    async def _relay(
        self,
        request: web.Request,
        writer: PartWriter,
        answer: aiohttp.ClientResponse,
        invocation: Invocation,
        deadline: float,
    ) -> web.StreamResponse:
        """Pass the container's bytes on as they arrive; if they break off, so does this answer."""
        try:
            async with asyncio.timeout_at(deadline):
                async for chunk in answer.content.iter_any():
                    invocation.chunk()
                    await writer.part(chunk)
                await writer.end()
        except ClientLeft:  # closing the engine's side ends its work
            await writer.left(answer.content.iter_any())
            return writer.response
        except asyncio.CancelledError:  # so aiohttp says that the client has left while the engine was silent
            await writer.left(answer.content.iter_any())
            raise
        except EndedByFault:
            invocation.broken_off()
        except (TimeoutError, aiohttp.ClientError):
            invocation.broken_off()
            # There is no frame to say it in: without the last chunk of the transfer coding a client can tell.
            if request.transport is not None:
                request.transport.abort()
        invocation.model_done(answer.status)
        return writer.response

    def _model_error(self, route: Route, invocation: Invocation, status: int, message: str) -> web.Response:
        """The container's own body, quoted whole in SageMaker's sentence, with the container's status."""
        invocation.model_done(status or 500)
        side = "client" if 400 <= status < 500 else "server"
        component = route.component_name
        group = group_of(route.endpoint_name) if component is None else group_of_component(component)
        console = (
            f"https://{self._region}.console.aws.amazon.com/cloudwatch/home?region={self._region}"
            f"#logEventViewer:group={quote(group, safe='/')}"
        )
        told = (
            f'Received {side} error ({status}) from primary with message "{message}". '
            f"See {console} in account {self._account} for more information."
        )
        return _envelope(told, "server_error", "model_error", status or 500)


def error_answer(code: str, message: str, status: int) -> web.Response:
    """A refusal of SageMaker's own, in OpenAI's envelope; ``code`` is AWS's name of the error."""
    bare = code.removesuffix("Exception")
    told = re.sub(r"(?<!^)(?=[A-Z])", "_", bare).lower()
    return _envelope(message, "invalid_request_error" if status < 500 else "server_error", told, status)


def _asks_for_stream(body: bytes) -> bool:
    try:
        document = json.loads(body)
    except (ValueError, RecursionError):
        return False  # the container says what is wrong with it
    return isinstance(document, dict) and document.get("stream") is True


def _envelope(message: str, kind: str, code: str, status: int) -> web.Response:
    return web.Response(
        status=status,
        body=awsjson.dumps({"error": {"message": message, "type": kind, "code": code}}),
        headers={"Content-Type": "application/json", "x-amzn-RequestId": str(uuid.uuid4())},
    )


def _headers(answer: aiohttp.ClientResponse, route: Route) -> dict[str, str]:
    return {
        "Content-Type": answer.headers.get("Content-Type", "application/octet-stream"),
        "x-amzn-RequestId": str(uuid.uuid4()),
        "x-Amzn-Invoked-Production-Variant": route.variant_name,
    }


_TIMED_OUT = (
    "Your invocation timed out while waiting for a response from container primary. Review the latency "
    "metrics for each container in Amazon CloudWatch, resolve the issue, and try again."
)


def _no_response(endpoint: str) -> str:
    return f"Amazon SageMaker could not get a response from the {endpoint} endpoint. Please try again later."
