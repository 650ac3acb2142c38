"""SageMaker Runtime's checks of an invocation before it looks up the endpoint.

Patterns, lengths and header names are those of botocore's model of the two operations.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from aiohttp import web
from botocore.model import StructureShape

from sagemaker_local.control import ApiError
from sagemaker_local.control.requests import problems_of, service_model, validation_error

INVOKE = "InvokeEndpoint"
STREAM = "InvokeEndpointWithResponseStream"

_CODE = "ValidationError"  # the control plane's is ValidationException
_TARGET_MODEL = "X-Amzn-SageMaker-Target-Model"


@dataclass(frozen=True)
class Invocation:
    """A well-formed invocation: its body and its target."""

    endpoint: str
    body: bytes
    variant: str | None
    component: str | None


async def accepted(request: web.Request, operation: str, endpoint: str, body_limit: int) -> Invocation:
    """Read an invocation and check every constraint of its operation.

    Raises:
        ApiError: `ValidationError` naming each constraint that fails, or a header that only an endpoint of
            several models takes.
    """
    body = await read_at_most(request, body_limit)
    broken = list(problems(operation, endpoint, request.headers))
    if body is None:
        broken.append(body_problem(body_limit))
    if broken or body is None:
        raise validation_error(broken, _CODE)
    if operation == INVOKE and _TARGET_MODEL in request.headers:
        raise ApiError(
            _CODE,
            f"Endpoint {endpoint} is not a multi-model endpoint and does not support target model header.",
            members={"ErrorCode": "TARGET_MODEL_HEADER_NOT_SUPPORTED"},
        )
    return Invocation(
        endpoint=endpoint,
        body=body,
        variant=request.headers.get("X-Amzn-SageMaker-Target-Variant"),
        component=request.headers.get("X-Amzn-SageMaker-Inference-Component"),
    )


def problems(operation: str, endpoint: str, headers: Mapping[str, str]) -> Iterator[str]:
    """Each constraint that the endpoint's name or a header breaks, in AWS's words."""
    shape_of_input = service_model("sagemaker-runtime").operation_model(operation).input_shape
    assert isinstance(shape_of_input, StructureShape), operation
    for member, shape in shape_of_input.members.items():
        where = shape.serialization
        value = {"uri": endpoint, "header": headers.get(where.get("name", ""))}.get(where.get("location", ""))
        if value is not None:
            yield from problems_of(shape, value, member)


def body_problem(limit: int) -> str:
    """Return AWS's words for a longer body; the model marks it as sensitive, so its value is not repeated."""
    return (
        f"Value at 'body' failed to satisfy constraint: Member must have length less than or equal to {limit}"
    )


async def read_at_most(request: web.Request, limit: int) -> bytes | None:
    """Read the body; None when it is longer than the limit (the rest is read and dropped)."""
    kept = bytearray()
    async for chunk in request.content.iter_any():
        if len(kept) <= limit:
            kept += chunk
    return bytes(kept) if len(kept) <= limit else None
