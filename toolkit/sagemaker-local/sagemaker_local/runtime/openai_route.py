"""The OpenAI route of an endpoint: ``/endpoints/NAME/openai/v1/chat/completions``, by bearer token.

The container's own answer, byte for byte: no event-stream framing. Errors come in OpenAI's envelope, also
those of SageMaker itself. Each behaviour is a row in docs/explanation/local.md with its source.
"""

from __future__ import annotations

import json
import re
import uuid
from dataclasses import dataclass
from urllib.parse import unquote

import aiohttp
from aiohttp import web

from sagemaker_local.clock import LocalClock
from sagemaker_local.control import ApiError
from sagemaker_local.control.requests import validation_error
from sagemaker_local.faults import BareWire, Refusal
from sagemaker_local.runtime import bearer
from sagemaker_local.runtime.dataplane import Call, Limits, ModelError
from sagemaker_local.runtime.request import body_problem, read_at_most
from sagemaker_local.wire import awsjson

_PATH = re.compile(
    r"/endpoints/(?P<endpoint>[^/]+)(/inference-components/(?P<component>[^/]+))?/openai/v1(?P<call>/.*)?"
)
_CALL = "/chat/completions"
_COMPONENT_HEADER = "X-Amzn-SageMaker-Inference-Component"
_PASSED_ON = ("Content-Type", "Accept")


@dataclass(frozen=True)
class Address:
    """The parts of a path; ``call`` is what follows ``/openai/v1``."""

    endpoint: str
    component: str | None
    call: str


def address_of(path: str) -> Address | None:
    """Read a path (percent-encoded); None when it is not of this route."""
    match = _PATH.fullmatch(path)
    if match is None:
        return None
    component = match["component"]
    return Address(
        unquote(match["endpoint"]), None if component is None else unquote(component), match["call"] or ""
    )


class OpenAiRoute:
    """The dialect of clients of OpenAI's API."""

    wire = BareWire()

    def __init__(self, *, clock: LocalClock, region: str, limits: Limits) -> None:
        self._clock = clock
        self._region = region
        self._limits = limits

    async def accept(self, request: web.Request) -> Call:
        """Check the token, the path and the body's length."""
        address = address_of(request.rel_url.raw_path)
        assert address is not None, "the front sends only paths of this route"
        self._authenticate(request)
        if address.call != _CALL or request.method != "POST":
            raise ApiError(
                "UnknownOperationException",
                f"{request.method} /openai/v1{address.call} is not supported: SageMaker routes only "
                f"POST /openai/v1{_CALL}",
                404,
            )
        if _COMPONENT_HEADER in request.headers:
            raise ApiError(
                "ValidationError",
                f"{_COMPONENT_HEADER} is not supported here: name the inference component in the URL.",
            )
        body = await read_at_most(request, self._limits.body_bytes)
        if body is None:
            raise validation_error([body_problem(self._limits.body_bytes)], "ValidationError")
        return Call(
            operation="openai",
            endpoint=address.endpoint,
            variant=None,
            component=address.component,
            body=body,
            path=f"/v1{_CALL}",
            headers={name: request.headers[name] for name in _PASSED_ON if name in request.headers},
            seconds=self._limits.stream_s if _wants_stream(body) else self._limits.invoke_s,
        )

    def _authenticate(self, request: web.Request) -> None:
        scheme, _, token = request.headers.get("Authorization", "").partition(" ")
        if scheme.lower() != "bearer" or not token:
            raise ApiError("MissingAuthenticationTokenException", "Missing Authentication Token", 403)
        now = self._clock.now()
        try:
            bearer.verify(
                token.strip(), region=self._region, now=now, local_time_of=self._clock.local_time_of
            )
        except bearer.BearerRefused as refused:
            raise ApiError(refused.code, refused.message, 403) from refused

    def refusal(self, error: ApiError | Refusal) -> web.Response:
        """Make an error of SageMaker in OpenAI's envelope, with AWS's code in OpenAI's spelling."""
        # Clients of OpenAI know a throttled request by its status.
        status = 429 if error.code == "ThrottlingException" else error.status
        code = re.sub(r"(?<!^)(?=[A-Z])", "_", error.code.removesuffix("Exception")).lower()
        kind = "invalid_request_error" if status < 500 else "server_error"
        return _envelope(error.message or "Rate exceeded", kind, code, status)

    def model_error(self, error: ModelError, message: str, log_group_arn: str) -> web.Response:
        """Make the answer for the container's error; it has the container's status."""
        return _envelope(message, "server_error", "model_error", error.status or 500)

    def is_stream(self, call: Call, answer: aiohttp.ClientResponse) -> bool:
        """Return whether the container answers with server-sent events."""
        return answer.content_type == "text/event-stream"

    def headers(self, answer: aiohttp.ClientResponse, *, stream: bool) -> dict[str, str]:
        """Return the type of the container's content."""
        return {"Content-Type": answer.headers.get("Content-Type", "application/octet-stream")}

    def ending(self, call: Call, error: Exception) -> None:
        """Return None: no frame could have an error in it."""


def _wants_stream(body: bytes) -> bool:
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
