"""The OpenAI route through an unmodified OpenAI SDK, its latest version."""

from __future__ import annotations

import base64
import json
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from datetime import timedelta
from typing import Any

import openai
import pytest

from sagemaker_local.process.client import advance_clock
from tests.local.openai_client import (
    QUESTION,
    openai_client,
    route_url,
    script,
    token,
)
from tests.local.serving import Server, eventually, local_session

WHOLE = {
    "id": "chatcmpl-1",
    "object": "chat.completion",
    "created": 1,
    "model": "m",
    "choices": [
        {
            "index": 0,
            "finish_reason": "tool_calls",
            "message": {
                "role": "assistant",
                "content": None,
                "tool_calls": [
                    {
                        "id": "call-1",
                        "type": "function",
                        "function": {"name": "add", "arguments": '{"a": 1, "b": 2}'},
                    }
                ],
            },
            "logprobs": {
                "content": [{"token": "é", "logprob": -0.5, "bytes": [195, 169], "top_logprobs": []}],
                "refusal": None,
            },
        }
    ],
    "usage": {"prompt_tokens": 7, "completion_tokens": 3, "total_tokens": 10},
}


@pytest.fixture(scope="module")
def endpoint(server: Server) -> str:
    return server.deploy()


def post(
    url: str, key: str | None, body: bytes = b"{}", headers: Mapping[str, str] | None = None
) -> tuple[int, dict[str, Any]]:
    fields = {"Content-Type": "application/json", **(headers or {})}
    if key is not None:
        fields["Authorization"] = key
    try:
        with urllib.request.urlopen(urllib.request.Request(url, body, fields), timeout=20) as answer:
            return answer.status, json.load(answer)
    except urllib.error.HTTPError as error:
        return error.code, json.load(error)


def test_a_stream_comes_as_it_is_made_without_frames(server: Server, endpoint: str) -> None:
    stream = openai_client(server, endpoint).chat.completions.create(
        model="", messages=QUESTION, stream=True, extra_body=script(SCRIPT_INVOKE="chat", SCRIPT_CHUNKS=4)
    )
    chunks = list(stream)
    assert "".join(c.choices[0].delta.content or "" for c in chunks if c.choices) == (
        "token0 token1 token2 token3 "
    )
    assert chunks[-1].usage is not None
    assert chunks[-1].usage.completion_tokens == 4


def test_a_whole_answer_with_tool_calls_and_logprobs(server: Server, endpoint: str) -> None:
    answer = openai_client(server, endpoint).chat.completions.create(
        model="", messages=QUESTION, extra_body=script(SCRIPT_INVOKE="say", SCRIPT_BODY=json.dumps(WHOLE))
    )
    choice = answer.choices[0]
    assert choice.message.tool_calls is not None
    assert choice.message.tool_calls[0].model_dump()["function"]["name"] == "add"
    assert choice.logprobs is not None
    assert choice.logprobs.content is not None
    assert choice.logprobs.content[0].token == "é"


def test_the_container_is_asked_at_v1_chat_completions_with_the_body_as_it_came(
    server: Server, endpoint: str
) -> None:
    body = b'{"model": "",  "messages": []}'
    status, seen = post(f"{route_url(server, endpoint)}/chat/completions", f"Bearer {token(server)}", body)
    assert status == 200
    assert seen["path"] == "/v1/chat/completions"
    assert seen["body"] == body.decode()
    assert "authorization" not in seen["headers"]


def test_a_container_s_error_has_its_status_and_is_quoted_whole(server: Server, endpoint: str) -> None:
    text = '{"error": {"message": "max_tokens is too large"}}'
    with pytest.raises(openai.BadRequestError) as raised:
        openai_client(server, endpoint).chat.completions.create(
            model="", messages=QUESTION, extra_body=script(SCRIPT_INVOKE="status:400", SCRIPT_BODY=text)
        )
    body: Any = raised.value.body
    assert body["code"] == "model_error"
    assert body["type"] == "server_error"
    assert f'Received client error (400) from primary with message "{text}". See ' in body["message"]


def test_a_stream_that_is_cut_is_a_connection_error(server: Server, endpoint: str) -> None:
    stream = openai_client(server, endpoint).chat.completions.create(
        model="", messages=QUESTION, stream=True, extra_body=script(SCRIPT_INVOKE="cut", SCRIPT_CHUNKS=2)
    )
    with pytest.raises(openai.APIConnectionError):
        list(stream)


def test_a_stream_that_takes_too_long_is_cut(server: Server, endpoint: str) -> None:
    stall = script(SCRIPT_INVOKE="stall", SCRIPT_CHUNKS=1, SCRIPT_STALL=9)
    stream = openai_client(server, endpoint).chat.completions.create(
        model="", messages=QUESTION, stream=True, extra_body=stall
    )
    with pytest.raises(openai.APIConnectionError):
        list(stream)


def test_an_endpoint_that_is_not_there(server: Server) -> None:
    with pytest.raises(openai.BadRequestError) as raised:
        openai_client(server, "nowhere").chat.completions.create(model="", messages=QUESTION)
    assert raised.value.body == {
        "message": "Endpoint nowhere of account 123456789012 not found.",
        "type": "invalid_request_error",
        "code": "validation_error",
    }


@pytest.mark.parametrize("call", ["/models", "/completions", "/embeddings", ""])
def test_only_chat_completions_are_served(server: Server, endpoint: str, call: str) -> None:
    status, told = post(f"{route_url(server, endpoint)}{call}", f"Bearer {token(server)}")
    assert status == 404
    assert told["error"]["code"] == "unknown_operation"


def test_a_component_is_named_in_the_path_and_not_in_a_header(server: Server, endpoint: str) -> None:
    url = f"{route_url(server, endpoint, 'other')}/chat/completions"
    status, told = post(url, f"Bearer {token(server)}")
    assert status == 400
    assert "header is not allowed" in told["error"]["message"]
    url = f"{route_url(server, endpoint)}/chat/completions"
    status, told = post(
        url, f"Bearer {token(server)}", headers={"X-Amzn-SageMaker-Inference-Component": "other"}
    )
    assert status == 400
    assert "in the URL" in told["error"]["message"]


def test_an_answer_is_recorded_as_an_invocation(server: Server) -> None:
    endpoint = server.deploy()
    openai_client(server, endpoint).chat.completions.create(model="", messages=QUESTION)

    def counted() -> Any:
        now = local_session(server).now()
        metric_statistics = server.client("cloudwatch").get_metric_statistics(
            Namespace="AWS/SageMaker",
            MetricName="Invocations",
            Dimensions=[
                {"Name": "EndpointName", "Value": endpoint},
                {"Name": "VariantName", "Value": "AllTraffic"},
            ],
            StartTime=now - timedelta(minutes=5),
            EndTime=now + timedelta(minutes=5),
            Period=60,
            Statistics=["Sum"],
        )
        return sum(point["Sum"] for point in metric_statistics["Datapoints"])

    assert eventually(counted) == 1


def _with(made: str, old: str, new: str) -> str:
    url = base64.b64decode(made.removeprefix("sagemaker-api-key-")).decode()
    assert old in url
    return "sagemaker-api-key-" + base64.b64encode(url.replace(old, new).encode()).decode()


def _bad_keys(made: str) -> Iterator[tuple[str | None, str]]:
    yield None, "missing_authentication_token"
    yield (
        "AWS4-HMAC-SHA256 Credential=local/20261120/us-east-1/sagemaker/aws4_request",
        ("missing_authentication_token"),
    )
    yield "Bearer sk-1234", "unrecognized_client"
    yield "Bearer sagemaker-api-key-%%%", "unrecognized_client"
    yield f"Bearer {_with(made, 'CallWithBearerToken', 'DeleteEndpoint')}", "unrecognized_client"
    yield f"Bearer {_with(made, 'X-Amz-Expires=43200', 'X-Amz-Expires=43201')}", "unrecognized_client"
    yield f"Bearer {_with(made, 'X-Amz-Expires=43200', 'X-Amz-Expires=43199')}", "invalid_signature"
    yield f"Bearer {_with(made, 'us-east-1', 'eu-west-1')}", "invalid_signature"
    yield f"Bearer {_with(made, '%2Fsagemaker%2F', '%2Fbedrock%2F')}", "invalid_signature"
    yield f"Bearer {_with(made, 'Credential=local', 'Credential=AKIA')}", "unrecognized_client"


def test_what_is_no_token_of_ours_is_refused(server: Server, endpoint: str) -> None:
    url = f"{route_url(server, endpoint)}/chat/completions"
    for key, code in _bad_keys(token(server)):
        status, told = post(url, key)
        assert (status, told["error"]["code"]) == (403, code), key


def test_a_token_expires_by_the_local_clock_and_a_new_one_does_not(server: Server, endpoint: str) -> None:
    old = token(server, hours=1 / 60)
    time.sleep(1.1)  # a token has whole seconds: the clock must move after its own
    request = {"model": "", "messages": QUESTION}
    openai_client(server, endpoint, api_key=old).chat.completions.create(**request)
    advance_clock(server.status.port, 61)
    with pytest.raises(openai.PermissionDeniedError) as raised:
        openai_client(server, endpoint, api_key=old).chat.completions.create(**request)
    body: Any = raised.value.body
    assert body["code"] == "expired_token"
    # Signed by the real clock, as the SDK of AWS does, however far the local one is ahead.
    openai_client(server, endpoint).chat.completions.create(**request)
