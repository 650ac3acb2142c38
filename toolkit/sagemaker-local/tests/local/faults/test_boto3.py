"""Each fault as an unmodified boto3 shows it: what docs/how-to/faults.md says is what happens here."""

from __future__ import annotations

import json
from typing import Any

import pytest
from botocore.eventstream import ChecksumMismatch
from botocore.exceptions import (
    ClientError,
    EventStreamError,
    IncompleteReadError,
    ResponseStreamingError,
)
from urllib3.exceptions import ProtocolError

from sagemaker_local.process import client
from tests.local.faults.conftest import Add
from tests.local.serving import Server, body

EVENTS = 4


def sse(count: int = EVENTS) -> bytes:
    events = [{"choices": [{"index": 0, "text": f"token{number} "}]} for number in range(count)]
    return "".join(f"data: {json.dumps(event)}\n\n" for event in events).encode()


def read(runtime: Any, endpoint: str) -> tuple[list[bytes], Exception | None]:
    """The parts of a stream, and what boto3 raised after them."""
    script = body(SCRIPT_INVOKE="sse", SCRIPT_CHUNKS=EVENTS)
    answer = runtime.invoke_endpoint_with_response_stream(EndpointName=endpoint, Body=script)
    parts: list[bytes] = []
    try:
        parts.extend(event["PayloadPart"]["Bytes"] for event in answer["Body"])
    except Exception as error:
        return parts, error
    return parts, None


WHOLE = sse() + b"data: [DONE]\n\n"


def test_a_cut_that_ends_properly_is_silent_in_boto3(runtime: Any, endpoint: str, add: Add) -> None:
    for where in ("frame", "event"):
        add("cut", where=where, clean=True, after_events=2, times=1)
        parts, error = read(runtime, endpoint)
        assert (b"".join(parts), error) == (sse(2), None)


def test_a_cut_within_an_event_is_silent_in_boto3_too(runtime: Any, endpoint: str, add: Add) -> None:
    add("cut", where="part", clean=True, after_events=2, times=1)
    parts, error = read(runtime, endpoint)
    assert error is None
    assert parts[:2] == [sse(1), sse(2)[len(sse(1)) :]]
    assert sse(3).startswith(b"".join(parts))
    assert not parts[2].endswith(b"\n")


def test_a_cut_connection_is_an_error_in_boto3(runtime: Any, endpoint: str, add: Add) -> None:
    for where, events in (("frame", 2), ("event", 2), ("start", 0)):
        add("cut", where=where, after_events=2, times=1)
        parts, error = read(runtime, endpoint)
        assert b"".join(parts) == sse(events)
        assert isinstance(error, ProtocolError)  # urllib3's own: botocore does not map it here


def test_a_stall_holds_the_answer_back_and_then_gives_all_of_it(
    runtime: Any, endpoint: str, add: Add
) -> None:
    add("stall", seconds=0.3, after_events=1)
    parts, error = read(runtime, endpoint)
    assert (b"".join(parts), error) == (WHOLE, None)


def test_a_stall_beyond_the_limit_ends_as_aws_ends_a_stream(runtime: Any, endpoint: str, add: Add) -> None:
    add("stall", seconds=60, after_events=1)
    parts, error = read(runtime, endpoint)
    assert b"".join(parts) == sse(1)
    assert isinstance(error, EventStreamError)
    assert "ModelStreamError" in str(error)


@pytest.mark.parametrize("where", ["prelude", "message", "garbage"])
def test_damage_is_a_parser_error_in_boto3(runtime: Any, endpoint: str, add: Add, where: str) -> None:
    add("corrupt", where=where, after_events=2)
    parts, error = read(runtime, endpoint)
    assert b"".join(parts) == sse(2)
    assert type(error).__module__ == "botocore.eventstream"
    if where != "garbage":
        assert isinstance(error, ChecksumMismatch)


@pytest.mark.parametrize("parts", ["random", "bytes", "one"])
def test_split_changes_the_parts_and_not_the_bytes(runtime: Any, endpoint: str, add: Add, parts: str) -> None:
    add("split", parts=parts, seed=5)
    found, error = read(runtime, endpoint)
    assert (b"".join(found), error) == (WHOLE, None)
    if parts == "one":
        assert len(found) == 1
    if parts == "bytes":
        assert len(found) == len(WHOLE)


@pytest.mark.parametrize(
    ("kind", "options", "code"),
    [
        ("stream-error", {"code": "StreamBroken"}, "ModelStreamError"),
        ("stream-error", {"code": "ModelInvocationTimeExceeded"}, "ModelStreamError"),
        ("internal-stream-failure", {}, "InternalStreamFailure"),
    ],
)
def test_an_exception_in_the_stream_is_raised_without_its_error_code(
    runtime: Any, endpoint: str, add: Add, kind: str, options: dict[str, Any], code: str
) -> None:
    add(kind, message="on demand", after_events=2, **options)
    parts, error = read(runtime, endpoint)
    assert b"".join(parts) == sse(2)
    assert isinstance(error, EventStreamError)
    assert error.response["Error"] == {"Code": code, "Message": "on demand"}


def test_an_error_event_is_payload_to_boto3(runtime: Any, endpoint: str, add: Add) -> None:
    add("sse-error", message="out of memory", after_events=3)
    parts, error = read(runtime, endpoint)
    assert error is None
    *_, last, done = b"".join(parts).decode().removesuffix("\n\n").split("\n\n")
    assert json.loads(last.removeprefix("data: "))["error"]["message"] == "out of memory"
    assert done == "data: [DONE]"


@pytest.mark.parametrize("streaming", [False, True])
@pytest.mark.parametrize(
    ("kind", "options", "code", "status", "message"),
    [
        ("throttle", {}, "ThrottlingException", 400, None),
        ("throttle", {"status": 429}, "ThrottlingException", 429, "Rate exceeded"),
        ("service-error", {}, "InternalFailure", 500, "An internal failure occurred."),
        (
            "service-error",
            {"code": "ServiceUnavailable"},
            "ServiceUnavailable",
            503,
            "The service is unavailable. Try your call again.",
        ),
        ("service-error", {"code": "ModelNotReadyException"}, "ModelNotReadyException", 429, None),
    ],
)
def test_errors_of_the_service(
    runtime: Any,
    endpoint: str,
    add: Add,
    streaming: bool,
    kind: str,
    options: dict[str, Any],
    code: str,
    status: int,
    message: str | None,
) -> None:
    call = runtime.invoke_endpoint_with_response_stream if streaming else runtime.invoke_endpoint
    add(kind, **options)
    with pytest.raises(ClientError) as raised:
        call(EndpointName=endpoint, Body=b"{}")
    response: Any = raised.value.response
    assert response["Error"]["Code"] == code
    assert response["ResponseMetadata"]["HTTPStatusCode"] == status
    if message is not None or kind == "throttle":
        assert response["Error"]["Message"] == message


@pytest.mark.parametrize("streaming", [False, True])
def test_a_model_error_has_the_container_s_status(
    runtime: Any, endpoint: str, add: Add, streaming: bool
) -> None:
    call = runtime.invoke_endpoint_with_response_stream if streaming else runtime.invoke_endpoint
    add("model-error", status=507, message="CUDA out of memory")
    with pytest.raises(ClientError) as raised:
        call(EndpointName=endpoint, Body=b"{}")
    response: Any = raised.value.response
    assert (response["OriginalStatusCode"], response["OriginalMessage"]) == (507, "CUDA out of memory")
    assert response["ResponseMetadata"]["HTTPStatusCode"] == 424


def test_a_plain_answer_that_breaks_off(runtime: Any, endpoint: str, add: Add) -> None:
    add("cut", operation="invoke", times=1)
    body_of = runtime.invoke_endpoint(EndpointName=endpoint, Body=b"{}")["Body"]
    with pytest.raises((ResponseStreamingError, IncompleteReadError)):
        body_of.read()
    add("cut", operation="invoke", clean=True, times=1)
    whole = runtime.invoke_endpoint(EndpointName=endpoint, Body=b"{}")["Body"].read()
    with pytest.raises(json.JSONDecodeError):
        json.loads(whole)


def test_botocore_s_own_retries_get_past_a_fault_of_one_time(
    server: Server, runtime: Any, endpoint: str, add: Add
) -> None:
    import boto3

    patient = boto3.client(
        "sagemaker-runtime",
        endpoint_url=server.url,
        region_name="us-east-1",
        aws_access_key_id="local",
        aws_secret_access_key="local",
    )
    add("service-error", code="ServiceUnavailable", times=1)
    answer = patient.invoke_endpoint(EndpointName=endpoint, Body=b"{}")
    assert answer["ResponseMetadata"]["RetryAttempts"] == 1


def test_a_fault_of_another_endpoint_strikes_nobody_here(server: Server, runtime: Any, endpoint: str) -> None:
    added = client.add_fault(server.status.port, {"kind": "throttle", "endpoint": "somebody-else-*"})
    try:
        runtime.invoke_endpoint(EndpointName=endpoint, Body=b"{}")
        (found,) = [each for each in client.status(server.status.port).faults if each["id"] == added["id"]]
        assert (found["struck"], found["left"]) == (0, None)
    finally:
        client.clear_faults(server.status.port, [added["id"]])
