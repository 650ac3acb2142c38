"""SageMaker Runtime's own operations: InvokeEndpoint and InvokeEndpointWithResponseStream.

Requests are signed (SigV4), streams have event-stream frames, errors are REST JSON. Wordings are AWS's; each
is a row in docs/explanation/local.md with its source.
"""

from __future__ import annotations

from datetime import UTC, datetime

import aiohttp
from aiohttp import web

from sagemaker_local.control import ApiError
from sagemaker_local.faults import EventStreamWire, Refusal
from sagemaker_local.runtime.dataplane import Call, Limits, ModelError
from sagemaker_local.runtime.request import INVOKE, STREAM, accepted
from sagemaker_local.wire import awsjson, eventstream, signatures

_OPERATIONS = {"invocations": ("invoke", INVOKE), "invocations-response-stream": ("stream", STREAM)}
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


class _Unsigned(ApiError):
    """A request that AWS refuses for its signature, before SageMaker Runtime reads it."""


class SageMakerRoute:
    """The dialect of clients such as boto3."""

    wire = EventStreamWire()

    def __init__(self, *, region: str, limits: Limits) -> None:
        self._region = region
        self._limits = limits

    async def accept(self, request: web.Request) -> Call:
        """Check the signature, then every constraint of the operation."""
        self._authenticate(request)
        endpoint, _, last = request.path.removeprefix("/endpoints/").partition("/")
        if request.method != "POST" or last not in _OPERATIONS:
            raise ApiError(
                "UnknownOperationException",
                f"{request.method} {request.path} is not implemented by the local SageMaker",
                404,
            )
        operation, model_name = _OPERATIONS[last]
        invocation = await accepted(request, model_name, endpoint, self._limits.body_bytes)
        headers = {name: request.headers[name] for name in _PASSED_ON if name in request.headers}
        if "X-Amzn-SageMaker-Accept" in request.headers:  # the streaming call's name for Accept
            headers["Accept"] = request.headers["X-Amzn-SageMaker-Accept"]
        return Call(
            operation=operation,
            endpoint=endpoint,
            variant=invocation.variant,
            component=invocation.component,
            body=invocation.body,
            path="/invocations",
            headers=headers,
            seconds=self._limits.invoke_s if operation == "invoke" else self._limits.stream_s,
        )

    def _authenticate(self, request: web.Request) -> None:
        """Refuse a signature that is missing, not well-formed, too old, or for another place."""
        scope = signatures.Scope(self._region, "sagemaker")
        wrong = signatures.refusal(request.headers, scope, datetime.now(UTC))
        if wrong is not None:
            raise _Unsigned(wrong.code, wrong.message, 403)

    def refusal(self, error: ApiError | Refusal) -> web.Response:
        """Make an error of REST JSON; a refused signature has the shape of AWS's front end."""
        if isinstance(error, _Unsigned):
            return awsjson.unsigned_error(error.code, error.message)
        members = error.members if isinstance(error, ApiError) else {}
        return awsjson.runtime_error(error.code, error.message, error.status, **members)

    def model_error(self, error: ModelError, message: str, log_group_arn: str) -> web.Response:
        """Make a `ModelError`."""
        return awsjson.runtime_error(
            "ModelError",
            message,
            424,
            OriginalStatusCode=error.status,
            OriginalMessage=error.original,
            LogStreamArn=log_group_arn,
        )

    def is_stream(self, call: Call, answer: aiohttp.ClientResponse) -> bool:
        """Return whether the client called the streaming operation."""
        return call.operation == "stream"

    def headers(self, answer: aiohttp.ClientResponse, *, stream: bool) -> dict[str, str]:
        """Return the container's headers that AWS passes back, and the content's type."""
        headers = {name: answer.headers[name] for name in _PASSED_BACK if name in answer.headers}
        content_type = answer.headers.get("Content-Type", "application/octet-stream")
        if stream:
            headers["X-Amzn-SageMaker-Content-Type"] = content_type
            content_type = eventstream.CONTENT_TYPE
        return {**headers, "Content-Type": content_type}

    def ending(self, call: Call, error: Exception) -> bytes:
        """Return the exception event for a stream that broke off."""
        if isinstance(error, TimeoutError):
            message = f"The model did not finish sending its response within {call.seconds:g} seconds."
            return _stream_error("ModelInvocationTimeExceeded", message)
        if isinstance(error, aiohttp.ClientError):
            return _stream_error(
                "StreamBroken", "The connection between the model container and SageMaker was closed."
            )
        return eventstream.exception("InternalStreamFailure", {"Message": f"{type(error).__name__}: {error}"})


def _stream_error(code: str, message: str) -> bytes:
    return eventstream.exception("ModelStreamError", {"Message": message, "ErrorCode": code})
