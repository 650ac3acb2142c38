"""The query protocol by botocore's own model: a form becomes parameters, an answer XML, in pages."""

from __future__ import annotations

import base64
import binascii
import re
import uuid
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from functools import cache
from typing import Any, TypeVar
from xml.sax.saxutils import escape

from botocore.loaders import Loader
from botocore.model import OperationModel, ServiceModel, Shape, StructureShape

from sagemaker_local.cloudformation.errors import CloudFormationError, invalid

T = TypeVar("T")

_ROWS = 100


def page(rows: Sequence[T], token: str | None, size: int = _ROWS) -> tuple[list[T], str | None]:
    """Return the page of a token, and the next page's token.

    Raises:
        CloudFormationError: the token is none of ours.
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


_NAMESPACE = "http://cloudformation.amazonaws.com/doc/2010-05-15/"
_HEAD = '<?xml version="1.0" encoding="UTF-8"?>\n'
# What XML 1.0 cannot carry, such as a terminal's colours in a Lambda's error.
_NOT_IN_XML = re.compile(r"[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


@cache
def model() -> ServiceModel:
    """Load botocore's model of CloudFormation."""
    return ServiceModel(Loader().load_service_model("cloudformation", "service-2"), "cloudformation")


def operation_of(form: Mapping[str, str]) -> OperationModel:
    """Find the operation that a form asks for.

    Raises:
        CloudFormationError: there is none of that name.
    """
    action = form.get("Action", "")
    if action not in model().operation_names:
        raise CloudFormationError(
            "InvalidAction", f"Could not find operation {action} for version 2010-05-15"
        )
    return model().operation_model(action)


def parameters_of(operation: OperationModel, form: Mapping[str, str]) -> dict[str, Any]:
    """Read an operation's parameters.

    Raises:
        CloudFormationError: one is missing or breaks the model's constraints.
    """
    shape = operation.input_shape
    if shape is None:
        return {}
    parameters = dict(_read(shape, "", form) or {})
    wrong = list(_wrong(shape, parameters, ""))
    if wrong:
        count = f"{len(wrong)} validation error{'s' if len(wrong) > 1 else ''} detected"
        raise invalid(f"{count}: {'; '.join(wrong)}")
    return parameters


def _read(shape: Shape, prefix: str, form: Mapping[str, str]) -> Any:
    if isinstance(shape, StructureShape):
        dot = f"{prefix}." if prefix else ""
        pairs = ((name, _read(member, f"{dot}{name}", form)) for name, member in shape.members.items())
        members = {name: value for name, value in pairs if value is not None}
        return members or None
    if shape.type_name == "list":
        return _read_list(shape, prefix, form)
    text = form.get(prefix)
    if text is None:
        return None
    try:
        return _scalar(shape.type_name, text)
    except ValueError as error:
        raise CloudFormationError(
            "MalformedInput", f"{prefix} is not a {shape.type_name}: {text!r}"
        ) from error


def _read_list(shape: Any, prefix: str, form: Mapping[str, str]) -> list[Any] | None:
    items: list[Any] = []
    while True:
        item_path = f"{prefix}.member.{len(items) + 1}"
        if item_path not in form and not any(name.startswith(f"{item_path}.") for name in form):
            break
        items.append(_read(shape.member, item_path, form))
    # An empty list is sent as the bare name.
    return items if items or prefix in form else None


def _scalar(type_name: str, text: str) -> Any:
    match type_name:
        case "boolean":
            return {"true": True, "false": False}[text.lower()] if text.lower() in ("true", "false") else text
        case "integer" | "long":
            return int(text)
    return text


def _wrong(shape: Shape, value: Any, path: str) -> Any:
    """Return the violated constraints of the model, in AWS's wording."""
    if isinstance(shape, StructureShape):
        for name in shape.required_members:
            if name not in value:
                member_path = _path(path, name)
                yield f"Value null at '{member_path}' failed to satisfy constraint: Member must not be null"
        for name, item in value.items():
            yield from _wrong(shape.members[name], item, _path(path, name))
    elif shape.type_name == "list":
        for number, item in enumerate(value, 1):
            yield from _wrong(shape.member, item, f"{path}.{number}.member")  # type: ignore[attr-defined]
    elif shape.type_name == "string":
        broken = _broken_constraint(shape, value)
        if broken is not None:
            yield f"Value '{value}' at '{path}' failed to satisfy constraint: {broken}"


def _broken_constraint(shape: Shape, value: str) -> str | None:
    limits = shape.metadata
    if "enum" in limits and value not in limits["enum"]:
        return f"Member must satisfy enum value set: [{', '.join(limits['enum'])}]"
    if len(value) < limits.get("min", 0):
        return f"Member must have length greater than or equal to {limits['min']}"
    if "max" in limits and len(value) > limits["max"]:
        return f"Member must have length less than or equal to {limits['max']}"
    if "pattern" in limits and not re.fullmatch(limits["pattern"], value):
        return f"Member must satisfy regular expression pattern: {limits['pattern']}"
    return None


def _path(path: str, name: str) -> str:
    small = name[:1].lower() + name[1:]
    return f"{path}.{small}" if path else small


def answer(operation: OperationModel, result: Mapping[str, Any]) -> bytes:
    """Write an answer as XML."""
    shape = operation.output_shape
    inner = "" if shape is None else _write(shape, result)
    if shape is not None:
        wrapper = shape.serialization.get("resultWrapper", f"{operation.name}Result")
        inner = f"<{wrapper}>{inner}</{wrapper}>"
    tag = f"{operation.name}Response"
    return (
        f'{_HEAD}<{tag} xmlns="{_NAMESPACE}">{inner}'
        f"<ResponseMetadata><RequestId>{uuid.uuid4()}</RequestId></ResponseMetadata></{tag}>"
    ).encode()


def refusal(error: CloudFormationError) -> bytes:
    """Write an error as XML."""
    kind = "Sender" if error.status < 500 else "Receiver"
    return (
        f'{_HEAD}<ErrorResponse xmlns="{_NAMESPACE}"><Error><Type>{kind}</Type><Code>{error.code}</Code>'
        f"<Message>{_text(error.message)}</Message></Error><RequestId>{uuid.uuid4()}</RequestId></ErrorResponse>"
    ).encode()


def _write(shape: Any, value: Any) -> str:
    match shape.type_name:
        case "structure":
            return "".join(
                f"<{name}>{_write(member, value[name])}</{name}>"
                for name, member in shape.members.items()
                if value.get(name) is not None
            )
        case "list":
            return "".join(f"<member>{_write(shape.member, item)}</member>" for item in value)
        case "map":
            return "".join(
                f"<entry><key>{_text(key)}</key><value>{_write(shape.value, item)}</value></entry>"
                for key, item in value.items()
            )
        case "timestamp":
            return _moment(value)
        case "boolean":
            return "true" if value else "false"
    return _text(str(value))


def _moment(value: datetime) -> str:
    utc = value.astimezone(UTC)
    return f"{utc:%Y-%m-%dT%H:%M:%S}.{utc.microsecond // 1000:03d}Z"


def _text(value: str) -> str:
    return escape(_NOT_IN_XML.sub("\ufffd", value))
