"""`peagle-sm serve` between an unmodified OpenAI SDK and the local SageMaker."""

from __future__ import annotations

import http.client
import json
import socket
from collections.abc import Iterator
from typing import Any

import openai
import psutil
import pytest

from peagle_sm.aws.streams.runtime import BODY_LIMIT_BYTES
from tests.local.openai_client import QUESTION, script
from tests.local.serving import Server, eventually
from tests.service.serving.proxies import Serving, serving


@pytest.fixture(scope="module")
def endpoint(server: Server) -> str:
    return server.deploy()


@pytest.fixture(scope="module")
def proxy(server: Server, endpoint: str) -> Iterator[Serving]:
    with serving(server, endpoint) as running:
        yield running


def ask(
    proxy: Serving, method: str, path: str, body: bytes | None = None, **headers: str
) -> tuple[int, dict[str, str], Any]:
    connection = http.client.HTTPConnection("127.0.0.1", proxy.running.port, timeout=20)
    connection.request(method, path, body, headers)
    answer = connection.getresponse()
    document = json.loads(answer.read() or b"null")
    connection.close()
    return answer.status, dict(answer.getheaders()), document


@pytest.mark.parametrize(
    ("labels", "sent"),
    [
        ("team=search,tier=free", "team=search,tier=free"),
        (None, None),
        ("a" * 1025, None),  # SageMaker takes 1,024 characters of ASCII, and refuses the request for more
        ("team=caf\xe9", None),
    ],
)
def test_labels_reach_the_container(proxy: Serving, labels: str | None, sent: str | None) -> None:
    given = {"X-Peagle-Labels": labels} if labels is not None else {}
    status, _, told = ask(proxy, "POST", "/v1/completions", b'{"prompt": "x"}', **given)
    assert status == 200
    assert told["headers"].get("x-amzn-sagemaker-custom-attributes") == sent


def _chat(proxy: Serving, *, stream: bool = True, **settings: Any) -> Any:
    """A question to an engine that answers by these settings of its script."""
    body = script(**settings)
    client = proxy.client()
    return client.chat.completions.create(model="", messages=QUESTION, stream=stream, extra_body=body)


def _events(*documents: object) -> str:
    """A stream of these documents, ended as engines do."""
    return "".join(f"data: {json.dumps(each)}\n\n" for each in documents) + "data: [DONE]\n\n"


def test_a_chat_is_streamed_and_written_down(proxy: Serving, endpoint: str) -> None:
    stream = proxy.client().chat.completions.create(
        model=endpoint,
        messages=QUESTION,
        stream=True,
        extra_body=script(SCRIPT_INVOKE="chat", SCRIPT_CHUNKS=3),
    )
    lines = [chunk.choices[0].delta.content for chunk in stream if chunk.choices]
    assert lines == ["token0 ", "token1 ", "token2 ", ""]
    line = proxy.last().line()
    assert line.startswith("POST /v1/chat/completions 200 stream  tokens 3  AL -  ")


def test_a_client_that_closes_right_after_done_has_not_left(proxy: Serving) -> None:
    body = {"prompt": "x", "stream": True, **script(SCRIPT_INVOKE="chat", SCRIPT_CHUNKS=3)}
    before = len(proxy.served)
    with socket.create_connection(("127.0.0.1", proxy.running.port), timeout=20) as connection:
        raw = json.dumps(body).encode()
        head = f"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(raw)}\r\n\r\n"
        connection.sendall(head.encode() + raw)
        seen = b""
        while b"[DONE]" not in seen:
            seen += connection.recv(65536)
    served = eventually(lambda: len(proxy.served) > before and proxy.served[-1])
    assert (served.tokens, served.whole, served.failed) == (3, True, None)


def test_the_bytes_of_a_stream_are_the_engine_s_own(proxy: Serving) -> None:
    sse = 'data: {"choices": [{"text": "é", "finish_reason": "stop"}]}\r\n\r\n: ping\n\ndata: [DONE]\n\n'
    body = {"prompt": "x", "stream": True, **script(SCRIPT_INVOKE="say", SCRIPT_BODY=sse)}
    connection = http.client.HTTPConnection("127.0.0.1", proxy.running.port, timeout=20)
    connection.request("POST", "/v1/completions", json.dumps(body))
    answer = connection.getresponse()
    assert answer.read() == sse.encode()
    assert answer.getheader("Content-Type") == "text/event-stream"
    assert answer.getheader("x-request-id")
    connection.close()


def test_completions_are_served_whole(proxy: Serving, endpoint: str) -> None:
    fields = {
        "object": "text_completion",
        "choices": [{"index": 0, "text": "pass", "finish_reason": "stop", "logprobs": None}],
        "usage": {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2},
    }
    answer = proxy.client().completions.create(
        model="", prompt="x", extra_body=script(SCRIPT_INVOKE="say", SCRIPT_BODY=json.dumps(fields))
    )
    assert answer.choices[0].text == "pass"
    assert proxy.last().tokens == 1


def test_tool_calls_and_logprobs_come_through_a_stream(proxy: Serving) -> None:
    call = {"index": 0, "id": "c", "type": "function", "function": {"name": "add", "arguments": "{}"}}
    token = {"token": "a", "logprob": -0.1, "bytes": [97], "top_logprobs": []}
    choice = {"index": 0, "delta": {"tool_calls": [call]}, "logprobs": {"content": [token]}}
    done = {"index": 0, "delta": {}, "finish_reason": "tool_calls"}
    sse = _events({"choices": [choice]}, {"choices": [done]})
    first, last = list(_chat(proxy, SCRIPT_INVOKE="say", SCRIPT_BODY=sse))
    assert first.choices[0].delta.tool_calls is not None
    assert first.choices[0].delta.tool_calls[0].function is not None
    assert first.choices[0].delta.tool_calls[0].function.name == "add"
    assert first.choices[0].logprobs is not None
    assert last.choices[0].finish_reason == "tool_calls"


def test_the_engine_is_asked_by_an_empty_name_and_otherwise_letter_for_letter(
    proxy: Serving, endpoint: str
) -> None:
    def seen(raw: str) -> Any:
        answer = ask(proxy, "POST", "/v1/chat/completions", raw.encode())[2]
        assert answer["path"] == "/invocations"
        return answer["body"]

    assert seen('{"messages": [],  "model": "other"}') == '{"messages": [],  "model": "other"}'
    assert json.loads(seen(json.dumps({"messages": [], "model": endpoint}))) == {"messages": [], "model": ""}


@pytest.mark.parametrize("how", ["cut", "stall"])
def test_a_broken_stream_ends_with_an_error_and_without_done(proxy: Serving, how: str) -> None:
    stream = _chat(proxy, SCRIPT_INVOKE=how, SCRIPT_CHUNKS=2, SCRIPT_STALL=9)
    chunks: list[Any] = []
    with pytest.raises(openai.APIError, match="ModelStreamError") as raised:
        chunks.extend(stream)
    assert len(chunks) == 2
    assert raised.value.code == "stream_broken"
    assert proxy.last().failed


ERRORS = [
    {"error": {"message": "out of memory", "type": "InternalServerError", "code": 507}},
    {"error": "out of memory"},
    {"object": "error", "message": "out of memory", "type": "InternalServerError", "code": 507},
    {"detail": "out of memory"},
]


@pytest.mark.parametrize("document", ERRORS, ids=lambda document: "-".join(document))
@pytest.mark.parametrize("before", [0, 2])
def test_every_error_form_in_a_stream_raises_in_openai_s_client(
    proxy: Serving, document: dict[str, object], before: int
) -> None:
    chunk = {"choices": [{"index": 0, "delta": {"content": "a"}}]}
    sse = _events(*[chunk] * before, document)
    stream = _chat(proxy, SCRIPT_INVOKE="say", SCRIPT_BODY=sse)
    chunks: list[Any] = []
    with pytest.raises(openai.APIError, match="out of memory"):
        chunks.extend(stream)
    assert len(chunks) == before
    assert proxy.last().failed


@pytest.mark.parametrize("document", ERRORS, ids=lambda document: "-".join(document))
@pytest.mark.parametrize("streamed", [False, True])
def test_every_error_form_without_a_stream_raises_in_openai_s_client(
    proxy: Serving, document: dict[str, object], streamed: bool
) -> None:
    """Also where a stream was asked for: an engine may answer 200 and one JSON document."""
    with pytest.raises(openai.APIError, match="out of memory") as raised:
        list(_chat(proxy, SCRIPT_INVOKE="say", SCRIPT_BODY=json.dumps(document), stream=streamed))
    if not streamed:
        assert isinstance(raised.value, openai.InternalServerError)
        assert raised.value.status_code == (507 if "507" in json.dumps(document) else 502)


@pytest.mark.parametrize("reason", ["abort", "error"])
@pytest.mark.parametrize("streamed", [False, True])
def test_an_answer_that_the_engine_gave_up_raises_in_openai_s_client(
    proxy: Serving, reason: str, streamed: bool
) -> None:
    document = {"choices": [{"index": 0, "text": "a", "finish_reason": reason}]}
    answer = _events(document) if streamed else json.dumps(document)
    with pytest.raises(openai.APIError, match=f"finish_reason '{reason}'"):
        list(
            proxy.client().completions.create(
                model="",
                prompt="x",
                stream=streamed,
                extra_body=script(SCRIPT_INVOKE="say", SCRIPT_BODY=answer),
            )
        )


def test_an_engine_that_ignores_stream_raises_in_openai_s_client(proxy: Serving) -> None:
    with pytest.raises(openai.APIError, match="ignored `stream`"):
        list(_chat(proxy, SCRIPT_INVOKE="say", SCRIPT_BODY='{"choices": []}'))


@pytest.mark.parametrize(
    ("asked", "missing"),
    [({"n": 2}, "1 of 2"), ({"prompt": ["a", "b"]}, "1 of 2"), ({"prompt": [[1], [2]], "n": 2}, "3 of 4")],
)
def test_a_cut_stream_of_several_answers_raises_in_openai_s_client(
    proxy: Serving, asked: dict[str, Any], missing: str
) -> None:
    """One answer is whole, the others are cut or never came."""
    events = [{"index": 1, "text": "b"}, {"index": 0, "text": "a", "finish_reason": "stop"}]
    sse = "".join(f"data: {json.dumps({'choices': [each]})}\n\n" for each in events)  # and no [DONE]
    chunks: list[Any] = []
    with pytest.raises(openai.APIError, match=f"{missing} answers have no finish_reason"):
        chunks.extend(
            proxy.client().completions.create(
                **{"model": "", "prompt": "x", **asked},
                stream=True,
                extra_body=script(SCRIPT_INVOKE="say", SCRIPT_BODY=sse),
            )
        )
    assert [chunk.choices[0].text for chunk in chunks] == ["b", "a"]


@pytest.mark.parametrize(
    ("raw", "words"),
    [
        (b'{"prompt": ' + b"[" * 20_000 + b"]" * 20_000 + b"}", "nested too deeply"),
        (b'{"prompt": "x", "stream": 1}', "stream: found 1; allowed: true or false"),
        (b'{"prompt": "x", "stream": "true"}', 'stream: found "true"; allowed: true or false'),
        (b'{"prompt": "x", "n": "2", "stream": true}', "n: found '2'; allowed: a whole number"),
        (b'{"prompt": "x", "n": 2.0}', "n: found 2.0; allowed: a whole number"),
        (b'{"prompt": "x", "guided_choice": ["a"]}', "ignores 'guided_choice'; use structured_outputs"),
    ],
)
def test_a_body_that_the_engine_would_read_otherwise_is_refused(
    proxy: Serving, raw: bytes, words: str
) -> None:
    status, headers, told = ask(proxy, "POST", "/v1/completions", raw)
    assert (status, headers["Content-Type"]) == (400, "application/json")
    assert words in told["error"]["message"]
    assert told["error"]["type"] == "invalid_request_error"


def test_an_engine_s_error_has_its_own_status_and_words(proxy: Serving) -> None:
    text = '{"error": {"message": "max_tokens is too large", "type": "BadRequestError", "code": 400}}'
    with pytest.raises(openai.BadRequestError, match="max_tokens is too large"):
        _chat(proxy, SCRIPT_INVOKE="status:400", SCRIPT_BODY=text)


def test_models_and_health_need_no_call(proxy: Serving, endpoint: str) -> None:
    assert [model.id for model in proxy.client().models.list()] == [endpoint]
    assert proxy.client().models.retrieve(endpoint).owned_by == "sagemaker"
    assert ask(proxy, "GET", "/health")[2] == {"status": "ok", "endpoint": endpoint}


def test_what_is_not_served_says_what_is(proxy: Serving) -> None:
    status, _, told = ask(proxy, "POST", "/v1/embeddings", b"{}")
    assert status == 404
    assert "allowed: POST /v1/chat/completions, POST /v1/completions" in told["error"]["message"]
    for raw, missing in ((b"{", "not JSON"), (b"[]", "found a JSON list"), (b'{"prompt": 1}', "messages")):
        status, _, told = ask(proxy, "POST", "/v1/chat/completions", raw)
        assert status == 400
        assert missing in told["error"]["message"]


def test_a_body_over_sagemaker_s_limit_is_not_sent(proxy: Serving) -> None:
    empty = len(b'{"prompt":""}')
    most = b'{"prompt":"' + b"x" * (BODY_LIMIT_BYTES - empty) + b'"}'
    assert ask(proxy, "POST", "/v1/completions", most)[0] == 200
    status, _, told = ask(proxy, "POST", "/v1/completions", most.replace(b'"}', b'x"}'))
    assert status == 413
    assert "6,291,456" in told["error"]["message"]


def test_an_endpoint_that_is_gone_is_404(server: Server) -> None:
    with serving(server, "nowhere") as proxy, pytest.raises(openai.NotFoundError, match="not found"):
        proxy.client().chat.completions.create(model="", messages=QUESTION)


def test_a_sagemaker_that_is_not_there_is_502(server: Server) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        nobody = f"http://127.0.0.1:{taken.getsockname()[1]}"
        with serving(server, "x", url=nobody) as proxy:
            status, _, told = ask(proxy, "POST", "/v1/completions", b'{"prompt": "x"}')
    assert (status, told["error"]["code"]) == (502, "endpoint_unreachable")


def test_an_api_key_is_asked_for_where_one_was_given(server: Server, endpoint: str) -> None:
    with serving(server, endpoint, api_key="s3cret") as proxy:
        assert [model.id for model in proxy.client("s3cret").models.list()] == [endpoint]
        with pytest.raises(openai.AuthenticationError):
            proxy.client("other").models.list()
        assert ask(proxy, "GET", "/health")[0] == 200


def test_a_web_page_cannot_spend(proxy: Serving) -> None:
    body = b'{"prompt": "x"}'
    assert ask(proxy, "POST", "/v1/completions", body, Host="evil.example")[0] == 403
    assert ask(proxy, "POST", "/v1/completions", body, Origin="https://evil.example")[0] == 403
    assert ask(proxy, "POST", "/v1/completions", body, Origin="null")[0] == 403
    assert ask(proxy, "POST", "/v1/completions", body, Origin="http://localhost:3000")[0] == 200


def _connections_of_engine(server: Server, endpoint: str) -> int:
    pid = next(row["pid"] for row in server_engines(server) if row["endpoint"] == endpoint)
    return sum(each.status == "ESTABLISHED" for each in psutil.Process(pid).net_connections("tcp"))


def server_engines(server: Server) -> list[dict[str, Any]]:
    from sagemaker_local.process.client import status

    return [dict(row) for row in status(server.status.port).to_dict()["engines"]]


def test_a_client_that_leaves_ends_the_engine_s_work(server: Server) -> None:
    endpoint = server.deploy()
    with serving(server, endpoint) as proxy:
        stream = _chat(proxy, SCRIPT_INVOKE="chat", SCRIPT_CHUNKS=200, SCRIPT_CHUNK_DELAY=0.05)
        next(iter(stream))
        assert proxy.running.proxy.busy == 1
        stream.close()
        assert eventually(lambda: proxy.running.proxy.busy == 0)
        assert proxy.last().failed
        assert eventually(lambda: _connections_of_engine(server, endpoint) == 0)


def test_draining_lets_a_stream_end_and_takes_nothing_new(proxy: Serving, server: Server) -> None:
    with serving(server, proxy.running.proxy.model) as own:
        stream = own.client().chat.completions.create(
            model="",
            messages=QUESTION,
            stream=True,
            extra_body=script(SCRIPT_INVOKE="chat", SCRIPT_CHUNKS=10, SCRIPT_CHUNK_DELAY=0.03),
        )
        iterator = iter(stream)
        next(iterator)
        drained = own.drain(20)
        eventually(lambda: own.running.proxy.draining)
        status, headers, _ = ask(own, "GET", "/v1/models")
        assert status == 503
        assert headers["Retry-After"]
        assert len(list(iterator)) == 11
        assert drained.result(20) is True
