"""Calls of SageMaker's data plane: one answer, whole or streamed."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from peagle_sm.aws.session.errors import aws_errors
from peagle_sm.aws.session.session import Session
from peagle_sm.aws.streams.answers import (
    Acceptance,
    Choice,
    Chunk,
    Completion,
    StreamSummary,
    TokenLogprob,
    ToolCall,
    ToolCallPart,
    Usage,
    aborted_in,
    acceptance_of,
    choices_of,
    error_in,
    summarise,
    usage_of,
)
from peagle_sm.aws.streams.refusals import Invocation, check_fields, check_question, refusal, request_id_of
from peagle_sm.aws.streams.token_stream import (
    ByteSource,
    CallTooLong,
    Patience,
    TokenStream,
    call_within,
    source_of,
)
from peagle_sm.core.errors import ServiceFault, SpecError
from peagle_sm.core.words import encoded_utf8

__all__ = [
    "BODY_LIMIT_BYTES",
    "Acceptance",
    "Choice",
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
"""Maximum bytes of a request body (the limit in botocore's model of InvokeEndpoint)."""


def request_body(
    body: Mapping[str, Any] | None,
    prompt: str | None,
    messages: Sequence[Mapping[str, Any]] | None,
    params: Mapping[str, Any],
    *,
    streamed: bool,
) -> bytes:
    """Return the JSON body for exactly one of a body, a prompt, or chat messages.

    Raises:
        SpecError: none or several are given, one has a wrong type, a field is probably misspelt, the body
            cannot be written as JSON, or it is larger than the limit.
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
    check_question(body, prompt, messages)
    document: dict[str, Any] = dict(body or {})
    if prompt is not None:
        document["prompt"] = prompt
    if messages is not None:
        document["messages"] = [dict(message) for message in messages]
    document.update(params)
    check_fields(document)
    document["stream"] = streamed
    if streamed:
        # Without usage there is no token count; the acceptance metrics are in the same last chunk.
        document["stream_options"] = {"include_usage": True, **(document.get("stream_options") or {})}
        if answers_asked(document) != 1:
            prompts = _prompts_in(document)
            raise SpecError(
                f"a stream has one answer: found {prompts} prompt{'s'[: prompts > 1]} and "
                f"n={document.get('n') or 1}; allowed: one prompt and n=1.",
                next_step="Send one request for each answer, or request all of them without a stream: "
                "endpoint.invoke(...), or `peagle-sm invoke NAME --no-stream`.",
            )
    else:
        document.pop("stream_options", None)
    try:
        written = json.dumps(document, ensure_ascii=False)
    except (TypeError, ValueError, RecursionError) as error:
        raise SpecError(
            f"the request body cannot be written as JSON: {error}",
            next_step="Use text, numbers, true/false, lists and mappings only.",
        ) from error
    encoded = encoded_utf8(written, "the request body")
    check_size(encoded)
    return encoded


def answers_asked(document: Mapping[str, Any]) -> int:
    """Return how many answers (``choices``) a request has: its prompts times ``n``.

    Raises:
        SpecError: ``n`` is not an integer; the engine reads "2", 2.0 and true as numbers.
    """
    n = document.get("n")
    if n is not None and (type(n) is not int or n < 1):
        raise SpecError(
            f"n: found {n!r}; allowed: a whole number of at least 1.", next_step="Correct n, or leave it out."
        )
    return (n or 1) * _prompts_in(document)


def _prompts_in(document: Mapping[str, Any]) -> int:
    """Count prompts: a list of texts or token lists is several, of numbers one."""
    prompt = document.get("prompt")
    if not isinstance(prompt, list | tuple) or not all(
        isinstance(each, str | list | tuple) for each in prompt
    ):
        return 1
    return max(len(prompt), 1)


def check_size(body: bytes) -> None:
    """Refuse a body that is larger than SageMaker's limit.

    Raises:
        SpecError: the body is too large.
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
    """Send one request, to the inference component if named; return the whole answer.

    Raises:
        ComponentRequired: the endpoint runs inference components, and none was named.
        NotFound: the endpoint does not exist.
        SpecError: the body is too large, the engine refuses the request as invalid, or a component was named
            for an endpoint without components.
        ServiceFault: the engine failed, endpoint or component is not InService, or no answer came.
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
        failed = error_in(document) or aborted_in(document)
        if failed is not None:
            raise ServiceFault(
                f"InvokeEndpoint: the engine did not complete the answer: {failed[:500]}",
                operation="InvokeEndpoint",
                code="ModelError",
                request_id=request_id,
                next_step=f"Read the engine's log: `peagle-sm logs {endpoint}{session.command_flags()}`.",
                details={"document": document},
            )
        first, *others = choices_of(document)
        usage = usage_of(document["usage"]) if document.get("usage") else None
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError) as error:
        raise ServiceFault(
            f"InvokeEndpoint: the answer is not an OpenAI completion: {content[:200]!r}",
            operation="InvokeEndpoint",
            code="UnexpectedAnswer",
            request_id=request_id,
            next_step="Check with `peagle-sm status` that the endpoint runs a vLLM image.",
        ) from error
    summary = summarise(
        usage,
        acceptance_of(document),
        finish_reason=first.finish_reason,
        request_id=request_id,
        total_ms=total_ms,
    )
    return Completion(
        first.text,
        first.finish_reason,
        summary,
        document,
        request_id,
        first.reasoning,
        first.tool_calls,
        first.logprobs,
        tuple(others),
    )


def stream(
    session: Session,
    endpoint: str,
    body: bytes,
    monotonic: Callable[[], float] = time.monotonic,
    *,
    component: str | None = None,
    patience: Patience | None = None,
) -> TokenStream:
    """Send one request and stream the answer; errors as `invoke`, then `StreamError`.

    Raises:
        StreamStalled: the response's headers did not arrive within the timeout.
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
) -> tuple[ByteSource, str]:
    """Send one request; return its stream's bytes and its id; errors as `stream`.

    For content that a `TokenStream` leaves out, such as token ids; see `aws.streams.decoding`.
    """
    waiting = patience or Patience()
    operation = "invoke_endpoint_with_response_stream"
    try:
        answer = call_within(
            waiting.total_s,
            lambda: _send(session, operation, endpoint, body, component, waiting),
            lambda late: late["Body"].close(),
        )
    except CallTooLong:
        raise waiting.too_long() from None
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
            raise refusal(error, Invocation(session, name, endpoint, component)) from error
        except ReadTimeoutError as error:
            if patience is None:
                raise
            raise patience.silent() from error
    return answer
