"""SageMaker's data plane: one answer, whole or streamed."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any

from peagle_sm.aws import control
from peagle_sm.aws.errors import aws_errors, from_client_error
from peagle_sm.aws.figures import Acceptance, Chunk, Completion, StreamSummary, summarise, text_of
from peagle_sm.aws.session import Session
from peagle_sm.aws.stream import TokenStream
from peagle_sm.core.errors import NotFound, PeagleError, ServiceFault, SpecError

__all__ = [
    "BODY_LIMIT_BYTES",
    "Acceptance",
    "Chunk",
    "Completion",
    "StreamSummary",
    "TokenStream",
    "invoke",
    "request_body",
    "stream",
]

BODY_LIMIT_BYTES = 6_291_456
"""The most bytes of a request body (the limit in botocore's model of InvokeEndpoint)."""


def request_body(
    body: Mapping[str, Any] | None,
    prompt: str | None,
    messages: Sequence[Mapping[str, Any]] | None,
    params: Mapping[str, Any],
    *,
    streamed: bool,
) -> bytes:
    """Make the JSON body of a request from exactly one of a whole body, a prompt, or chat messages.

    Raises:
        SpecError: none or several are given, it is not JSON, or it is larger than the limit.
    """
    given = [
        name
        for name, value in (("body", body), ("prompt", prompt), ("messages", messages))
        if value is not None
    ]
    if len(given) != 1:
        raise SpecError(
            f"found {' and '.join(given) or 'nothing'} to send; "
            "allowed: exactly one of prompt, messages, body.",
            next_step="prompt='…' completes a text, messages=[{'role': 'user', 'content': '…'}] chats.",
        )
    document: dict[str, Any] = dict(body or {})
    if prompt is not None:
        document["prompt"] = prompt
    if messages is not None:
        document["messages"] = [dict(message) for message in messages]
    document.update(params)
    document["stream"] = streamed
    if streamed:
        # Without usage there is no token count, and acceptance rides on the same last chunk.
        document["stream_options"] = {"include_usage": True, **(document.get("stream_options") or {})}
        if document.get("n", 1) != 1:
            raise SpecError(
                f"n: found {document['n']} for a stream; allowed: 1.",
                next_step="Leave n out, or ask for several answers without streaming.",
            )
    else:
        document.pop("stream_options", None)
    try:
        encoded = json.dumps(document, ensure_ascii=False).encode()
    except (TypeError, ValueError) as error:
        raise SpecError(
            f"the request body cannot be written as JSON: {error}",
            next_step="Use text, numbers, true/false, lists and mappings only.",
        ) from error
    _check_size(encoded)
    return encoded


def _check_size(body: bytes) -> None:
    if len(body) > BODY_LIMIT_BYTES:
        raise SpecError(
            f"the request body has {len(body):,} bytes; allowed: {BODY_LIMIT_BYTES:,} (SageMaker's limit).",
            next_step="Shorten the prompt; nothing was sent.",
            details={"bytes": len(body), "limit_bytes": BODY_LIMIT_BYTES},
        )


def invoke(
    session: Session, endpoint: str, body: bytes, monotonic: Callable[[], float] = time.monotonic
) -> Completion:
    """Send one request and return the whole answer.

    Raises:
        NotFound: there is no such endpoint.
        SpecError: the body is over the limit, or the engine refuses the request as wrong.
        ServiceFault: the engine failed, the endpoint is not in service, or no answer came.
    """
    _check_size(body)
    started = monotonic()
    answer = _send(session, "invoke_endpoint", endpoint, body)
    with aws_errors("InvokeEndpoint", session.local_url):
        content = answer["Body"].read()
    total_ms = (monotonic() - started) * 1000
    request_id = _request_id(answer)
    try:
        document = json.loads(content)
        choice = document["choices"][0]
        text, _ = text_of(choice)
    except (ValueError, LookupError, TypeError, AttributeError) as error:
        raise ServiceFault(
            f"InvokeEndpoint: the answer is not an OpenAI completion: {content[:200]!r}",
            operation="InvokeEndpoint",
            code="UnexpectedAnswer",
            request_id=request_id,
            next_step="Check that the endpoint runs a vLLM image, with `peagle-sm status`.",
        ) from error
    reason = choice.get("finish_reason")
    summary = summarise(document, finish_reason=reason, request_id=request_id, total_ms=total_ms)
    return Completion(text, reason, summary, document, request_id)


def stream(
    session: Session, endpoint: str, body: bytes, monotonic: Callable[[], float] = time.monotonic
) -> TokenStream:
    """Send one request and return its answer as it comes; errors as `invoke`, then `StreamError`."""
    _check_size(body)
    started = monotonic()
    answer = _send(session, "invoke_endpoint_with_response_stream", endpoint, body)
    events = answer["Body"]
    return TokenStream(
        _payload(events),
        request_id=_request_id(answer),
        started=started,
        monotonic=monotonic,
        close=getattr(events, "close", lambda: None),
    )


def _payload(events: Any) -> Iterator[bytes]:
    for event in events:
        part = event.get("PayloadPart")
        if part is not None:
            yield part.get("Bytes", b"")


def _send(session: Session, operation: str, endpoint: str, body: bytes) -> Mapping[str, Any]:
    from botocore.exceptions import ClientError

    client = session.client("sagemaker-runtime")
    streamed = operation.endswith("stream")
    name = "InvokeEndpointWithResponseStream" if streamed else "InvokeEndpoint"
    send = client.invoke_endpoint_with_response_stream if streamed else client.invoke_endpoint
    with aws_errors(name, session.local_url):
        try:
            answer: Mapping[str, Any] = send(EndpointName=endpoint, ContentType="application/json", Body=body)
        except ClientError as error:
            raise _invocation_error(error, name, endpoint, session) from error
    return answer


def _invocation_error(error: Any, operation: str, endpoint: str, session: Session) -> PeagleError:
    mapped = from_client_error(error, operation)
    if isinstance(mapped, NotFound):
        return _not_serving(mapped, operation, endpoint, session, _request_id(error.response))
    if error.response.get("Error", {}).get("Code") != "ModelError":
        return mapped
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
        f"{operation}: the engine failed ({status}): {said}",
        operation=operation,
        code="ModelError",
        request_id=_request_id(error.response),
        next_step=f"Read the engine's output: `peagle-sm logs {endpoint}{session.command_flags()}`.",
        details=details,
    )


def _not_serving(
    absent: NotFound, operation: str, endpoint: str, session: Session, request_id: str
) -> PeagleError:
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
        operation=operation,
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


def _request_id(answer: Mapping[str, Any]) -> str:
    return str(answer.get("ResponseMetadata", {}).get("RequestId", ""))
