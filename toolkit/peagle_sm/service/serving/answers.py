"""OpenAI's errors out of SageMaker's. Pure.

The shape is that of OpenAI's API: ``{"error": {"message", "type", "param", "code"}}``.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from peagle_sm.aws.session.wire import json_object
from peagle_sm.aws.streams.figures import engine_error
from peagle_sm.core.errors import CredentialsError, PeagleError, StreamError

#: Seconds that a client is told to wait; AWS names none. Throttling passes, a scale-from-zero takes long.
THROTTLED_S = 1
STARTING_S = 30

_THROTTLED = ("throttl", "toomanyrequests", "requestlimitexceeded", "modelnotready")
_CREDENTIALS = (
    "AccessDenied",
    "Expired",
    "IncompleteSignature",
    "InvalidClientTokenId",
    "InvalidSignature",
    "MissingAuthentication",
    "SignatureDoesNotMatch",
    "UnrecognizedClient",
)


@dataclass(frozen=True)
class Problem:
    """One error answer: HTTP status, OpenAI's fields, and whether to wait before another try."""

    status: int
    message: str
    type: str
    code: str | None = None
    param: str | None = None
    retry_after_s: int | None = None
    headers: Mapping[str, str] = field(default_factory=dict)

    def body(self) -> bytes:
        """Return the JSON of the answer."""
        told = {"message": self.message, "type": self.type, "param": self.param, "code": self.code}
        return json.dumps({"error": told}, ensure_ascii=False).encode()

    def event(self) -> bytes:
        """Return the server-sent event that ends a stream; clients of OpenAI raise it as an error."""
        return b"event: error\ndata: " + self.body() + b"\n\n"

    def all_headers(self) -> dict[str, str]:
        """Return the headers of the answer, Retry-After among them where it is worth a wait."""
        told = dict(self.headers)
        if self.retry_after_s is not None:
            told["Retry-After"] = str(self.retry_after_s)
        return told


def invalid(message: str, status: int = 400, code: str | None = None) -> Problem:
    """A request that is not sent on."""
    return Problem(status, message, "invalid_request_error", code)


def unavailable(message: str, status: int = 502, code: str = "endpoint_unreachable") -> Problem:
    """No answer came from SageMaker."""
    return Problem(status, message, "server_error", code)


def of_stream(error: StreamError) -> Problem:
    """What ends a stream that had begun: the engine's own error, or the way in which the stream broke."""
    reported = error.details.get("engine_error")
    if isinstance(reported, Mapping):
        return of_document(reported)
    return Problem(
        502,
        f"{error.message.rstrip('.')}. The text so far is not the whole answer.",
        "server_error",
        "stream_broken",
    )


def of_document(fields: Mapping[str, Any], status: int | None = None) -> Problem:
    """An error that the engine wrote as JSON; its own ``code`` is the status where none is given."""
    code = fields.get("code")
    if status is None:
        status = code if type(code) is int and 400 <= code <= 599 else 502
    kind = "invalid_request_error" if status < 500 else "server_error"
    return Problem(
        status,
        str(fields.get("message") or json.dumps(dict(fields), ensure_ascii=False)),
        str(fields.get("type") or kind),
        _text(code) or "model_error",
        _text(fields.get("param")),
    )


def gave_up(reason: str) -> Problem:
    """An answer that the engine ended before its end; ``reason`` is its finish_reason."""
    return Problem(
        502, f"The engine gave the answer up: finish_reason {reason!r}.", "server_error", "model_error"
    )


def of_error(error: PeagleError) -> Problem:
    """An error of this side: mostly credentials that cannot be had."""
    message = f"{error.message} {error.next_step or ''}".rstrip()
    if isinstance(error, CredentialsError):
        return Problem(403, message, "permission_error", "aws_credentials")
    return Problem(502, message, "server_error", "proxy_error")


def of_aws(status: int, headers: Mapping[str, str], content: bytes) -> Problem:
    """What SageMaker Runtime's error answer means to a client of OpenAI's API.

    An error of the engine comes with the engine's own status and words. A throttle is 429, an endpoint that
    does not exist is 404, a component without a copy is 503; both waits carry Retry-After.
    """
    told = json_object(content)
    name = headers.get("x-amzn-ErrorType", "") or str(told.get("__type") or told.get("code") or "")
    name = name.split(":")[0].rpartition("#")[2]
    said = str(told.get("Message") or told.get("message") or "") or f"SageMaker answers {status} {name}"
    passed = {"x-amzn-RequestId": headers["x-amzn-RequestId"]} if "x-amzn-RequestId" in headers else {}
    if name == "ModelError" or "OriginalStatusCode" in told:
        return _of_engine(told, said, passed)
    lowered = said.lower()
    if any(word in name.lower() for word in _THROTTLED) or status == 429:
        return Problem(429, said, "rate_limit_error", name, None, THROTTLED_S, passed)
    if name.startswith(_CREDENTIALS):
        return Problem(403, said, "permission_error", name, None, None, passed)
    if "has no capacity" in lowered:
        return Problem(503, said, "server_error", "no_capacity", None, STARTING_S, passed)
    if "not found" in lowered or "could not find" in lowered:
        return Problem(404, said, "invalid_request_error", "endpoint_not_found", None, None, passed)
    if status >= 500:
        return Problem(status if status < 512 else 502, said, "server_error", name, None, None, passed)
    return Problem(status, said, "invalid_request_error", name or None, None, None, passed)


def _of_engine(told: Mapping[str, Any], said: str, passed: Mapping[str, str]) -> Problem:
    status = told.get("OriginalStatusCode")
    original = str(told.get("OriginalMessage") or "")
    if not isinstance(status, int) or not 400 <= status <= 599:  # 0: the container did not answer in time
        return Problem(504, original or said, "server_error", "engine_timeout", headers=passed)
    document = json_object(original.encode())
    fields = engine_error(document) or document or {"message": original or said}
    return replace(of_document(fields, status), headers=passed)


def _text(value: object) -> str | None:
    return None if value is None else str(value)
