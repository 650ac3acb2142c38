"""AWS-shaped errors for requests that moto cannot answer.

moto raises for an operation that it lacks and has no route for others; a bare HTTP 500 or a page of HTML
tells a client nothing, and botocore repeats a 500.
"""

from __future__ import annotations

import json
import re
import uuid
from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any
from urllib.parse import parse_qs
from xml.sax.saxutils import escape

from aiohttp import web

from sagemaker_local.wire import awsjson

_LACKING = re.compile(r"implemented|not support")
_MOTOS_OWN_WORDS = re.compile(r"The \S* ?action has not been implemented")
_PLACEHOLDER = re.compile(r"\\\{[^}]*?(\\\+)?\\\}")
_CBOR = "rpc-v2-cbor"
# Nobody signs these but browsers and presigned links; moto takes them for S3's.
_UNSIGNED = "s3"


class Unserved(Exception):
    """moto does not have the service of a request, or would answer the operation without AWS's checks."""


def is_lacking(error: Exception) -> bool:
    """Whether moto raised this for an operation, or a part of one, that it does not have, and not by mistake.

    It raises a RuntimeError for what it leaves out, and says so in words.
    """
    return isinstance(error, Unserved) or (
        isinstance(error, RuntimeError) and _LACKING.search(str(error)) is not None
    )


def is_unserved(request: web.Request, status: int, content_type: str, payload: bytes) -> bool:
    """Whether moto's answer is the web server's own 404, not a service's."""
    if status != 404 or request.method == "HEAD" or _service(request) == "s3":
        return False
    return content_type.startswith("text/html") or payload in (b"", b"Not Found")


def not_implemented(request: web.Request, body: bytes, words: str = "") -> web.Response:
    """Refuse an operation that moto lacks, or a part of one; ``words`` are moto's about it."""
    why = "" if not words or _MOTOS_OWN_WORDS.fullmatch(words) else f": {words}"
    message = f"{_operation(request, body)} is not implemented by the local SageMaker{why}"
    return _error(request, "UnknownOperationException", message, 400)


def broken(request: web.Request, body: bytes, error: Exception) -> web.Response:
    """Return the error for an exception in moto."""
    message = (
        f"{_operation(request, body)} failed in moto, which emulates it locally: "
        f"{type(error).__name__}: {error}"
    )
    return _error(request, "InternalFailure", message, 500)


def operation_model(request: web.Request, body: bytes) -> Any:
    """Return botocore's model of the operation that a request asks for; None if it has none."""
    model = _model(_service(request))
    name = _operation(request, body).partition(" ")[2]
    return model.operation_model(name) if model is not None and name in model.operation_names else None


def _service(request: web.Request) -> str:
    caller = awsjson.caller_of(request)
    return caller.service if caller is not None else _UNSIGNED


def _operation(request: web.Request, body: bytes) -> str:
    service = _service(request)
    name = (
        request.headers.get("X-Amz-Target", "").rpartition(".")[2]
        or _action(request, body)
        or _by_cbor_path(request)
        or _by_route(service, request)
        or f"{request.method} {request.path}"
    )
    return f"{service} {name}"


def _action(request: web.Request, body: bytes) -> str:
    if "Action" in request.query:
        return request.query["Action"]
    if request.content_type != "application/x-www-form-urlencoded":
        return ""
    return parse_qs(body.decode(errors="replace")).get("Action", [""])[0]


def _by_cbor_path(request: web.Request) -> str:
    return request.path.rpartition("/operation/")[2] if _CBOR in _protocol_header(request) else ""


def _protocol_header(request: web.Request) -> str:
    return request.headers.get("smithy-protocol", "")


def _by_route(service: str, request: web.Request) -> str:
    """Return the operation whose route fits best: the most of its query, then the longest path."""
    fitting = [
        (len(query), len(pattern.pattern), name)
        for name, method, pattern, query in _routes(service)
        if method == request.method and query <= request.query.keys() and pattern.fullmatch(request.path)
    ]
    return max(fitting)[2] if fitting else ""


@cache
def _model(service: str) -> Any:
    """Return botocore's model of a service, None if it lacks the name in the signature."""
    from botocore.exceptions import UnknownServiceError
    from botocore.session import get_session

    try:
        return get_session().get_service_model(service)
    except UnknownServiceError:
        return None


@cache
def _routes(service: str) -> tuple[tuple[str, str, re.Pattern[str], frozenset[str]], ...]:
    return tuple(_read_routes(service))


def _read_routes(service: str) -> Iterator[tuple[str, str, re.Pattern[str], frozenset[str]]]:
    model = _model(service)
    for name in model.operation_names if model is not None else ():
        http: Mapping[str, str] = model.operation_model(name).http
        path, _, query = http["requestUri"].partition("?")
        pattern = _PLACEHOLDER.sub(lambda found: ".+" if found[1] else "[^/]+", re.escape(path))
        keys = frozenset(parse_qs(query, keep_blank_values=True))
        yield name, http["method"], re.compile(pattern + "/?"), keys


def _error(request: web.Request, code: str, message: str, status: int) -> web.Response:
    service = _service(request)
    if _CBOR in _protocol_header(request):
        headers = {"smithy-protocol": _CBOR, "Content-Type": "application/cbor"}
        return web.Response(status=status, headers=headers, body=_cbor({"__type": code, "message": message}))
    if "X-Amz-Target" in request.headers:
        return awsjson.error(code, message, status)
    if request.content_type == "application/x-www-form-urlencoded" or "Action" in request.query:
        return _xml(code, message, status, service)
    model = _model(service)
    if model is not None and model.metadata["protocol"] == "rest-xml":
        return _xml(code, message, status, service)
    body = json.dumps({"__type": code, "message": message, "Message": message}).encode()
    headers = {"x-amzn-ErrorType": code, "x-amzn-RequestId": str(uuid.uuid4())}
    return web.Response(status=status, body=body, headers=headers, content_type="application/json")


def s3_error(code: str, message: str, status: int) -> web.Response:
    """Return an error of S3."""
    return _xml(code, message, status, "s3")


def _xml(code: str, message: str, status: int, service: str) -> web.Response:
    details, request_id = f"<Code>{code}</Code><Message>{escape(message)}</Message>", str(uuid.uuid4())
    text = f"<Error>{details}<RequestId>{request_id}</RequestId></Error>"
    if service != "s3":
        text = query_error(code, message, status)
    return web.Response(status=status, text=text, content_type="text/xml")


def query_error(code: str, message: str, status: int) -> str:
    """Return the XML of an error in the query protocol."""
    kind = "Sender" if status < 500 else "Receiver"
    return (
        f"<ErrorResponse><Error><Type>{kind}</Type><Code>{code}</Code><Message>{escape(message)}</Message>"
        f"</Error><RequestId>{uuid.uuid4()}</RequestId></ErrorResponse>"
    )


def _cbor(members: Mapping[str, str]) -> bytes:
    """Write a map of fewer than 24 short texts (RFC 8949: major types 5 and 3)."""
    parts = [bytes([0xA0 | len(members)])]
    for text in (text for pair in members.items() for text in pair):
        raw = text.encode()
        parts += [b"\x79", len(raw).to_bytes(2), raw]
    return b"".join(parts)
