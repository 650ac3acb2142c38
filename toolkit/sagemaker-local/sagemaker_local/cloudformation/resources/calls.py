"""Calls a service's API with a template's values, and words its errors as AWS does."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from botocore import xform_name
from botocore.exceptions import BotoCoreError, ClientError

from sagemaker_local.cloudformation.resources.base import Properties, ResourceContext, ResourceFailure


def send(
    ctx: ResourceContext,
    service: str,
    operation: str,
    parameters: Mapping[str, Any],
    *,
    only_known: bool = False,
) -> dict[str, Any]:
    """Call an operation (``CreateQueue``) with a template's values; those that are None are left out.

    Templates have numbers and booleans as text, policies as objects, and names that begin with a capital;
    each value is turned into what the operation's own model asks for. With ``only_known`` members that the
    operation does not have are left out too.
    """
    client = ctx.client(service)
    shape = client.meta.service_model.operation_model(operation).input_shape
    arguments = fitted(parameters, shape) if shape is not None else {}
    if only_known:
        arguments = {name: value for name, value in arguments.items() if name in shape.members}
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
    """Ignore an error of a service by its code, or (signs with blanks) by words of its message."""

    def __init__(self, *signs: str) -> None:
        self._signs = signs

    def __enter__(self) -> None:
        """Enter; nothing to do."""

    def __exit__(self, kind: object, error: BaseException | None, _: object) -> bool:
        """Suppress the error if it is one to ignore."""
        if not isinstance(error, ClientError):
            return False
        code, message = error.response["Error"].get("Code"), error.response["Error"].get("Message", "")
        return code in self._signs or any(" " in sign and sign in message for sign in self._signs)


def check_passed(ctx: ResourceContext, role: str, service: str) -> None:
    """Check that the stack's role may pass a role to a service (``lambda.amazonaws.com``).

    Raises:
        ResourceFailure: it may not. That the role exists and trusts the service is the service's to check.
    """
    if ctx.role_arn is None:
        return
    passed_to = {
        "ContextKeyName": "iam:PassedToService",
        "ContextKeyType": "string",
        "ContextKeyValues": [service],
    }
    simulated = ctx.client("iam").simulate_principal_policy(
        PolicySourceArn=ctx.role_arn,
        ActionNames=["iam:PassRole"],
        ResourceArns=[role],
        ContextEntries=[passed_to],
    )
    if simulated["EvaluationResults"][0]["EvalDecision"] != "allowed":
        raise ResourceFailure(
            f"User: {ctx.role_arn} is not authorized to perform: iam:PassRole on resource: {role} "
            "because no identity-based policy allows the iam:PassRole action"
        )


@contextmanager
def worded_as_aws_does(ctx: ResourceContext) -> Iterator[None]:
    """Turn a service's refusal into the reason that a stack's event gives for it."""
    try:
        yield
    except ClientError as error:
        refused = error.response["Error"]
        raise _failure(ctx, refused.get("Message", ""), refused.get("Code", "")) from error
    except (BotoCoreError, ValueError, KeyError, TypeError) as error:
        raise _failure(ctx, f"{type(error).__name__}: {error}", "InvalidRequest") from error


def _failure(ctx: ResourceContext, message: str, code: str) -> ResourceFailure:
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
