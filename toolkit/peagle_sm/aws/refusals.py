"""What an invocation that SageMaker or the engine refuses means, and what to do next."""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from peagle_sm.aws import control
from peagle_sm.aws.components import component_names
from peagle_sm.aws.errors import from_client_error
from peagle_sm.aws.session import Session
from peagle_sm.core.errors import NotFound, PeagleError, ServiceFault, SpecError

# The API reference names no error for these; the words are those of users' reports (docs/local.md).
_REQUIRED = "inference component name header is required"
_NOT_ALLOWED = "inference component name header is not allowed"
_NO_CAPACITY = "inference component has no capacity"
_NO_COMPONENT = "inference component "


class ComponentRequired(ServiceFault):
    """The endpoint runs inference components, and the request named none; nothing was carried out."""


@dataclass(frozen=True)
class Asked:
    """An invocation: ``operation`` is AWS's name of the call, ``component`` the one that it named."""

    session: Session
    operation: str
    endpoint: str
    component: str | None


def refusal(error: Any, asked: Asked) -> PeagleError:
    """Map botocore's ClientError of an invocation."""
    mapped = from_client_error(error, asked.operation)
    if error.response.get("Error", {}).get("Code") == "ModelError":
        return _of_the_engine(error, mapped, asked)
    about_components = _of_components(error, mapped, asked)
    if about_components is not None:
        return about_components
    if isinstance(mapped, NotFound):
        return _not_serving(mapped, asked, request_id_of(error.response))
    return mapped


def request_id_of(answer: Mapping[str, Any]) -> str:
    """Return the request's id of an answer or an error's response; empty when there is none."""
    return str(answer.get("ResponseMetadata", {}).get("RequestId", ""))


def _of_the_engine(error: Any, mapped: PeagleError, asked: Asked) -> PeagleError:
    status = error.response.get("OriginalStatusCode")
    said = _engine_words(error.response.get("OriginalMessage") or mapped.message)
    details = {**mapped.details, "original_status_code": status, "original_message": said}
    if isinstance(status, int) and 400 <= status < 500:
        return SpecError(
            f"the engine refuses the request ({status}): {said}",
            next_step="Correct what the message names.",
            details=details,
        )
    return ServiceFault(
        f"{asked.operation}: the engine failed ({status}): {said}",
        operation=asked.operation,
        code="ModelError",
        request_id=request_id_of(error.response),
        next_step=f"Read the engine's output: `peagle-sm logs {asked.endpoint}"
        f"{asked.session.command_flags()}`.",
        details=details,
    )


def _of_components(error: Any, mapped: PeagleError, asked: Asked) -> PeagleError | None:
    said = str(error.response.get("Error", {}).get("Message", "")).lower()
    if said.startswith(_NOT_ALLOWED):
        return SpecError(
            f"endpoint {asked.endpoint!r} runs a model of its own: found component {asked.component!r}; "
            "allowed: none.",
            next_step="Leave --component out (in Python: component=…).",
            details=mapped.details,
        )
    if said.startswith(_NO_COMPONENT) and isinstance(mapped, NotFound) and asked.component is not None:
        return NotFound(
            f"endpoint {asked.endpoint!r} has no inference component {asked.component!r}; "
            f"{_those_of(asked)}.",
            next_step="Name one of its components with --component (in Python: component=…).",
            details=mapped.details,
        )
    facts: dict[str, Any] = {
        "operation": asked.operation,
        "code": str(mapped.details.get("code", "")),
        "request_id": request_id_of(error.response),
        "details": mapped.details,
    }
    if said.startswith(_REQUIRED):
        return ComponentRequired(
            f"endpoint {asked.endpoint!r} runs inference components; the request names none.",
            next_step="Name one with --component (in Python: component=…).",
            **facts,
        )
    if said.startswith(_NO_CAPACITY):
        return ServiceFault(
            f"inference component {asked.component!r} of endpoint {asked.endpoint!r} has no copy that could "
            "answer: it is being made, or was scaled to zero.",
            next_step="Where it scales by itself, this request has asked for an instance: send it again in a "
            "few minutes. Otherwise look with "
            f"`peagle-sm status {asked.endpoint}{asked.session.command_flags()}`.",
            **facts,
        )
    return None


def _those_of(asked: Asked) -> str:
    found: tuple[str, ...] = ()
    with suppress(PeagleError):  # the refusal is worth telling without the list
        found = component_names(asked.session, asked.endpoint)
    return f"it has: {', '.join(found)}" if found else "none of its components could be listed"


def _not_serving(absent: NotFound, asked: Asked, request_id: str) -> PeagleError:
    session, endpoint = asked.session, asked.endpoint
    # The data plane calls an endpoint "not found" until it is in service; only DescribeEndpoint knows better.
    facts = None
    with suppress(PeagleError):
        facts = control.describe_endpoint(session, endpoint)
    if facts is None:
        return NotFound(
            f"endpoint {endpoint!r}: there is none of that name in {session.region}.",
            next_step=f"Look what there is with `peagle-sm list{session.command_flags()}`.",
            details=absent.details,
        )
    reason = f" ({facts.failure_reason})" if facts.failure_reason else ""
    return ServiceFault(
        f"endpoint {endpoint!r} exists and did not take the request: its status is {facts.status}{reason}; "
        "it answers when InService.",
        operation=asked.operation,
        code=str(absent.details.get("code", "")),
        request_id=request_id,
        next_step=f"Look at it with `peagle-sm status {endpoint}{session.command_flags()}`"
        + (", and send the request again." if facts.status == "InService" else "."),
        details={**absent.details, "status": facts.status, "failure_reason": facts.failure_reason},
    )


def _engine_words(message: str) -> str:
    try:
        document = json.loads(message)
    except ValueError:
        return message
    if isinstance(document, Mapping):
        told = document.get("error", document)
        return str(told.get("message", message)) if isinstance(told, Mapping) else str(told)
    return message
