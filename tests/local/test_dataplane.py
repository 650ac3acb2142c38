"""invoke_endpoint and invoke_endpoint_with_response_stream through an unmodified boto3."""

from __future__ import annotations

import http.client
import json
import os
import signal
import socket
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import psutil
import pytest
from botocore.eventstream import EventStreamBuffer
from botocore.exceptions import ClientError, EventStreamError

from peagle_sm.local import client
from tests.local.serving import Server, body, eventually

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
    answer = stream(runtime, endpoint, SCRIPT_INVOKE="sse", SCRIPT_CHUNKS=6, SCRIPT_CHUNK_DELAY=0.05)
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


def test_a_stream_that_takes_too_long_ends_with_an_error_after_what_it_had(
    runtime: Any, endpoint: str
) -> None:
    answer = stream(runtime, endpoint, SCRIPT_INVOKE="stall", SCRIPT_CHUNKS=2, SCRIPT_STALL=9)
    received: list[bytes] = []
    with pytest.raises(EventStreamError, match="ModelStreamError"):
        received.extend(event["PayloadPart"]["Bytes"] for event in answer["Body"])
    assert b"".join(received) == sse(2).removesuffix(b"data: [DONE]\n\n")


def frames(server: Server, endpoint: str, data: bytes) -> list[Any]:
    """The events as they are on the wire: botocore drops an exception's ErrorCode."""
    connection = http.client.HTTPConnection("127.0.0.1", server.status.port, timeout=10)
    scope = "Credential=local/20261120/us-east-1/sagemaker/aws4_request, SignedHeaders=host"
    headers = {"Authorization": f"AWS4-HMAC-SHA256 {scope}", "Content-Type": "application/json"}
    connection.request("POST", f"/endpoints/{endpoint}/invocations-response-stream", data, headers)
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


def test_an_unknown_endpoint_is_not_found(runtime: Any) -> None:
    with pytest.raises(ClientError) as raised:
        runtime.invoke_endpoint(EndpointName="absent", Body=b"{}")
    assert raised.value.response["Error"] == {
        "Code": "ValidationError",
        "Message": "Endpoint absent of account 123456789012 not found.",
    }


def test_a_variant_is_chosen_by_name(runtime: Any, endpoint: str) -> None:
    chosen = runtime.invoke_endpoint(EndpointName=endpoint, TargetVariant="AllTraffic", Body=b"{}")
    assert chosen["InvokedProductionVariant"] == "AllTraffic"
    with pytest.raises(ClientError, match="Variant Other not found for Request"):
        runtime.invoke_endpoint(EndpointName=endpoint, TargetVariant="Other", Body=b"{}")


def test_a_client_that_leaves_ends_the_engine_s_work(server: Server) -> None:
    name = server.deploy()
    request = body(SCRIPT_INVOKE="sse", SCRIPT_CHUNKS=1000, SCRIPT_CHUNK_DELAY=0.02)
    scope = "Credential=local/20261120/us-east-1/sagemaker/aws4_request, SignedHeaders=host"
    head = (
        f"POST /endpoints/{name}/invocations-response-stream HTTP/1.1\r\nHost: localhost\r\n"
        f"Authorization: AWS4-HMAC-SHA256 {scope}\r\nContent-Type: application/json\r\n"
        f"Content-Length: {len(request)}\r\n\r\n"
    )
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
