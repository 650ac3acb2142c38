"""The query protocol: a form becomes parameters, an answer XML (both by moto), in pages."""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

from sagemaker_local.cloudformation.errors import invalid
from sagemaker_local.control.errors import ApiError
from sagemaker_local.control.requests import checked_by
from sagemaker_local.wire import unserved

T = TypeVar("T")

_ROWS = 100


def page(rows: Sequence[T], token: str | None, size: int = _ROWS) -> tuple[list[T], str | None]:
    """Return the page of a token, and the next page's token.

    Raises:
        ApiError: the token is none of ours.
    """
    start = 0 if token is None else _start(token)
    end = start + size
    following = base64.urlsafe_b64encode(f"from {end}".encode()).decode() if end < len(rows) else None
    return list(rows[start:end]), following


def _start(token: str) -> int:
    try:
        return int(base64.urlsafe_b64decode(token).decode().removeprefix("from "))
    except (ValueError, binascii.Error) as error:
        raise invalid("NextToken is invalid") from error


# What XML 1.0 cannot carry, such as a terminal's colours in a Lambda's error.
_NOT_IN_XML = re.compile(r"[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def operation_of(form: Mapping[str, str]) -> Any:
    """Find the model of the operation that a form asks for.

    Raises:
        ApiError: there is none of that name.
    """
    from moto.core.utils import get_service_model

    action, model = form.get("Action", ""), get_service_model("cloudformation")
    if action not in model.operation_names:
        raise ApiError("InvalidAction", f"Could not find operation {action} for version 2010-05-15")
    return model.operation_model(action)


def parameters_of(operation: Any, form: Mapping[str, str]) -> dict[str, Any]:
    """Read an operation's parameters.

    Raises:
        ApiError: one is missing or breaks the model's constraints.
    """
    from moto.core.parse import QueryParser

    try:
        parameters = QueryParser(operation).parse({"values": form})
    except ValueError as error:
        raise ApiError("MalformedInput", str(error)) from error
    try:
        return checked_by(operation.input_shape, parameters) if operation.input_shape else {}
    except ApiError as error:
        raise invalid(error.message) from error


def answer(operation: Any, result: Mapping[str, Any]) -> bytes:
    """Write an answer as XML."""
    from moto.core.serialize import QuerySerializer

    text = QuerySerializer(operation).serialize(result)["body"]
    return _NOT_IN_XML.sub("\ufffd", text).encode()


def refusal(error: ApiError) -> bytes:
    """Write an error as XML."""
    message = _NOT_IN_XML.sub("\ufffd", error.message)
    return unserved.query_error(error.code, message, error.status).encode()
