"""Requests to moto's services, checked against botocore's models: moto checks few constraints itself.

botocore's clients do not check patterns, enumerations or most maximums; AWS does.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any
from urllib.parse import unquote

from aiohttp import web
from botocore.model import OperationModel, Shape, StructureShape

from sagemaker_local.control.errors import ApiError
from sagemaker_local.control.requests import checked_by
from sagemaker_local.wire import awsjson, unserved

# The services whose calls a deploy makes and whose answers it believes, and their code for a bad request.
# CloudWatch Logs has no ValidationException for its older operations.
_CODES = {
    "scheduler": "ValidationException",
    "application-autoscaling": "ValidationException",
    "logs": "InvalidParameterException",
}


async def refusal(request: web.Request, caller: awsjson.Caller | None) -> web.Response | None:
    """Return AWS's refusal of a request that breaks its operation's model; None where it does not."""
    if caller is None or caller.service not in _CODES:
        return None
    body = await request.read()
    operation = unserved.operation_model(request, body)
    shape = None if operation is None else operation.input_shape
    if operation is None or not isinstance(shape, StructureShape):
        return None  # moto, or unserved, says so
    try:
        checked_by(shape, _parameters(operation, shape, request, body))
    except ApiError as error:
        code = _CODES[caller.service] if error.code == "ValidationException" else error.code
        if "X-Amz-Target" in request.headers:
            return awsjson.error(code, error.message)
        return awsjson.runtime_error(code, error.message)
    return None


def _parameters(
    operation: OperationModel, shape: StructureShape, request: web.Request, body: bytes
) -> dict[str, Any]:
    try:
        members = json.loads(body or b"{}")
    except ValueError:
        raise ApiError("SerializationException", "The request body is not JSON.") from None
    if not isinstance(members, dict):
        raise ApiError("SerializationException", "The request body is not a JSON object.")
    return {**members, **dict(_located(operation, shape, request))}


def _located(
    operation: OperationModel, shape: StructureShape, request: web.Request
) -> Iterator[tuple[str, Any]]:
    """Yield the members that are in the path and in the query."""
    in_path = _path_members(operation, request)
    for member, member_shape in shape.members.items():
        place, name = (
            member_shape.serialization.get("location"),
            member_shape.serialization.get("name", member),
        )
        if place == "uri" and name in in_path:
            yield member, in_path[name]
        elif place == "querystring" and name in request.query:
            yield member, _scalar(member_shape, request.query[name], name)


def _path_members(operation: OperationModel, request: web.Request) -> Mapping[str, str]:
    template = operation.http["requestUri"].partition("?")[0]
    pattern = re.sub(r"\\\{(\w+)\\\}", r"(?P<\1>[^/]+)", re.escape(template))
    match = re.fullmatch(pattern + "/?", request.raw_path.partition("?")[0])
    return {} if match is None else {name: unquote(text) for name, text in match.groupdict().items()}


def _scalar(shape: Shape, text: str, name: str) -> Any:
    if shape.type_name in ("integer", "long"):
        try:
            return int(text)
        except ValueError:
            raise ApiError("SerializationException", f"Expected {shape.type_name} at '{name}'.") from None
    return text
