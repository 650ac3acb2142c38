"""What a stream holds beside its text comes typed, from recordings; of a whole answer too."""

from __future__ import annotations

import json
from typing import Any

import pytest

from peagle_sm.aws.session.session import Session
from peagle_sm.aws.streams import runtime
from peagle_sm.aws.streams.answers import TokenLogprob, ToolCall, ToolCallPart, Usage
from peagle_sm.aws.streams.decoding import Assembler
from peagle_sm.aws.streams.token_stream import TokenStream
from peagle_sm.core.errors import StreamTooLarge
from tests.aws.streams import framed, read, recorded


def _read(name: str) -> TokenStream:
    stream = read([framed(name)], frames=True)
    list(stream)
    return stream


def test_thoughts_answer_and_tool_call_of_gpt_oss() -> None:
    stream = _read("chat-reasoning.sse")
    assert stream.reasoning == "The user asks in German: “Grüß” \u2013 answer briefly. 🤔"
    assert stream.text == "Grüß dich, 世界 👋🏽!"
    assert stream.tool_calls == (ToolCall("chatcmpl-tool-5e0f4c1b2a3d", "get_weather", '{"city": "Köln"}'),)
    assert stream.summary.finish_reason == "tool_calls"
    assert stream.summary.usage == Usage(81, 46, 127, cached_tokens=64, reasoning_tokens=19)
    assert stream.summary.to_dict()["usage"]["reasoning_tokens"] == 19
    whole = stream.completion
    assert (whole.text, whole.reasoning, whole.tool_calls) == (
        stream.text,
        stream.reasoning,
        stream.tool_calls,
    )


def test_the_older_name_of_thoughts() -> None:
    old = recorded("chat-reasoning.sse").replace(b'"reasoning":', b'"reasoning_content":')
    stream = read([old])
    list(stream)
    assert stream.reasoning == _read("chat-reasoning.sse").reasoning


def test_a_tool_call_comes_in_pieces_that_are_joined() -> None:
    stream = read([framed("chat-tools.sse")], frames=True)
    pieces = [piece for chunk in stream for piece in chunk.tool_calls]
    assert pieces[0] == ToolCallPart(0, pieces[0].id, "get_weather")
    assert pieces[0].id.startswith("chatcmpl-tool-")
    (call,) = stream.tool_calls
    assert (call.id, call.name, call.arguments) == (pieces[0].id, "get_weather", '"get_weather"')
    assert stream.text == ""
    assert stream.summary.ttft_ms is not None


def test_log_probabilities_of_a_chat() -> None:
    stream = _read("chat-logprobs.sse")
    assert len(stream.logprobs) == stream.summary.output_tokens == 8
    assert "".join(each.token for each in stream.logprobs) == stream.text
    last = stream.logprobs[-1]
    assert last == TokenLogprob(
        "inary",
        -0.18590277433395386,
        (("inary", -0.18590277433395386), ("oo", -3.4984028339385986)),
        b"inary",
    )


def test_log_probabilities_of_a_completion() -> None:
    stream = _read("completion-logprobs.sse")
    assert "".join(each.token for each in stream.logprobs) == stream.text
    assert stream.logprobs[0] == TokenLogprob(
        "\n   ", -1.045282244682312, (("\n   ", -1.045282244682312), ("\n       ", -1.107782244682312))
    )


def test_acceptance_of_a_recorded_answer() -> None:
    summary = _read("chat-acceptance.sse").summary
    assert summary.acceptance is not None
    assert summary.acceptance.acceptance_length == pytest.approx(3.9167, abs=1e-4)
    assert summary.acceptance.histogram == (5, 1, 2, 1, 0, 0, 0, 0, 0, 3)
    assert (summary.output_tokens, summary.prompt_tokens) == (48, 12)


def test_acceptance_in_a_form_that_is_not_known_costs_no_answer() -> None:
    changed = recorded("chat-acceptance.sse").replace(b"acceptance_histogram", b"something_new")
    stream = read([changed])
    assert list(stream)
    assert stream.summary.acceptance is None
    assert stream.summary.output_tokens == 48


def test_two_halves_of_a_character_that_stand_together_are_one() -> None:
    event = b'data: {"choices": [{"text": "\\ud83d\\ude00", "finish_reason": "stop"}]}\n\n'
    stream = read([event])
    assert [chunk.text for chunk in stream] == ["😀"]


@pytest.mark.parametrize(
    "choice",
    [{"text": "x" * 40}, {"delta": {"reasoning": "x" * 40}}, {"delta": {"tool_calls": [{"index": 0}]}}],
    ids=str,
)
def test_an_answer_that_never_ends_is_dropped(choice: dict[str, Any]) -> None:
    assembler = Assembler(framed=False, max_answer_bytes=1000)
    event = b"data: " + json.dumps({"choices": [choice]}).encode() + b"\n\n"
    for _ in range(200):
        assembler.feed(event, 0.0)
    assert isinstance(assembler.problem, StreamTooLarge)
    assert len(assembler.text) <= 1040


class _Client:
    """A client of the data plane that gives one answer."""

    def __init__(self, answer: dict[str, Any]) -> None:
        self._answer = answer

    def client(self, service: str, **_: Any) -> _Client:
        return self

    def invoke_endpoint(self, **_: Any) -> dict[str, Any]:
        import io

        return {"Body": io.BytesIO(json.dumps(self._answer).encode())}


def test_a_whole_answer_is_typed_alike() -> None:
    call = {"id": "c1", "type": "function", "function": {"name": "f", "arguments": '{"a": 1}'}}
    fields = {"token": "4", "logprob": -0.5, "bytes": [52], "top_logprobs": []}
    choice = {
        "message": {"content": None, "reasoning": "hm", "tool_calls": [call, {**call, "id": "c2"}]},
        "logprobs": {"content": [fields]},
        "finish_reason": "tool_calls",
    }
    answer = {"choices": [choice], "usage": {"prompt_tokens": 5, "completion_tokens": 9}}
    got = runtime.invoke(Session(_Client(answer), "us-east-1"), "demo", b"{}")
    assert (got.text, got.reasoning, got.finish_reason) == ("", "hm", "tool_calls")
    assert got.tool_calls == (ToolCall("c1", "f", '{"a": 1}'), ToolCall("c2", "f", '{"a": 1}'))
    assert got.logprobs == (TokenLogprob("4", -0.5, (), b"4"),)
    assert got.summary.usage == Usage(5, 9, None)
