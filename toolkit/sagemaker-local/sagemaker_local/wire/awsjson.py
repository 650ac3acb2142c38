"""Replies and errors in the two shapes that SageMaker's APIs use, and the caller of a signed request."""

from __future__ import annotations

import json
import uuid
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from aiohttp import web

JSON_1_1 = "application/x-amz-json-1.1"


@dataclass(frozen=True)
class Caller:
    """Who signed a request, read from its credential scope (signatures are not verified)."""

    access_key: str
    region: str
    service: str


def caller_of(request: web.Request) -> Caller | None:
    """Read the credential scope of a Signature Version 4 request; None when it is not signed."""
    authorization = request.headers.get("Authorization", "")
    if authorization.startswith("AWS4-"):
        _, _, rest = authorization.partition("Credential=")
        credential = rest.split(",")[0].strip()
    else:
        credential = request.query.get("X-Amz-Credential", "")
    parts = credential.split("/")
    if len(parts) < 5:
        return None
    return Caller(access_key="/".join(parts[:-4]), region=parts[-3], service=parts[-2])


def _plain(value: object) -> object:
    if isinstance(value, datetime):
        return value.timestamp()
    raise TypeError(f"cannot send a {type(value).__name__} as JSON")


def dumps(body: object) -> bytes:
    """Serialise a reply; times become epoch seconds, as the JSON 1.1 protocol has them."""
    return json.dumps(body, default=_plain).encode()


def _headers(content_type: str, **more: str) -> dict[str, str]:
    return {"Content-Type": content_type, "x-amzn-RequestId": str(uuid.uuid4()), **more}


def reply(body: dict[str, Any]) -> web.Response:
    """Answer a control-plane call."""
    return web.Response(body=dumps(body), headers=_headers(JSON_1_1))


def error(code: str, message: str, status: int = 400) -> web.Response:
    """Answer a control-plane call with an error (AWS JSON 1.1)."""
    body = {"__type": code, "message": message}
    return web.Response(
        status=status, body=dumps(body), headers=_headers(JSON_1_1, **{"x-amzn-ErrorType": code})
    )


def runtime_error(code: str, message: str | None, status: int = 400, **members: Any) -> web.Response:
    """Answer a data-plane call with an error (REST JSON: the code is in a header, members in the body)."""
    headers = _headers("application/json", **{"x-amzn-ErrorType": code})
    return web.Response(status=status, body=dumps({"Message": message, **members}), headers=headers)


def unsigned_error(code: str, message: str) -> web.Response:
    """Refuse a data-plane call for its signature, in the format of AWS's front end."""
    kind = f"{code}:http://internal.amazon.com/coral/com.amazon.coral.service/"
    return web.Response(
        status=403,
        body=dumps({"message": message}),
        headers=_headers("application/json", **{"x-amzn-ErrorType": kind}),
    )
