"""What `peagle-sm serve --record` writes: whole, broken and cancelled streams, refusals, labels."""

from __future__ import annotations

import http.client
import json
import socket
from collections.abc import Iterator
from typing import Any
from urllib.parse import urlsplit

import openai
import pytest

from peagle_sm.traffic.recorder import Recorder, TrafficSource
from tests.local.openai_client import QUESTION, script
from tests.local.serving import Server, eventually
from tests.service.serving.proxies import Serving, serving
from tests.traffic.samples import Kept


@pytest.fixture(scope="module")
def endpoint(server: Server) -> str:
    return server.deploy()


class Recorded:
    """A proxy that records to memory."""

    def __init__(self, proxy: Serving, recorder: Recorder, target: Kept) -> None:
        self.proxy = proxy
        self.recorder = recorder
        self._target = target

    def last(self) -> Any:
        """The newest record, after every request has ended."""
        eventually(lambda: self.recorder.summary.requests == len(self._target.lines))
        return self._target.documents()[-1]


@pytest.fixture(scope="module")
def recorded(server: Server, endpoint: str) -> Iterator[Recorded]:
    target = Kept()
    recorder = Recorder(target, TrafficSource(endpoint, mode="p-eagle"))
    with serving(server, endpoint, recorder=recorder) as proxy:
        yield Recorded(proxy, recorder, target)
    assert recorder.close().lost == {}


def chat(recorded: Recorded, stream: bool, headers: dict[str, str] | None = None, **settings: Any) -> Any:
    return recorded.proxy.client().chat.completions.create(
        model="", messages=QUESTION, stream=stream, extra_headers=headers, extra_body=script(**settings)
    )


def test_a_whole_stream(recorded: Recorded, endpoint: str) -> None:
    list(chat(recorded, True, SCRIPT_INVOKE="chat", SCRIPT_CHUNKS=3))
    result = recorded.last()
    assert (result["endpoint"], result["mode"], result["streamed"]) == (endpoint, "p-eagle", True)
    assert result["request"]["messages"] == QUESTION
    assert result["answers"] == [{"index": 0, "text": "token0 token1 token2 ", "finish_reason": "length"}]
    assert result["usage"]["completion_tokens"] == 3
    assert result.get("outcome", "whole") == "whole"
    assert result["slices"] | {"api": "chat", "turn": "1", "output tokens": "below 256"} == result["slices"]
    assert result["total_ms"] >= result["ttft_ms"] > 0


@pytest.mark.parametrize("options", [None, {"include_usage": False}, {"include_usage": True}])
def test_a_recorded_stream_is_asked_for_its_usage(recorded: Recorded, options: Any) -> None:
    """The engine reports the drafts of a stream only with the usage; the client gets what it asked for."""
    stream = recorded.proxy.client().chat.completions.create(
        model="",
        messages=QUESTION,
        stream=True,
        extra_body={**script(SCRIPT_INVOKE="chat", SCRIPT_CHUNKS=2), "stream_options": options},
    )
    came = [chunk.usage for chunk in stream if chunk.usage is not None]
    assert len(came) == (options == {"include_usage": True})
    result = recorded.last()
    assert result["request"]["stream_options"]["include_usage"] is True
    assert result["usage"]["completion_tokens"] == 2


def _written(encoding: str, after: str = "", **more: object) -> bytes:
    question = [{"role": "user", "content": 'Grüße: "stream_options": {}}'}]
    request = {"messages": question, "stream": True, **script(SCRIPT_INVOKE="chat", SCRIPT_CHUNKS=2), **more}
    return (json.dumps(request, ensure_ascii=False, indent=1) + after).encode(encoding)


@pytest.mark.parametrize(
    "body",
    [
        _written("utf-8"),
        _written("utf-8", " \r\n\t\n"),
        _written("utf-8-sig"),
        _written("utf-16-be"),
        _written("utf-16-le", "\n"),
        _written("utf-32"),
        _written("utf-8", model="MODEL"),
    ],
)
def test_the_usage_is_asked_for_however_the_request_is_written(
    recorded: Recorded, endpoint: str, body: bytes
) -> None:
    document = json.loads(body)
    body = body.replace(b"MODEL", endpoint.encode())
    address = urlsplit(recorded.proxy.url)
    connection = http.client.HTTPConnection(str(address.hostname), address.port)
    connection.request("POST", "/v1/chat/completions", body, {"Content-Type": "application/json"})
    answer = connection.getresponse()
    assert (answer.status, b'"completion_tokens"' in answer.read()) == (200, False)
    result = recorded.last()
    wanted = {"include_usage": True, "continuous_usage_stats": False}
    assert result["request"] == {
        **document,
        "stream_options": wanted,
        **({"model": ""} if "model" in document else {}),
    }
    assert result["usage"]["completion_tokens"] == 2


def test_an_answer_without_a_stream(recorded: Recorded) -> None:
    choice = {"index": 0, "message": {"content": "mail ada@example.com"}, "finish_reason": "stop"}
    answer = {"choices": [choice]}
    chat(recorded, False, SCRIPT_INVOKE="say", SCRIPT_BODY=json.dumps(answer))
    result = recorded.last()
    assert result["answers"][0]["text"] == "mail [REDACTED:email]"
    assert result["redacted"] == {"email": 2}  # the script that says the answer has it, too
    assert "streamed" not in result


def test_acceptance_by_position(recorded: Recorded) -> None:
    speculative = {
        "mean_acceptance_length": 2.5,
        "acceptance_histogram": [2, 3, 3, 2],
        "num_spec_steps": 10,
        "num_draft_tokens": 30,
        "num_accepted_draft_tokens": 15,
        "num_spec_tokens": 3,
    }
    answer = {
        "choices": [{"index": 0, "message": {"content": "x"}, "finish_reason": "stop"}],
        "usage": {"prompt_tokens": 2, "completion_tokens": 25, "total_tokens": 27},
        "metrics": {"speculative_decoding": speculative},
    }
    chat(recorded, False, SCRIPT_INVOKE="say", SCRIPT_BODY=json.dumps(answer))
    result = recorded.last()
    assert (result["drafts"], result["drafted"], result["accepted"]) == (10, 30, 15)
    assert (result["histogram"], result["num_speculative_tokens"]) == ([2, 3, 3, 2], 3)


def test_a_cut_stream_is_marked(recorded: Recorded) -> None:
    with pytest.raises(openai.APIError):
        list(chat(recorded, True, SCRIPT_INVOKE="cut", SCRIPT_CHUNKS=2))
    result = recorded.last()
    assert result["outcome"] == "cut"
    assert result["error"]
    assert result["answers"][0]["text"] == "token0 token1 "


def test_a_cancelled_stream_is_marked(recorded: Recorded) -> None:
    settings = script(SCRIPT_INVOKE="chat", SCRIPT_CHUNKS=1000, SCRIPT_CHUNK_DELAY=0.02)
    raw = json.dumps({"messages": QUESTION, "stream": True, **settings}).encode()
    with socket.create_connection(("127.0.0.1", recorded.proxy.running.port), timeout=20) as connection:
        head = f"POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(raw)}\r\n\r\n"
        connection.sendall(head.encode() + raw)
        seen = b""
        while b"token1" not in seen:
            seen += connection.recv(65536)
    result = recorded.last()
    assert result["outcome"] == "cancelled"
    assert result["answers"][0]["text"].startswith("token0 token1 ")


def test_a_request_that_the_engine_refuses_is_marked(recorded: Recorded) -> None:
    body = json.dumps({"error": {"message": "too long: AKIA" + "Q" * 16, "code": 400}})
    with pytest.raises(openai.BadRequestError):
        chat(recorded, True, SCRIPT_INVOKE="status:400", SCRIPT_BODY=body)
    result = recorded.last()
    assert (result["outcome"], result["status"]) == ("failed", 400)
    assert result["error"] == "too long: [REDACTED:aws key]"


def test_labels_come_from_a_header(recorded: Recorded) -> None:
    list(chat(recorded, True, {"X-Peagle-Labels": "team=search"}, SCRIPT_INVOKE="chat", SCRIPT_CHUNKS=1))
    assert recorded.last()["slices"]["label:team"] == "search"


def test_a_request_that_is_never_sent_is_not_recorded(recorded: Recorded) -> None:
    before = recorded.recorder.summary.requests
    with pytest.raises(openai.BadRequestError):
        recorded.proxy.client().post("/chat/completions", body={"no": 1}, cast_to=object)
    assert recorded.recorder.summary.requests == before
