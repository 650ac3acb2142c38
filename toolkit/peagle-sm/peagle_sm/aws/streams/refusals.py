"""Checks of request fields, and the mapping of refused invocations.

The engine silently ignores unknown fields, so fields are checked before a request is sent. A refusal by
SageMaker or the engine becomes an error with a next step.
"""

from __future__ import annotations

import json
import textwrap
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from difflib import get_close_matches
from functools import cache
from typing import Any

from peagle_sm.aws.control import sagemaker as control
from peagle_sm.aws.control.sagemaker import EndpointFacts, component_names, did_you_mean
from peagle_sm.aws.session.errors import from_client_error
from peagle_sm.aws.session.session import Session
from peagle_sm.core.engines import data_text
from peagle_sm.core.errors import NotFound, PeagleError, ServiceFault, SpecError, refused_by_engine
from peagle_sm.core.words import WHOLE_IN_JSON, cause_first

_CLOSE = 0.8
# vLLM 0.32: the fields of CompletionRequest and ChatCompletionRequest (entrypoints/openai/*/protocol.py).
_COMPLETION_FIELDS = """
add_special_tokens allowed_token_ids bad_words cache_salt ec_transfer_params echo frequency_penalty
ignore_eos include_stop_str_in_output kv_transfer_params length_penalty logit_bias logprob_token_ids
logprobs max_tokens min_p min_tokens mm_payload model n presence_penalty priority prompt
prompt_embeds prompt_logprobs repetition_detection repetition_penalty request_id response_format
return_mm_kwargs return_token_ids return_token_offsets return_tokens_as_token_ids
routed_experts_prompt_start seed session_id skip_special_tokens spaces_between_special_tokens stop
stop_token_ids stream stream_interval stream_options structured_outputs suffix temperature
thinking_token_budget top_k top_p truncate_prompt_tokens truncation_side use_beam_search user
vllm_xargs watermarking
"""
COMPLETION = frozenset(_COMPLETION_FIELDS.split())
_CHAT_FIELDS = """
add_generation_prompt add_special_tokens allowed_token_ids bad_words cache_salt chat_template
chat_template_kwargs continue_final_message documents ec_transfer_params echo frequency_penalty
ignore_eos include_reasoning include_stop_str_in_output kv_transfer_params length_penalty logit_bias
logprob_token_ids logprobs max_completion_tokens max_tokens media_io_kwargs messages min_p
min_tokens mm_payload mm_processor_kwargs model n parallel_tool_calls presence_penalty priority
prompt_logprobs reasoning_effort repetition_detection repetition_penalty request_id response_format
return_mm_kwargs return_prompt_text return_token_ids return_token_offsets return_tokens_as_token_ids
routed_experts_prompt_start seed session_id skip_special_tokens spaces_between_special_tokens stop
stop_token_ids stream stream_interval stream_options structured_outputs temperature
thinking_token_budget tool_choice tools top_k top_logprobs top_p truncate_prompt_tokens
truncation_side use_beam_search user vllm_xargs watermarking
"""
CHAT = frozenset(_CHAT_FIELDS.split())
# Fields of OpenAI's API that do not change the answer.
_OTHERS = frozenset(
    {"metadata", "prediction", "prompt_cache_key", "safety_identifier", "service_tier", "store"}
)


@cache
def ignored_fields() -> dict[str, dict[str, dict[str, Any]]]:
    """Return the gate's list of fields that vLLM ignores: for ``any`` request, and for a ``completion``."""
    lists: dict[str, dict[str, dict[str, Any]]] = json.loads(data_text("ignored_fields.json"))
    return lists


KNOWN = COMPLETION | CHAT | _OTHERS | ignored_fields()["any"].keys()


def refuse_ignored(document: Mapping[str, Any], where: str = "the request body") -> None:
    """Refuse a field that the engine ignores although it would change the answer.

    Raises:
        SpecError: the message names the field that the engine has instead.
    """
    fields = ignored_fields()["any"]
    if document.get("messages") is None:
        fields = {**fields, **ignored_fields()["completion"]}
    for name, entry in fields.items():
        value = document.get(name)
        if value is not None and value not in entry.get("harmless", ()):
            raise SpecError(
                f"{where}: the engine ignores {name!r}; use {entry['instead']}.",
                next_step=f"Replace {name}, or remove it. Nothing was sent.",
                details={"found": name, "instead": entry["instead"]},
            )


def check_fields(document: Mapping[str, Any]) -> None:
    """Refuse a misspelt or ignored field; pass other unknown fields to the engine.

    Raises:
        SpecError: the message suggests the correct field.
    """
    refuse_ignored(document)
    for name in document:
        if not isinstance(name, str):
            raise SpecError(
                f"the request body has a field {name!r} of type {type(name).__name__}; allowed: text.",
                next_step="Use text for field names.",
                details={"found": repr(name)},
            )
        if name in KNOWN:
            continue
        near = get_close_matches(name.lower(), sorted(KNOWN), n=1, cutoff=_CLOSE)
        if near:
            raise SpecError(
                f"the engine has no field {name!r} and would ignore it; did you mean {near[0]!r}?",
                next_step=f"Use {near[0]} instead. Nothing was sent.",
                details={"found": name, "near": near},
            )


def check_question(body: Any, prompt: Any, messages: Any) -> None:
    """Refuse a body, prompt or messages of a wrong type.

    Raises:
        SpecError: the message suggests the correct argument.
    """
    if body is not None and not isinstance(body, Mapping):
        step = "Give prompt='…', messages=[…] or body={…}."
        if isinstance(body, str):
            step = "Name the argument: prompt='…' for a text."
        elif isinstance(body, list | tuple):
            step = "Name the argument: messages=[…] for a chat."
        raise _wrong_type("body", body, "a mapping with prompt or messages", step)
    if prompt is not None and not isinstance(prompt, str | list | tuple):
        raise _wrong_type("prompt", prompt, "text, or a list of texts or token ids", "Give prompt='…'.")
    if messages is None:
        return
    form = "Write messages=[{'role': 'user', 'content': '…'}]; a text goes into prompt='…'."
    if isinstance(messages, str | bytes | Mapping):
        raise _wrong_type("messages", messages, "a list of mappings with role and content", form)
    for place, message in enumerate(messages):
        if not isinstance(message, Mapping):
            raise _wrong_type(f"messages[{place}]", message, "a mapping with role and content", form)


def _wrong_type(name: str, value: Any, allowed: str, next_step: str) -> SpecError:
    kind = type(value).__name__
    return SpecError(
        f"{name}: found {kind}; allowed: {allowed}.",
        next_step=next_step,
        details={"found": kind, "allowed": allowed},
    )


# The API reference does not document these errors; the messages are from users' reports
# (docs/explanation/local.md).
_REQUIRED = "inference component name header is required"
_NOT_ALLOWED = "inference component name header is not allowed"
_NO_CAPACITY = "inference component has no capacity"
_NO_COMPONENT = "inference component "
ON_ITS_WAY = ("Creating", "Updating", "SystemUpdating", "RollingBack")
"""Statuses that change without a further call."""


class ComponentRequired(ServiceFault):
    """The endpoint runs inference components and the request named none; nothing ran."""


@dataclass(frozen=True)
class Invocation:
    """An invocation: ``operation`` is AWS's call name, ``component`` may be None."""

    session: Session
    operation: str
    endpoint: str
    component: str | None


def refusal(error: Any, call: Invocation) -> PeagleError:
    """Map botocore's ClientError of an call."""
    mapped = from_client_error(error, call.operation)
    if error.response.get("Error", {}).get("Code") == "ModelError":
        return _of_the_engine(error, mapped, call)
    about_components = _of_components(error, mapped, call)
    if about_components is not None:
        return about_components
    if isinstance(mapped, NotFound):
        return _not_serving(mapped, call, request_id_of(error.response))
    return mapped


def request_id_of(answer: Mapping[str, Any]) -> str:
    """Return the request id of an answer or error; empty if there is none."""
    return str(answer.get("ResponseMetadata", {}).get("RequestId", ""))


def _of_the_engine(error: Any, mapped: PeagleError, call: Invocation) -> PeagleError:
    status = error.response.get("OriginalStatusCode")
    message = _engine_words(error.response.get("OriginalMessage") or mapped.message)
    details = {**mapped.details, "original_status_code": status, "original_message": message}
    if isinstance(status, int) and 400 <= status < 500:
        return refused_by_engine(status, message, mapped.details)
    return ServiceFault(
        f"{call.operation}: the engine failed ({status}): {message}",
        operation=call.operation,
        code="ModelError",
        request_id=request_id_of(error.response),
        next_step=f"Read the engine's log: `peagle-sm logs {call.endpoint}{call.session.command_flags()}`.",
        details=details,
    )


def _of_components(error: Any, mapped: PeagleError, call: Invocation) -> PeagleError | None:
    message = str(error.response.get("Error", {}).get("Message", "")).lower()
    if message.startswith(_NOT_ALLOWED):
        return SpecError(
            f"endpoint {call.endpoint!r} has no inference components: found component {call.component!r}; "
            "allowed: none.",
            next_step="Leave --component out (in Python: component=…).",
            details=mapped.details,
        )
    if message.startswith(_NO_COMPONENT) and isinstance(mapped, NotFound) and call.component is not None:
        return NotFound(
            f"endpoint {call.endpoint!r} has no inference component {call.component!r}; {_those_of(call)}.",
            next_step="Name one of its components with --component (in Python: component=…).",
            details=mapped.details,
        )
    facts: dict[str, Any] = {
        "operation": call.operation,
        "code": str(mapped.details.get("code", "")),
        "request_id": request_id_of(error.response),
        "details": mapped.details,
    }
    if message.startswith(_REQUIRED):
        return ComponentRequired(
            f"endpoint {call.endpoint!r} runs inference components, and the request names none.",
            next_step="Name one with --component (in Python: component=…).",
            **facts,
        )
    if message.startswith(_NO_CAPACITY):
        return ServiceFault(
            f"inference component {call.component!r} of endpoint {call.endpoint!r} has no copy that can "
            "answer: it is being created, or it was scaled to zero.",
            next_step="With autoscaling, this request has started an instance: send it again in a few "
            "minutes. Otherwise check it with "
            f"`peagle-sm status {call.endpoint}{call.session.command_flags()}`.",
            **facts,
        )
    return None


def _those_of(call: Invocation) -> str:
    names: tuple[str, ...] = ()
    with suppress(PeagleError):  # the error is useful without the list
        names = component_names(call.session, call.endpoint)
    return f"it has: {', '.join(names)}" if names else "its components could not be listed"


def _not_serving(absent: NotFound, call: Invocation, request_id: str) -> PeagleError:
    session, endpoint = call.session, call.endpoint
    # The data plane returns "not found" for an endpoint that is not InService: ask DescribeEndpoint.
    facts = None
    with suppress(PeagleError):
        facts = control.describe_endpoint(session, endpoint)
    if facts is None:
        return NotFound(
            f"endpoint {endpoint!r} does not exist in {session.region}." + did_you_mean(session, endpoint),
            next_step=f"Run `peagle-sm list{session.command_flags()}` to see the existing endpoints.",
            details=absent.details,
        )
    return ServiceFault(
        f"endpoint {endpoint!r} exists and did not take the request: its status is {facts.status}."
        + reason_block(facts),
        operation=call.operation,
        code=str(absent.details.get("code", "")),
        request_id=request_id,
        next_step=serving_step(session, endpoint, facts.status),
        details={**absent.details, "status": facts.status, "failure_reason": facts.failure_reason},
    )


def serving_step(session: Session, name: str, status: str) -> str:
    """Return the next step for an endpoint with this status."""
    flags = session.command_flags()
    if status == "InService":
        return f"Send the request again; `peagle-sm status {name}{flags}` shows the endpoint."
    if status in ON_ITS_WAY:
        return f"Wait until it is InService: `peagle-sm wait {name}{flags}`."
    if status == "Deleting":
        return f"Wait until it is gone: `peagle-sm wait {name} --deleted{flags}`. Then deploy it again."
    return (
        f"It will not become InService by itself. Read its log with `peagle-sm logs {name}{flags}`, "
        f"delete it with `peagle-sm delete {name}{flags}`, correct the spec, and deploy again."
    )


def reason_block(facts: EndpointFacts) -> str:
    """Return the failure reason as separate lines, its cause first, if there is one."""
    reason = cause_first(facts.failure_reason or "", WHOLE_IN_JSON)
    return "\nThe failure reason:\n" + textwrap.indent(reason, "  ") if reason else ""


def _engine_words(message: str) -> str:
    try:
        document = json.loads(message)
    except (ValueError, RecursionError):
        return message
    if isinstance(document, Mapping):
        error = document.get("error", document)
        return str(error.get("message", message)) if isinstance(error, Mapping) else str(error)
    return message
