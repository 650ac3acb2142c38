"""The Invoke API over HTTP."""

from __future__ import annotations

import base64
import re
from urllib.parse import unquote

from aiohttp import web

from sagemaker_local.control import ApiError
from sagemaker_local.lambdas.service import Lambdas, parsed
from sagemaker_local.wire import awsjson

PATH = re.compile(r"/2015-03-31/functions/(?P<name>[^/]+)/invocations")

# Bytes; "Invocation payload: 6 MB each for request and response (synchronous), 1 MB for the request
# (asynchronous)" (Lambda quotas).
_LARGEST_SYNC = 6_291_456
_LARGEST_ASYNC = 1_048_576
_LOG_TAIL = 4096


class InvokeApi:
    """Answers ``POST /2015-03-31/functions/<name>/invocations``."""

    def __init__(self, lambdas: Lambdas) -> None:
        self._lambdas = lambdas

    def takes(self, request: web.Request) -> bool:
        """Return whether a request is an invocation; moto answers other calls about functions."""
        return request.method == "POST" and PATH.fullmatch(unquote(request.path)) is not None

    async def handle(self, request: web.Request) -> web.Response:
        """Answer an invocation."""
        match = PATH.fullmatch(request.path)
        if match is None:
            raise ValueError(f"not an invocation: {request.path}")
        try:
            return await self._answer(request, unquote(match["name"]))
        except ApiError as error:
            return awsjson.runtime_error(error.code, error.message, error.status, Type="User")

    async def _answer(self, request: web.Request, name: str) -> web.Response:
        kind = request.headers.get("X-Amz-Invocation-Type", "RequestResponse")
        body = await request.read()
        largest = _LARGEST_ASYNC if kind == "Event" else _LARGEST_SYNC
        if len(body) > largest:
            raise ApiError(
                "RequestTooLargeException",
                f"{len(body)} byte payload is too large for the {kind} invocation type "
                f"(limit {largest} bytes)",
                413,
            )
        self._lambdas.check(name)
        event = parsed(body)
        match kind:
            case "DryRun":
                return web.Response(status=204)
            case "Event":
                self._lambdas.send(name, event)
                return web.Response(status=202)
            case "RequestResponse":
                return await self._response(request, name, event)
        raise ApiError(
            "InvalidParameterValueException",
            f"invocation type: found {kind!r}; allowed: RequestResponse, Event, DryRun",
        )

    async def _response(self, request: web.Request, name: str, event: object) -> web.Response:
        outcome = await self._lambdas.invoke(name, event)
        headers = {"X-Amz-Executed-Version": "$LATEST", "x-amzn-RequestId": outcome.request_id}
        if outcome.error is not None:
            headers["X-Amz-Function-Error"] = outcome.error
        if request.headers.get("X-Amz-Log-Type") == "Tail":
            tail = "\n".join(outcome.output).encode()[-_LOG_TAIL:]
            headers["X-Amz-Log-Result"] = base64.b64encode(tail).decode()
        return web.Response(body=outcome.payload, headers=headers, content_type="application/json")
