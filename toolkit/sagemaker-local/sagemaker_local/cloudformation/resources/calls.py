"""Calls a service's API with a template's values, and words its errors as AWS does."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from botocore import xform_name
from botocore.exceptions import BotoCoreError, ClientError

from sagemaker_local.cloudformation.resources.base import Properties, ResourceContext, ResourceFailure


def send(ctx: ResourceContext, service: str, operation: str, parameters: Mapping[str, Any]) -> dict[str, Any]:
    """Call an operation (``CreateQueue``) with a template's values; those that are None are left out.

    Templates have numbers and booleans as text, policies as objects, and names that begin with a capital;
    each value is turned into what the operation's own model asks for.
    """
    client = ctx.client(service)
    shape = client.meta.service_model.operation_model(operation).input_shape
    arguments = fitted(parameters, shape) if shape is not None else {}
    return dict(getattr(client, xform_name(operation))(**arguments))


def fitted(value: Any, shape: Any) -> Any:
    """Turn a template's value into what a shape of botocore's model takes."""
    match shape.type_name:
        case "structure" if isinstance(value, Mapping):
            members = ((_member(name, shape), item) for name, item in value.items() if item is not None)
            return {
                name: fitted(item, shape.members[name]) if name in shape.members else item
                for name, item in members
            }
        case "map" if isinstance(value, Mapping):
            return {str(key): fitted(item, shape.value) for key, item in value.items()}
        case "list" if isinstance(value, list):
            return [fitted(item, shape.member) for item in value]
        case "integer" | "long":
            return int(value) if isinstance(value, str) or value == int(value) else value
        case "float" | "double":
            return float(value)
        case "boolean":
            return value.lower() == "true" if isinstance(value, str) else value
        case "string":
            return _text(value)
    return value


def _member(name: str, shape: Any) -> str:
    """Find a member whatever the case of its first letter: the Logs and ECR APIs have small ones."""
    small = name[:1].lower() + name[1:]
    return small if name not in shape.members and small in shape.members else name


def _text(value: Any) -> Any:
    if isinstance(value, Mapping | list):
        return json.dumps(value)
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value) if isinstance(value, int | float) else value


def refuse_others(properties: Properties, known: Iterable[str], type_name: str) -> None:
    """Refuse properties that a handler would ignore."""
    others = sorted(properties.keys() - set(known))
    if others:
        raise ResourceFailure(
            f"the local CloudFormation does not set {', '.join(others)} of {type_name}; "
            f"it sets {', '.join(sorted(known))}"
        )


class gone_is_fine:
    """Ignore a service's not-found errors, by code or by words of the message."""

    def __init__(self, *codes: str, saying: str | None = None) -> None:
        """Set error codes to ignore, with words of the message where a code is ambiguous."""
        self._codes = codes
        self._saying = saying

    def __enter__(self) -> None:
        """Enter; nothing to do."""

    def __exit__(self, kind: object, error: BaseException | None, _: object) -> bool:
        """Suppress the error if it is one to ignore."""
        if not isinstance(error, ClientError):
            return False
        told = error.response["Error"]
        return told.get("Code") in self._codes or (
            self._saying is not None and self._saying in told.get("Message", "")
        )


@contextmanager
def told_as_aws_does(ctx: ResourceContext) -> Iterator[None]:
    """Turn a service's refusal into the reason that a stack's event gives for it."""
    try:
        yield
    except ClientError as error:
        told = error.response["Error"]
        raise handler_failure(ctx, f"{told.get('Message', '')}", told.get("Code", "")) from error
    except (BotoCoreError, ValueError, KeyError, TypeError) as error:
        raise handler_failure(ctx, f"{type(error).__name__}: {error}", "InvalidRequest") from error


def handler_failure(ctx: ResourceContext, message: str, code: str) -> ResourceFailure:
    """Return a failure with the message format of CloudFormation's resource handlers."""
    return ResourceFailure(
        f'Resource handler returned message: "{message}" '
        f"(RequestToken: {ctx.request_id}, HandlerErrorCode: {_handler_code(code)}, ServiceErrorCode: {code})"
    )


def _handler_code(code: str) -> str:
    words = code.lower()
    if "exist" in words and "not" not in words and "nosuch" not in words:
        return "AlreadyExists"
    if "notfound" in words or "nosuch" in words or "nonexistent" in words:
        return "NotFound"
    if "denied" in words:
        return "AccessDenied"
    if "throttl" in words or "toomany" in words or "limitexceeded" in words:
        return "Throttling"
    return "InvalidRequest" if "valid" in words else "GeneralServiceException"


def merged_tags(ctx: ResourceContext, properties: Properties) -> dict[str, str]:
    """Return a resource's tags: the stack's, and over them its own (a list of Key and Value, or a map)."""
    own = properties.get("Tags") or {}
    pairs = own if isinstance(own, Mapping) else {tag["Key"]: tag["Value"] for tag in own}
    return {**ctx.tags, **{str(key): _text(value) for key, value in pairs.items()}}


def tag_list(tags: Mapping[str, str], key: str = "Key", value: str = "Value") -> list[dict[str, str]]:
    """Return tags in the form of most APIs."""
    return [{key: name, value: text} for name, text in tags.items()]


def retag(
    ctx: ResourceContext,
    service: str,
    resource: Mapping[str, Any],
    old: Properties,
    new: Properties,
    *,
    tag: str = "TagResource",
    untag: str = "UntagResource",
    keys: str = "TagKeys",
    tags: str = "Tags",
    form: Callable[[Mapping[str, str]], Any] = tag_list,
) -> None:
    """Set a resource's tags to the template's: ``resource`` are the members that name it.

    ``keys`` is the member of the operation ``untag``, ``tags`` that of ``tag``, which takes them in ``form``.
    """
    wanted = merged_tags(ctx, new)
    dropped = sorted(merged_tags(ctx, old).keys() - wanted.keys())
    if dropped:
        send(ctx, service, untag, {**resource, keys: dropped})
    if wanted:
        send(ctx, service, tag, {**resource, tags: form(wanted)})
