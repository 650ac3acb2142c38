"""OpenAI's Responses API through `peagle-sm serve`: the translation, and OpenAI's own client over HTTP."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import openai
import pytest
from hypothesis import given
from hypothesis import strategies as st
from openai.types import responses as models
from pydantic import TypeAdapter

from peagle_sm.core.errors import SpecError, StreamCut
from peagle_sm.service.serving.responses import ResponseRelay, chat_of, response_of
from peagle_sm.service.serving.upstream import of_stream
from sagemaker_local.wire import eventstream
from tests.local.openai_client import script
from tests.local.serving import Server
from tests.service.serving.proxies import Serving, serving

USER = [{"role": "user", "content": "hi"}]
USAGE = {"prompt_tokens": 7, "completion_tokens": 3, "total_tokens": 10}
EVENT: TypeAdapter[Any] = TypeAdapter(models.ResponseStreamEvent)


@pytest.mark.parametrize(
    ("asked", "chat"),
    [
        ({"input": "hi"}, {"messages": USER}),
        ({"input": USER, "instructions": None, "store": False}, {"messages": USER}),
        (
            {
                "input": "hi",
                "instructions": "Be brief.",
                "max_output_tokens": 5,
                "temperature": 0,
                "top_p": 0.5,
            },
            {
                "messages": [{"role": "system", "content": "Be brief."}, *USER],
                "max_tokens": 5,
                "temperature": 0,
                "top_p": 0.5,
            },
        ),
        (
            {"input": [{"role": "developer", "content": "In French."}, *USER], "instructions": "Be brief."},
            {"messages": [{"role": "system", "content": "Be brief.\n\nIn French."}, *USER]},
        ),
        (
            {
                "input": [
                    {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "hi"}]},
                    {"type": "reasoning", "id": "rs_1", "summary": []},
                    {
                        "type": "message",
                        "role": "assistant",
                        "content": [{"type": "output_text", "text": "ho", "annotations": []}],
                    },
                ]
            },
            {"messages": [*USER, {"role": "assistant", "content": "ho"}]},
        ),
        (
            {"input": "hi", "stream": True, "model": "m", "top_k": 4, "reasoning": {"effort": "low"}},
            {
                "messages": USER,
                "stream": True,
                "stream_options": {"include_usage": True},
                "model": "m",
                "top_k": 4,
                "reasoning_effort": "low",
            },
        ),
        (
            {"input": "hi", "text": {"format": {"type": "json_schema", "name": "n", "schema": {}}}},
            {
                "messages": USER,
                "response_format": {"type": "json_schema", "json_schema": {"name": "n", "schema": {}}},
            },
        ),
    ],
)
def test_what_a_request_becomes(asked: dict[str, Any], chat: dict[str, Any]) -> None:
    assert chat_of(asked) == chat


@pytest.mark.parametrize(
    ("asked", "words"),
    [
        ({"previous_response_id": "resp_1"}, 'previous_response_id: found "resp_1"; allowed here: nothing'),
        ({"conversation": "c"}, "conversation: found"),
        ({"store": True}, "store: found true; allowed here: false"),
        ({"background": True}, "background: found true; allowed here: false"),
        ({"tools": [{"type": "web_search"}]}, "tools: found"),
        ({"n": 2}, "n: found 2; allowed here: nothing; it is not a parameter of /v1/responses"),
        ({"input": []}, "input: found []"),
        ({"input": 7}, "input: found 7; allowed here: a text or a list of messages"),
        ({"input": [{"type": "function_call_output"}]}, 'input[0].type: found "function_call_output"'),
        ({"input": [{"role": "tool", "content": "x"}]}, 'input[0].role: found "tool"'),
        (
            {"input": [{"role": "user", "content": [{"type": "input_image"}]}]},
            'input[0].content[0].type: found "input_image"; allowed here: input_text',
        ),
        ({"reasoning": {"summary": "auto"}}, "reasoning.summary: found"),
        ({"text": {"format": {"type": "grammar"}}}, "text.format.type: found"),
    ],
)
def test_what_chat_completions_cannot_carry_is_refused(asked: dict[str, Any], words: str) -> None:
    with pytest.raises(SpecError) as caught:
        chat_of({"input": "hi", **asked})
    assert words in caught.value.message


def test_a_whole_answer_is_a_response() -> None:
    message = {"role": "assistant", "content": "ho", "reasoning": "hm"}
    document = {
        "id": "chatcmpl-1",
        "created": 5,
        "model": "m",
        "choices": [{"index": 0, "message": message, "finish_reason": "length"}],
        "usage": USAGE,
    }
    model_validate = models.Response.model_validate(
        response_of({"input": "hi", "max_output_tokens": 3}, document)
    )
    assert (model_validate.id, model_validate.created_at, model_validate.output_text) == ("resp_1", 5, "ho")
    assert [item.type for item in model_validate.output] == ["reasoning", "message"]
    assert model_validate.status == "incomplete"
    assert model_validate.incomplete_details is not None
    assert model_validate.incomplete_details.reason == "max_output_tokens"
    assert model_validate.usage is not None
    assert (
        model_validate.usage.input_tokens,
        model_validate.usage.output_tokens,
        model_validate.usage.total_tokens,
    ) == (7, 3, 10)


def chat_event(**delta: str) -> dict[str, Any]:
    return {"id": "chatcmpl-1", "created": 5, "model": "m", "choices": [{"index": 0, "delta": delta}]}


def chat_stream(*deltas: dict[str, str], finish: str = "stop") -> bytes:
    events = [chat_event(role="assistant", content=""), *(chat_event(**each) for each in deltas)]
    last = {"choices": [{"index": 0, "delta": {}, "finish_reason": finish}]}
    documents = [*events, last, {"choices": [], "usage": USAGE}]
    sse = "".join(f"data: {json.dumps(each)}\n\n" for each in documents)
    return f"{sse}data: [DONE]\n\n".encode()


def relayed(data: bytes, places: list[int]) -> tuple[list[dict[str, Any]], ResponseRelay]:
    relay = ResponseRelay({"input": "hi"})
    ends = sorted({place % (len(data) + 1) for place in places})
    parts = [data[a:b] for a, b in zip([0, *ends], [*ends, len(data)], strict=True)]
    passed = b"".join(relay.feed(part) for part in parts) + relay.finish()
    events = []
    for event in filter(None, passed.decode().split("\n\n")):
        name, _, written = event.partition("\n")
        events.append(json.loads(written.removeprefix("data: ")))
        assert name == f"event: {events[-1]['type']}"
    return events, relay


ITEM = ["response.output_item.added", "response.content_part.added"]
ENDED = ["response.content_part.done", "response.output_item.done"]


@given(
    st.lists(st.text(min_size=1), max_size=5),
    st.lists(st.text(min_size=1), max_size=5),
    st.lists(st.integers(0, 9000), max_size=20),
    st.lists(st.integers(0, 4000), max_size=5),
)
def test_the_events_come_in_the_documented_order_however_the_stream_is_cut(
    thoughts: list[str], texts: list[str], places: list[int], inner: list[int]
) -> None:
    sse = chat_stream(*({"reasoning": each} for each in thoughts), *({"content": each} for each in texts))
    edges = sorted({place % (len(sse) + 1) for place in inner})
    frames = [sse[a:b] for a, b in zip([0, *edges], [*edges, len(sse)], strict=True)]
    events, relay = relayed(b"".join(map(eventstream.payload_part, frames)), places)
    reasoning = [
        *ITEM,
        *["response.reasoning_text.delta"] * len(thoughts),
        "response.reasoning_text.done",
        *ENDED,
    ]
    message = [*ITEM, *["response.output_text.delta"] * len(texts), "response.output_text.done", *ENDED]
    assert [event["type"] for event in events] == [
        "response.created",
        "response.in_progress",
        *(reasoning if thoughts else []),
        *(message if texts or not thoughts else []),
        "response.completed",
    ]
    assert [event["sequence_number"] for event in events] == list(range(len(events)))
    for event in events:
        EVENT.validate_python(event)  # OpenAI's own models
    last = models.Response.model_validate(events[-1]["response"])
    assert last.output_text == "".join(texts)
    items = [event["item"] for event in events if event["type"] == "response.output_item.done"]
    assert items == events[-1]["response"]["output"]
    assert relay.tokens == 3


@given(st.data())
def test_a_response_that_is_cut_has_no_end(data: st.DataObject) -> None:
    sse = chat_stream({"content": "a"}, {"content": "b"})
    frames = eventstream.payload_part(sse[: data.draw(st.integers(0, sse.index(b'"finish_reason"')))])
    events, relay = relayed(frames, data.draw(st.lists(st.integers(0, 3000), max_size=10)))
    assert isinstance(relay.problem, StreamCut)
    assert not {"response.completed", "response.incomplete"} & {event["type"] for event in events}
    name, _, written = relay.failure(of_stream(relay.problem)).decode().strip().partition("\ndata: ")
    document = json.loads(written)
    assert name == "event: error"
    assert document["sequence_number"] == len(events)
    EVENT.validate_python(document)


@pytest.fixture(scope="module")
def proxy(server: Server) -> Iterator[Serving]:
    with serving(server, server.deploy()) as running:
        yield running


def say(told: str) -> dict[str, Any]:
    return script(SCRIPT_INVOKE="say", SCRIPT_BODY=told)


@pytest.mark.slow
def test_openai_s_client_reads_a_whole_response(proxy: Serving) -> None:
    answer = proxy.client().responses.create(
        model=proxy.running.proxy.model,
        input="hi",
        extra_body=script(SCRIPT_INVOKE="openai", SCRIPT_CHUNKS=2),
    )
    assert answer.output_text == "token0 token1 "
    assert answer.status == "incomplete"  # the scripted engine ends at its length
    assert proxy.last().line().startswith("POST /v1/responses 200  tokens 2  AL -  ")


@pytest.mark.slow
def test_openai_s_client_reads_a_stream_of_a_response(proxy: Serving) -> None:
    with proxy.client().responses.stream(
        model="", input="hi", extra_body=say(chat_stream({"content": "a"}, {"content": "b"}).decode())
    ) as stream:
        deltas = [event.delta for event in stream if event.type == "response.output_text.delta"]
        final = stream.get_final_response()
    assert deltas == ["a", "b"]
    assert (final.output_text, final.status) == ("ab", "completed")
    assert proxy.last().tokens == 3


@pytest.mark.slow
@pytest.mark.parametrize(
    ("told", "words"),
    [
        (
            chat_stream({"content": "a"})
            .decode()
            .partition('data: {"choices": [{"index": 0, "delta": {}')[0],
            "ended",
        ),
        ('data: {"object": "error", "message": "out of memory"}\n\ndata: [DONE]\n\n', "out of memory"),
    ],
    ids=["cut", "error"],
)
def test_openai_s_client_raises_where_a_response_breaks(proxy: Serving, told: str, words: str) -> None:
    with pytest.raises(openai.APIError, match=words):
        list(proxy.client().responses.create(model="", input="hi", stream=True, extra_body=say(told)))


@pytest.mark.slow
def test_a_refused_request_is_400_and_an_answer_that_is_no_chat_502(proxy: Serving) -> None:
    client = proxy.client()
    with pytest.raises(openai.BadRequestError, match="previous_response_id: found"):
        client.responses.create(model="", input="hi", previous_response_id="resp_1")
    with pytest.raises(openai.BadRequestError, match="lacks 'input'"):
        client.post("/responses", body={}, cast_to=object)
    with pytest.raises(openai.InternalServerError, match="not a chat completion"):
        client.responses.create(model="", input="hi", extra_body=say("{}"))
