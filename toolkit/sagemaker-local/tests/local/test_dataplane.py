"""invoke_endpoint and invoke_endpoint_with_response_stream through an unmodified boto3."""

from __future__ import annotations

import http.client
import json
import os
import signal
import socket
import time
import urllib.error
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import psutil
import pytest
from botocore.eventstream import EventStreamBuffer
from botocore.exceptions import ClientError, EventStreamError

from sagemaker_local.process import client
from tests.local.serving import Server, body, eventually, signed_headers

EVENT = 'data: {{"choices": [{{"index": 0, "text": "token{} "}}]}}\n\n'


@pytest.fixture(scope="module")
def endpoint(server: Server) -> str:
    return server.deploy()


def sse(count: int) -> bytes:
    return ("".join(EVENT.format(number) for number in range(count)) + "data: [DONE]\n\n").encode()


def stream(runtime: Any, endpoint: str, **script: object) -> Any:
    return runtime.invoke_endpoint_with_response_stream(
        EndpointName=endpoint, ContentType="application/json", Body=body(**script)
    )


def test_a_plain_invocation_passes_body_and_headers(runtime: Any, endpoint: str) -> None:
    answer = runtime.invoke_endpoint(
        EndpointName=endpoint,
        ContentType="application/json",
        Accept="application/json",
        CustomAttributes="trace=1",
        InferenceId="abc",
        Body=b'{"prompt": "x"}',
    )
    seen = json.loads(answer["Body"].read())
    assert seen["path"] == "/invocations"
    assert seen["body"] == '{"prompt": "x"}'
    assert seen["headers"]["x-amzn-sagemaker-custom-attributes"] == "trace=1"
    assert seen["headers"]["x-amzn-sagemaker-inference-id"] == "abc"
    assert "authorization" not in seen["headers"]
    assert answer["InvokedProductionVariant"] == "AllTraffic"
    assert answer["ContentType"] == "application/json"
    assert answer["ResponseMetadata"]["RequestId"]


def test_every_stream_has_a_request_id_of_its_own(runtime: Any, endpoint: str) -> None:
    ids = set()
    for _ in range(2):
        answer = stream(runtime, endpoint, SCRIPT_INVOKE="sse", SCRIPT_CHUNKS=1)
        list(answer["Body"])
        ids.add(answer["ResponseMetadata"]["RequestId"])
    assert len(ids) == 2


def test_a_stream_is_exact_and_arrives_as_it_is_made(runtime: Any, endpoint: str) -> None:
    answer = stream(runtime, endpoint, SCRIPT_INVOKE="sse", SCRIPT_CHUNKS=6, SCRIPT_CHUNK_DELAY=0.2)
    assert answer["ContentType"] == "text/event-stream; charset=utf-8"
    assert answer["InvokedProductionVariant"] == "AllTraffic"
    arrivals: list[float] = []
    received = b""
    for event in answer["Body"]:
        arrivals.append(time.monotonic())
        received += event["PayloadPart"]["Bytes"]
    assert received == sse(6)
    assert arrivals[-1] - arrivals[0] > 0.2


def test_many_streams_at_once_do_not_mix(server: Server, endpoint: str) -> None:
    def one(count: int) -> bool:
        runtime = server.client("sagemaker-runtime")
        answer = stream(runtime, endpoint, SCRIPT_INVOKE="sse", SCRIPT_CHUNKS=count, SCRIPT_CHUNK_DELAY=0.002)
        return b"".join(event["PayloadPart"]["Bytes"] for event in answer["Body"]) == sse(count)

    with ThreadPoolExecutor(8) as threads:
        assert all(threads.map(one, range(1, 25)))


@pytest.mark.parametrize("streaming", [False, True])
@pytest.mark.parametrize(("status", "side"), [(400, "client"), (503, "server")])
def test_a_container_s_error_is_a_model_error(
    server: Server, runtime: Any, endpoint: str, streaming: bool, status: int, side: str
) -> None:
    call = runtime.invoke_endpoint_with_response_stream if streaming else runtime.invoke_endpoint
    script = body(SCRIPT_INVOKE=f"status:{status}", SCRIPT_BODY='{"error": "too long"}')
    with pytest.raises(ClientError) as raised:
        call(EndpointName=endpoint, ContentType="application/json", Body=script)
    response: Any = raised.value.response
    assert type(raised.value).__name__ == "ModelError"
    assert response["ResponseMetadata"]["HTTPStatusCode"] == 424
    assert response["OriginalStatusCode"] == status
    assert response["OriginalMessage"] == '{"error": "too long"}'
    group = f"/aws/sagemaker/Endpoints/{endpoint}"
    assert response["LogStreamArn"] == f"arn:aws:logs:us-east-1:123456789012:log-group:{group}"
    assert response["Error"]["Message"].startswith(
        f'Received {side} error ({status}) from primary with message "{{"error": "too long"}}". See https://'
    )


def test_a_plain_invocation_has_a_minute(runtime: Any, endpoint: str) -> None:
    script = body(SCRIPT_INVOKE="hang", SCRIPT_STALL=12)
    with pytest.raises(ClientError, match="timed out while waiting for a response") as raised:
        runtime.invoke_endpoint(EndpointName=endpoint, ContentType="application/json", Body=script)
    response: Any = raised.value.response
    assert response["OriginalStatusCode"] == 0


def frames(server: Server, endpoint: str, data: bytes) -> list[Any]:
    """The events as they are on the wire: botocore drops an exception's ErrorCode."""
    connection = http.client.HTTPConnection("localhost", server.status.port, timeout=10)
    path = f"/endpoints/{endpoint}/invocations-response-stream"
    connection.request("POST", path, data, signed_headers(f"{server.url}{path}", data))
    buffer = EventStreamBuffer()
    buffer.add_data(connection.getresponse().read())
    connection.close()
    return list(buffer)


@pytest.mark.parametrize(
    ("script", "code"),
    [
        ({"SCRIPT_INVOKE": "cut", "SCRIPT_CHUNKS": 2}, "StreamBroken"),
        ({"SCRIPT_INVOKE": "stall", "SCRIPT_CHUNKS": 1, "SCRIPT_STALL": 9}, "ModelInvocationTimeExceeded"),
    ],
)
def test_the_error_code_of_a_stream_is_on_the_wire(
    server: Server, endpoint: str, script: dict[str, object], code: str
) -> None:
    last = frames(server, endpoint, body(**script))[-1]
    assert last.headers[":exception-type"] == "ModelStreamError"
    assert json.loads(last.payload)["ErrorCode"] == code


def test_an_engine_that_is_killed_breaks_the_stream_and_fails_the_endpoint(
    server: Server, runtime: Any
) -> None:
    name = server.deploy()
    pid = json.loads(runtime.invoke_endpoint(EndpointName=name, Body=b"{}")["Body"].read())["pid"]
    answer = stream(runtime, name, SCRIPT_INVOKE="sse", SCRIPT_CHUNKS=100, SCRIPT_CHUNK_DELAY=0.05)

    def read_and_kill() -> None:
        for number, _ in enumerate(answer["Body"]):
            if number == 2:
                os.kill(pid, signal.SIGKILL)

    with pytest.raises(EventStreamError, match="ModelStreamError"):
        read_and_kill()
    assert server.until(name, "Failed")["FailureReason"]


@pytest.mark.parametrize("streaming", [False, True])
def test_a_body_over_the_limit_is_refused_in_aws_s_words(
    server: Server, runtime: Any, endpoint: str, streaming: bool
) -> None:
    call = runtime.invoke_endpoint_with_response_stream if streaming else runtime.invoke_endpoint
    with pytest.raises(ClientError) as raised:
        call(EndpointName=endpoint, Body=b"x" * 6_291_457)
    assert raised.value.response["Error"] == {
        "Code": "ValidationError",
        "Message": "1 validation error detected: Value at 'body' failed to satisfy constraint: "
        "Member must have length less than or equal to 6291456",
    }


def test_a_body_at_the_limit_passes(runtime: Any, endpoint: str) -> None:
    answer = runtime.invoke_endpoint(EndpointName=endpoint, Body=b"x" * 6_291_456)
    assert len(json.loads(answer["Body"].read())["body"]) == 6_291_456


def test_a_variant_is_chosen_by_name(runtime: Any, endpoint: str) -> None:
    chosen = runtime.invoke_endpoint(EndpointName=endpoint, TargetVariant="AllTraffic", Body=b"{}")
    assert chosen["InvokedProductionVariant"] == "AllTraffic"
    with pytest.raises(ClientError, match="Variant Other not found for Request"):
        runtime.invoke_endpoint(EndpointName=endpoint, TargetVariant="Other", Body=b"{}")


def _refused(server: Server, endpoint: str, changed: dict[str, str | None], streaming: bool = False) -> Any:
    """The answer to a well-signed request with some headers changed or left out."""
    path = f"/endpoints/{endpoint}/invocations" + ("-response-stream" if streaming else "")
    headers = {**signed_headers(f"{server.url}{path}", b"{}"), **changed}
    connection = http.client.HTTPConnection("localhost", server.status.port, timeout=10)
    connection.request(
        "POST", path, b"{}", {key: value for key, value in headers.items() if value is not None}
    )
    answer = connection.getresponse()
    document = json.load(answer)
    connection.close()
    return answer.status, answer.headers["x-amzn-ErrorType"].partition(":")[0], document


def test_an_invocation_that_is_not_signed_is_refused_as_aws_does(server: Server, endpoint: str) -> None:
    assert _refused(server, endpoint, {"Authorization": None}) == (
        403,
        "MissingAuthenticationTokenException",
        {"message": "Missing Authentication Token"},
    )


def test_an_invocation_signed_for_another_service_is_refused_as_aws_does(
    server: Server, endpoint: str
) -> None:
    signed = signed_headers(f"{server.url}/endpoints/{endpoint}/invocations", b"{}")["Authorization"]
    wrong = signed.replace("/sagemaker/", "/runtime.sagemaker/")
    assert _refused(server, endpoint, {"Authorization": wrong}) == (
        403,
        "InvalidSignatureException",
        {"message": "Credential should be scoped to correct service: 'sagemaker'. "},
    )


@pytest.mark.parametrize(("signed", "status"), [(True, 404), (False, 403)])
def test_another_operation_is_unknown_once_the_signature_is_checked(
    server: Server, endpoint: str, signed: bool, status: int
) -> None:
    url = f"{server.url}/endpoints/{endpoint}/async-invocations"
    headers = signed_headers(url, b"{}") if signed else {}
    with pytest.raises(urllib.error.HTTPError) as raised:
        urllib.request.urlopen(urllib.request.Request(url, b"{}", headers), timeout=20)
    assert raised.value.status == status
    assert ("async-invocations" in raised.value.read().decode()) == signed


def test_boto3_reads_the_refusal_of_its_signature(server: Server, endpoint: str) -> None:
    elsewhere = server.client("sagemaker-runtime", region_name="eu-west-1")
    with pytest.raises(ClientError, match="Credential should be scoped to a valid region") as raised:
        elsewhere.invoke_endpoint(EndpointName=endpoint, Body=b"{}")
    assert raised.value.response["Error"]["Code"] == "InvalidSignatureException"


_PATTERN = "failed to satisfy constraint: Member must satisfy regular expression pattern: "
_NAME = "^[a-zA-Z0-9](-*[a-zA-Z0-9])*"


@pytest.mark.parametrize(
    ("members", "said"),
    [
        ({"EndpointName": "under_score"}, f"Value 'under_score' at 'endpointName' {_PATTERN}{_NAME}"),
        (
            {"EndpointName": "e" * 64},
            f"Value '{'e' * 64}' at 'endpointName' failed to satisfy constraint: "
            "Member must have length less than or equal to 63",
        ),
        ({"TargetVariant": "-x"}, f"Value '-x' at 'targetVariant' {_PATTERN}{_NAME}"),
        (
            {"CustomAttributes": "x" * 1025},
            "Value at 'customAttributes' failed to satisfy constraint: "
            "Member must have length less than or equal to 1024",
        ),
        (
            {"InferenceId": "i" * 65},
            f"Value '{'i' * 65}' at 'inferenceId' failed to satisfy constraint: "
            "Member must have length less than or equal to 64",
        ),
    ],
)
@pytest.mark.parametrize("streaming", [False, True])
def test_what_aws_refuses_of_a_request(
    runtime: Any, endpoint: str, members: dict[str, str], said: str, streaming: bool
) -> None:
    call = runtime.invoke_endpoint_with_response_stream if streaming else runtime.invoke_endpoint
    with pytest.raises(ClientError) as raised:
        call(**{"EndpointName": endpoint, "Body": b"{}", **members})
    error = raised.value.response["Error"]
    assert error == {"Code": "ValidationError", "Message": f"1 validation error detected: {said}"}


def test_two_things_wrong_are_told_together(runtime: Any, endpoint: str) -> None:
    with pytest.raises(
        ClientError, match=r"2 validation errors detected: .*'contentType'.*; .*'targetVariant'"
    ):
        runtime.invoke_endpoint(
            EndpointName=endpoint, ContentType="x" * 1025, TargetVariant="a_b", Body=b"{}"
        )


def test_a_session_is_begun_by_a_plain_invocation_alone(runtime: Any, endpoint: str) -> None:
    answer = runtime.invoke_endpoint(EndpointName=endpoint, SessionId="NEW_SESSION", Body=b"{}")
    seen = json.loads(answer["Body"].read())
    assert seen["headers"]["x-amzn-sagemaker-session-id"] == "NEW_SESSION"
    with pytest.raises(ClientError, match="Value 'NEW_SESSION' at 'sessionId' failed"):
        runtime.invoke_endpoint_with_response_stream(
            EndpointName=endpoint, SessionId="NEW_SESSION", Body=b"{}"
        )


def test_a_model_among_several_cannot_be_asked_for(runtime: Any, endpoint: str) -> None:
    with pytest.raises(ClientError) as raised:
        runtime.invoke_endpoint(EndpointName=endpoint, TargetModel="a.tar.gz", Body=b"{}")
    response: Any = raised.value.response
    assert response["Error"] == {
        "Code": "ValidationError",
        "Message": f"Endpoint {endpoint} is not a multi-model endpoint and does not support "
        "target model header.",
    }


def test_a_client_that_leaves_ends_the_engine_s_work(server: Server) -> None:
    name = server.deploy()
    request = body(SCRIPT_INVOKE="sse", SCRIPT_CHUNKS=1000, SCRIPT_CHUNK_DELAY=0.02)
    path = f"/endpoints/{name}/invocations-response-stream"
    headers = signed_headers(f"{server.url}{path}", request) | {"Content-Length": str(len(request))}
    lines = [
        f"POST {path} HTTP/1.1",
        "Host: localhost",
        *(f"{key}: {value}" for key, value in headers.items()),
    ]
    head = "\r\n".join(lines) + "\r\n\r\n"
    with socket.create_connection(("127.0.0.1", server.status.port)) as connection:
        connection.sendall(head.encode() + request)
        assert connection.recv(1000)
        eventually(lambda: _connections_to_engine(server, name) > 0)
    # Within the time limit of a stream, so that it is the client's leaving that ended it.
    eventually(lambda: _connections_to_engine(server, name) == 0, seconds=1)


def _connections_to_engine(server: Server, name: str) -> int:
    """How many requests the server holds open at an endpoint's engine."""
    (row,) = [row for row in client.status(server.status.port).engines if row["endpoint"] == name]
    port = int(row["url"].rpartition(":")[2])
    here = psutil.Process().net_connections("tcp")
    return sum(c.status == psutil.CONN_ESTABLISHED and bool(c.raddr) and c.raddr.port == port for c in here)
