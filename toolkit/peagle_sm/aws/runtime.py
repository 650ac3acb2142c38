"""SageMaker's data plane: one answer, whole or streamed."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from peagle_sm.aws.errors import aws_errors
from peagle_sm.aws.figures import (
    Acceptance,
    Chunk,
    Completion,
    StreamSummary,
    acceptance_of,
    summarise,
)
from peagle_sm.aws.parts import TokenLogprob, ToolCall, ToolCallPart, ToolCalls, Usage, said_in, usage_of
from peagle_sm.aws.patience import Patience
from peagle_sm.aws.refusals import Asked, refusal, request_id_of
from peagle_sm.aws.session import Session
from peagle_sm.aws.sources import Source, source_of
from peagle_sm.aws.stream import TokenStream
from peagle_sm.core.errors import ServiceFault, SpecError

__all__ = [
    "BODY_LIMIT_BYTES",
    "Acceptance",
    "Chunk",
    "Completion",
    "StreamSummary",
    "TokenLogprob",
    "TokenStream",
    "ToolCall",
    "ToolCallPart",
    "Usage",
    "check_size",
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
    check_size(encoded)
    return encoded


def check_size(body: bytes) -> None:
    """Refuse a body that SageMaker would refuse.

    Raises:
        SpecError: it is over the limit.
    """
    if len(body) > BODY_LIMIT_BYTES:
        raise SpecError(
            f"the request body has {len(body):,} bytes; allowed: {BODY_LIMIT_BYTES:,} (SageMaker's limit).",
            next_step="Shorten the prompt; nothing was sent.",
            details={"bytes": len(body), "limit_bytes": BODY_LIMIT_BYTES},
        )


def invoke(
    session: Session,
    endpoint: str,
    body: bytes,
    monotonic: Callable[[], float] = time.monotonic,
    *,
    component: str | None = None,
) -> Completion:
    """Send one request and return the whole answer; ``component`` names the inference component to ask.

    Raises:
        ComponentRequired: the endpoint runs inference components, and none was named.
        NotFound: there is no such endpoint.
        SpecError: the body is over the limit, the engine refuses the request as wrong, or a component was
            named for an endpoint that runs a model.
        ServiceFault: the engine failed, endpoint or component is not in service, or no answer came.
    """
    check_size(body)
    started = monotonic()
    answer = _send(session, "invoke_endpoint", endpoint, body, component)
    with aws_errors("InvokeEndpoint", session.local_url):
        content = answer["Body"].read()
    total_ms = (monotonic() - started) * 1000
    request_id = request_id_of(answer)
    try:
        document = json.loads(content)
        choice = document["choices"][0]
        text, reasoning, calls, logprobs = said_in(choice)
        usage = usage_of(document["usage"]) if document.get("usage") else None
    except (ValueError, LookupError, TypeError, AttributeError) as error:
        raise ServiceFault(
            f"InvokeEndpoint: the answer is not an OpenAI completion: {content[:200]!r}",
            operation="InvokeEndpoint",
            code="UnexpectedAnswer",
            request_id=request_id,
            next_step="Check that the endpoint runs a vLLM image, with `peagle-sm status`.",
        ) from error
    reason = choice.get("finish_reason")
    summary = summarise(
        usage, acceptance_of(document), finish_reason=reason, request_id=request_id, total_ms=total_ms
    )
    joined = ToolCalls()
    for call in calls:
        joined.add(call)
    return Completion(text, reason, summary, document, request_id, reasoning, joined.all(), logprobs)


def stream(
    session: Session,
    endpoint: str,
    body: bytes,
    monotonic: Callable[[], float] = time.monotonic,
    *,
    component: str | None = None,
    patience: Patience | None = None,
) -> TokenStream:
    """Send one request and return its answer as it comes; errors as `invoke`, then `StreamError`.

    Raises:
        StreamStalled: not even the response's headers came in time.
    """
    check_size(body)
    started = monotonic()
    waiting = patience or Patience()
    source, request_id = stream_source(session, endpoint, body, component=component, patience=waiting)
    return TokenStream(source, request_id=request_id, started=started, monotonic=monotonic, patience=waiting)


def stream_source(
    session: Session,
    endpoint: str,
    body: bytes,
    *,
    component: str | None = None,
    patience: Patience | None = None,
) -> tuple[Source, str]:
    """Send one request and return the bytes of its stream, and the request's id; errors as `stream`.

    For what a `TokenStream` leaves out, such as token ids; `aws.events` reads them.
    """
    answer = _send(
        session, "invoke_endpoint_with_response_stream", endpoint, body, component, patience or Patience()
    )
    return source_of(answer["Body"]), request_id_of(answer)


def _send(
    session: Session,
    operation: str,
    endpoint: str,
    body: bytes,
    component: str | None,
    patience: Patience | None = None,
) -> Mapping[str, Any]:
    from botocore.exceptions import ClientError, ReadTimeoutError

    client = session.runtime_client(None if patience is None else patience.silence_s)
    streamed = operation.endswith("stream")
    name = "InvokeEndpointWithResponseStream" if streamed else "InvokeEndpoint"
    send = client.invoke_endpoint_with_response_stream if streamed else client.invoke_endpoint
    addressed = {"InferenceComponentName": component} if component is not None else {}
    with aws_errors(name, session.local_url):
        try:
            answer: Mapping[str, Any] = send(
                EndpointName=endpoint, ContentType="application/json", Body=body, **addressed
            )
        except ClientError as error:
            raise refusal(error, Asked(session, name, endpoint, component)) from error
        except ReadTimeoutError as error:
            if patience is None:
                raise
            raise patience.silent() from error
    return answer
