"""SageMaker Runtime: plain and streaming invocations, carried to the engine's ``/invocations``.

Wordings and limits are AWS's; each is a row in docs/explanation/local.md with its source.
"""

from __future__ import annotations

import asyncio
import contextlib
import uuid
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from time import monotonic
from urllib.parse import quote

import aiohttp
from aiohttp import web

from sagemaker_local.control import ApiError, NoCapacity, Route
from sagemaker_local.faults import (
    ClientLeft,
    EndedByFault,
    EventStreamWire,
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
from sagemaker_local.runtime.logs import group_of, group_of_component
from sagemaker_local.runtime.metrics import Invocation, Recorder
from sagemaker_local.runtime.request import INVOKE, STREAM, accepted
from sagemaker_local.wire import awsjson, eventstream

# Sent on to the container; AWS strips every other header (API reference of InvokeEndpoint).
_PASSED_ON = (
    "Content-Type",
    "Accept",
    "X-Amzn-SageMaker-Custom-Attributes",
    "X-Amzn-SageMaker-Inference-Id",
    "X-Amzn-SageMaker-Session-Id",
    "X-Amzn-SageMaker-Prefix-Aware-Id",
)
_PASSED_BACK = (
    "X-Amzn-SageMaker-Custom-Attributes",
    "X-Amzn-SageMaker-New-Session-Id",
    "X-Amzn-SageMaker-Closed-Session-Id",
)


@dataclass(frozen=True)
class Limits:
    """What SageMaker Runtime allows: seconds and bytes."""

    invoke_s: float = 60.0
    stream_s: float = 8 * 60.0
    body_bytes: int = 6_291_456


class _ModelFailed(Exception):
    """The container answered with an error, or not at all (status 0)."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status
        self.message = message


class DataPlane:
    """Serves ``/endpoints/{name}/invocations`` and ``…/invocations-response-stream``."""

    def __init__(
        self,
        *,
        route: Callable[[str, str | None, str | None], Route],
        recorder: Recorder,
        account: str,
        region: str,
        limits: Limits | None = None,
        faults: FaultBook | None = None,
    ) -> None:
        """Set up with routing, metrics, limits (shorter in tests) and faults."""
        self._route = route
        self._recorder = recorder
        self._account = account
        self._region = region
        self._limits = limits or Limits()
        self._faults = faults or FaultBook()
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

    async def invoke(self, request: web.Request, endpoint: str) -> web.StreamResponse:
        """Answer InvokeEndpoint."""
        began = monotonic()
        try:
            body, route = await self._accept(request, INVOKE, endpoint)
        except ApiError as refused:
            return self._refused(refused)
        strike = self._faults.strike("invoke", endpoint)
        instead = refusal_of(strike)
        if isinstance(instead, Refusal):
            return awsjson.runtime_error(instead.code, instead.message, instead.status)
        with route.hold(), self._recorded(route, began) as invocation:
            if isinstance(instead, ModelFailure):
                return self._model_error(route, invocation, _ModelFailed(instead.status, instead.message))
            try:
                async with asyncio.timeout(self._limits.invoke_s):
                    await asyncio.sleep(silence_of(strike))
                    async with self._call(request, route, request_of(strike, body)) as answer:
                        payload = await answer.read()
                invocation.model_done(answer.status)
            except TimeoutError:
                return self._model_error(route, invocation, _ModelFailed(0, _TIMED_OUT))
            except aiohttp.ClientError:
                return self._model_error(route, invocation, _ModelFailed(0, _no_response(endpoint)))
            if answer.status >= 400:
                failed = _ModelFailed(answer.status, payload.decode(errors="replace"))
                return self._model_error(route, invocation, failed)
            headers = _answer_headers(answer, route)
            headers["Content-Type"] = answer.headers.get("Content-Type", "application/octet-stream")
            whole = web.Response(body=payload, headers=headers)
            return await sent_whole(request, whole, strike)

    async def stream(self, request: web.Request, endpoint: str) -> web.StreamResponse:
        """Answer InvokeEndpointWithResponseStream."""
        began = monotonic()
        try:
            body, route = await self._accept(request, STREAM, endpoint)
        except ApiError as refused:
            return self._refused(refused)
        strike = self._faults.strike("stream", endpoint)
        instead = refusal_of(strike)
        if isinstance(instead, Refusal):
            return awsjson.runtime_error(instead.code, instead.message, instead.status)
        with route.hold(), self._recorded(route, began) as invocation:
            if isinstance(instead, ModelFailure):
                return self._model_error(route, invocation, _ModelFailed(instead.status, instead.message))
            deadline = asyncio.get_running_loop().time() + self._limits.stream_s
            try:
                asked = request_of(strike, body)
                async with (
                    asyncio.timeout_at(deadline) as limit,
                    self._call(request, route, asked) as answer,
                ):
                    if answer.status >= 400:
                        message = (await answer.read()).decode(errors="replace")
                        raise _ModelFailed(answer.status, message)
                    limit.reschedule(None)  # from here on a late engine ends the stream, not the request
                    writer = await self._begin(request, answer, route, strike)
                    return await self._relay(writer, answer, invocation, deadline)
            except TimeoutError:
                return self._model_error(route, invocation, _ModelFailed(0, _TIMED_OUT))
            except _ModelFailed as failed:
                return self._model_error(route, invocation, failed)
            except aiohttp.ClientError:
                return self._model_error(route, invocation, _ModelFailed(0, _no_response(endpoint)))

    async def _accept(self, request: web.Request, operation: str, endpoint: str) -> tuple[bytes, Route]:
        """Read and check the request and find the engine; ApiError when AWS would refuse."""
        asked = await accepted(request, operation, endpoint, self._limits.body_bytes)
        return asked.body, self._route(endpoint, asked.variant, asked.component)

    def _refused(self, refused: ApiError) -> web.Response:
        if isinstance(refused, NoCapacity):
            self._recorder.no_capacity(refused.component)
        return awsjson.runtime_error(refused.code, refused.message, refused.status, **refused.members)

    def _recorded(self, route: Route, began: float) -> contextlib.AbstractContextManager[Invocation]:
        return self._recorder.invocation(
            route.endpoint_name, route.variant_name, began, route.copies, component=route.component_name
        )

    @contextlib.asynccontextmanager
    async def _call(
        self, request: web.Request, route: Route, body: bytes
    ) -> AsyncIterator[aiohttp.ClientResponse]:
        if self._session is None:
            raise RuntimeError("the data plane is not open: call open() first")
        headers = {name: request.headers[name] for name in _PASSED_ON if name in request.headers}
        if "X-Amzn-SageMaker-Accept" in request.headers:  # the streaming call's name for Accept
            headers["Accept"] = request.headers["X-Amzn-SageMaker-Accept"]
        url = f"{route.engine_url}/invocations"
        async with self._session.post(url, data=body, headers=headers) as answer:
            yield answer

    async def _begin(
        self, request: web.Request, answer: aiohttp.ClientResponse, route: Route, strike: Strike | None
    ) -> PartWriter:
        """Send the headers of a stream."""
        headers = _answer_headers(answer, route)
        headers["Content-Type"] = eventstream.CONTENT_TYPE
        headers["X-Amzn-SageMaker-Content-Type"] = answer.headers.get(
            "Content-Type", "application/octet-stream"
        )
        response = web.StreamResponse(headers=headers)
        await response.prepare(request)
        return PartWriter(request, response, EventStreamWire(), strike)

    async def _relay(
        self, writer: PartWriter, answer: aiohttp.ClientResponse, invocation: Invocation, deadline: float
    ) -> web.StreamResponse:
        """Pass the engine's bytes on, one event each; end with an error event if they break off."""
        ending: bytes | None = None
        try:
            async with asyncio.timeout_at(deadline):
                async for chunk in answer.content.iter_any():
                    invocation.chunk()
                    await writer.part(chunk)
                await writer.end()
        except ClientLeft:
            await writer.left(answer.content.iter_any())
            # Leaving `_call` before the end closes the engine's connection, which ends its work.
            return writer.response
        except asyncio.CancelledError:  # so aiohttp says that the client has left while the engine was silent
            await writer.left(answer.content.iter_any())
            raise
        except EndedByFault:
            invocation.broken_off()
        except TimeoutError:
            ending = _stream_error("ModelInvocationTimeExceeded", _took_too_long(self._limits.stream_s))
        except aiohttp.ClientError:
            ending = _stream_error(
                "StreamBroken", "The connection between the model container and SageMaker was closed."
            )
        except Exception as error:  # our own fault must reach the client as AWS's own fault does
            ending = eventstream.exception(
                "InternalStreamFailure", {"Message": f"{type(error).__name__}: {error}"}
            )
        if ending is not None:
            invocation.broken_off()
            with contextlib.suppress(ClientLeft):
                await writer.raw(ending)
        invocation.model_done(answer.status)
        return writer.response

    def _model_error(self, route: Route, invocation: Invocation, failed: _ModelFailed) -> web.Response:
        invocation.model_done(failed.status or 500)
        side = "client" if 400 <= failed.status < 500 else "server"
        component = route.component_name
        group = group_of(route.endpoint_name) if component is None else group_of_component(component)
        console = (
            f"https://{self._region}.console.aws.amazon.com/cloudwatch/home?region={self._region}"
            f"#logEventViewer:group={quote(group, safe='/')}"
        )
        message = (
            f'Received {side} error ({failed.status}) from primary with message "{failed.message}". '
            f"See {console} in account {self._account} for more information."
        )
        return awsjson.runtime_error(
            "ModelError",
            message,
            424,
            OriginalStatusCode=failed.status,
            OriginalMessage=failed.message,
            LogStreamArn=f"arn:aws:logs:{self._region}:{self._account}:log-group:{group}",
        )


def _answer_headers(answer: aiohttp.ClientResponse, route: Route) -> dict[str, str]:
    headers = {name: answer.headers[name] for name in _PASSED_BACK if name in answer.headers}
    # Without the id a client cannot name the request that went wrong; AWS sends it with every answer.
    return {
        "x-amzn-RequestId": str(uuid.uuid4()),
        "x-Amzn-Invoked-Production-Variant": route.variant_name,
        **headers,
    }


def _stream_error(code: str, message: str) -> bytes:
    return eventstream.exception("ModelStreamError", {"Message": message, "ErrorCode": code})


def _took_too_long(seconds: float) -> str:
    return f"The model did not finish sending its response within {seconds:g} seconds."


_TIMED_OUT = (
    "Your invocation timed out while waiting for a response from container primary. Review the latency "
    "metrics for each container in Amazon CloudWatch, resolve the issue, and try again."
)


def _no_response(endpoint: str) -> str:
    return f"Amazon SageMaker could not get a response from the {endpoint} endpoint. Please try again later."
