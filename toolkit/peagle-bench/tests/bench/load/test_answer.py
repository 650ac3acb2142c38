"""From the bytes of an answer to its figures, whole or not."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any

import pytest

from peagle_bench.load.answer import Answer, AnswerReader
from sagemaker_local.wire import eventstream

USAGE = {"prompt_tokens": 5, "completion_tokens": 4}


def _event(document: Mapping[str, Any]) -> bytes:
    return b"data: " + json.dumps(document).encode() + b"\n\n"


def _chunk(text: str, finish: str | None = None, **more: Any) -> bytes:
    return _event({"choices": [{"index": 0, "text": text, "finish_reason": finish, **more}]})


def _delta(finish: str | None = None, **delta: Any) -> bytes:
    return _event({"choices": [{"index": 0, "delta": delta, "finish_reason": finish}]})


END = _event({"choices": [], "usage": USAGE}) + b"data: [DONE]\n\n"


def _read(*parts: bytes, framed: bool = False) -> Answer:
    """Part number n arrives at n seconds; the request was sent at -1."""
    reader = AnswerReader(framed=framed)
    for number, part in enumerate(parts):
        reader.take([(part, float(number))])
    return reader.finish(99.0, sent=-1.0)


def test_a_whole_answer() -> None:
    answer = _read(_chunk("a"), _chunk("b"), _chunk("", None), _chunk("c", "stop"), END)
    assert answer.error is None
    assert (answer.first, answer.last, answer.done, answer.sent) == (0.0, 3.0, 99.0, -1.0)
    assert answer.gaps_ms == (1000.0, 2000.0)
    assert (answer.chunks, answer.input_tokens, answer.output_tokens) == (3, 5, 4)
    assert (answer.text, answer.finish_reason) == ("abc", "stop")
    assert answer.output_sha256 == hashlib.sha256(b'"abc"').hexdigest()


def test_the_role_that_opens_a_chat_is_no_chunk_but_thinking_and_calling_tools_are() -> None:
    call = {"index": 0, "function": {"name": "f", "arguments": "{}"}}
    answer = _read(
        _delta(role="assistant", content=""),
        _delta(reasoning_content="hm"),
        _delta(content="yes"),
        _delta(tool_calls=[call]),
        _delta("tool_calls"),
        END,
    )
    assert (answer.chunks, answer.first, answer.last) == (3, 1.0, 3.0)
    assert answer.text == "yes" + json.dumps([{"name": "f", "arguments": "{}"}])
    assert answer.output_sha256 == hashlib.sha256(json.dumps("hm" + answer.text).encode()).hexdigest()


def test_tool_calls_are_the_same_however_their_chunks_are_cut_and_whatever_their_ids() -> None:
    def read(*calls: tuple[str, str, str]) -> str | None:
        parts = [
            _delta(tool_calls=[{"index": 0, "id": name, "function": {"name": function, "arguments": text}}])
            for name, function, text in calls
        ]
        return _read(*parts, _delta("tool_calls"), END).output_sha256

    plain = read(("call-1", "f", ""), ("", "", '{"a"'), ("", "", ": 1}"))
    assert read(("call-9", "f", '{"a": 1}')) == plain
    assert read(("call-1", "f", '{"a": 2}')) != plain
    assert read(("call-1", "g", '{"a": 1}')) != plain


@pytest.mark.parametrize(
    ("usage", "read"),
    [
        ({"prompt_tokens": "5", "completion_tokens": 4}, (None, 4, None, None)),
        ({"prompt_tokens": -1, "completion_tokens": 4, "prompt_tokens_details": [1]}, (None, 4, None, None)),
        ({"completion_tokens": 4, "metrics": [1]}, (None, 4, None, None)),
        (
            {"completion_tokens": 4, "metrics": {"speculative_decoding": {"num_spec_steps": 2.5}}},
            (None, 4, None, None),
        ),
        ({"completion_tokens": True}, (None, None, None, "NoUsage")),
        ([4], (None, None, None, "NoUsage")),
    ],
)
def test_counts_that_are_none_are_unknown(usage: object, read: tuple[object, ...]) -> None:
    answer = _read(_chunk("a", "stop"), _event({"choices": [], "usage": usage}), b"data: [DONE]\n\n")
    assert (answer.input_tokens, answer.output_tokens, answer.drafts, answer.error) == read
    assert answer.cached_tokens is None


def test_outputs_are_told_apart_by_token_ids_where_all_are_known() -> None:
    known = _read(
        _chunk("a", token_ids=[1]), _chunk("", token_ids=[2, 3]), _chunk("b", "stop", token_ids=[4]), END
    )
    assert known.chunks == 3
    assert known.output_sha256 == hashlib.sha256(b"[1, 2, 3, 4]").hexdigest()
    partly = _read(_chunk("a", token_ids=[1]), _chunk("b", "stop"), END)
    assert partly.output_sha256 == hashlib.sha256(b'"ab"').hexdigest()


@pytest.mark.parametrize(
    ("ids", "share"), [([1] * 13, 0.1), (list(range(13)), 1.0), ([1, 2], 1.0), ([1, 2, 3, 4] * 2, 0.8)]
)
def test_an_answer_that_repeats_itself_has_few_distinct_4_grams(ids: list[int], share: float) -> None:
    assert _read(_chunk("a", "stop", token_ids=ids), END).distinct_4_grams == share


def test_without_token_ids_the_4_grams_are_of_words() -> None:
    assert _read(_chunk("a b c d "), _chunk("a b c d", "stop"), END).distinct_4_grams == 0.8


@pytest.mark.parametrize("inside_usage", [False, True])
def test_acceptance_rides_on_the_last_chunk(inside_usage: bool) -> None:
    fields = {
        "speculative_decoding": {
            "num_spec_steps": 3,
            "num_accepted_draft_tokens": 4,
            "acceptance_histogram": [1, 0, 2],
        }
    }
    usage = {"usage": {**USAGE, "metrics": fields}} if inside_usage else {"usage": USAGE, "metrics": fields}
    answer = _read(_chunk("a", "stop"), _event({"choices": [], **usage}), b"data: [DONE]\n\n")
    assert (answer.drafts, answer.accepted, answer.histogram) == (3, 4, (1, 0, 2))


def test_a_step_without_a_draft_is_a_step() -> None:
    """n-gram drafts only where the text repeats: 2 of the 90 steps behind the first of 96 tokens."""
    fields = {"num_spec_steps": 2, "num_accepted_draft_tokens": 5, "acceptance_histogram": [0, 0, 1, 1]}
    usage = {"usage": {**USAGE, "completion_tokens": 96}, "metrics": {"speculative_decoding": fields}}
    answer = _read(_chunk("a", "stop"), _event({"choices": [], **usage}), b"data: [DONE]\n\n")
    assert (answer.drafts, answer.accepted, answer.histogram) == (90, 5, (88, 0, 1, 1))


def test_frames_are_taken_off_wherever_they_are_cut() -> None:
    data = b"".join(eventstream.payload_part(part) for part in (_chunk("a"), _chunk("ä", "stop"), END))
    answer = _read(data[:150], data[150:151], data[151:], framed=True)
    assert (answer.error, answer.text, answer.chunks) == (None, "aä", 2)


@pytest.mark.parametrize(
    ("parts", "name", "words"),
    [
        ([], "StreamError", "ended before the answer"),
        ([_chunk("a")], "StreamError", "no finish_reason"),
        ([_chunk("a"), b'data: {"choices": [{"te'], "StreamError", "cut in the middle of an event"),
        ([_chunk("a", "stop"), b"data: [DONE]\n\n"], "NoUsage", "completion_tokens"),
        ([_chunk("a"), _event({"error": {"message": "out of memory"}}), END], "EngineError", "out of memory"),
        ([_chunk("a"), _event({"object": "error", "message": "bad"})], "EngineError", "bad"),
        ([_chunk("a"), _event({"detail": "bad"})], "EngineError", "bad"),
        ([_chunk("a", "abort"), END], "EngineError", "aborted the answer: finish_reason 'abort'"),
        ([_chunk("a", "error"), END], "EngineError", "aborted the answer: finish_reason 'error'"),
        ([_chunk("a"), b"data: {]\n\n", END], "StreamError", "not JSON"),
        ([_chunk("a"), b"data: 7\n\n", END], "StreamError", "not a JSON object"),
        ([_event({"choices": [7]}), END], "StreamError", "not an OpenAI completion"),
        (
            [_event({"choices": [{"text": 7}]}), _chunk("", "stop"), END],
            "StreamError",
            "not an OpenAI completion",
        ),
    ],
)
def test_what_is_not_whole_is_an_error_with_its_words(parts: list[bytes], name: str, words: str) -> None:
    answer = _read(*parts)
    assert answer.error == name
    assert words in (answer.error_message or "")
    assert (answer.output_sha256, answer.distinct_4_grams) == (None, None)


def test_token_ids_of_any_kind_do_not_stop_the_load() -> None:
    assert _read(_chunk("a", "stop", token_ids=[{}] * 5), END).distinct_4_grams == 0.5


def test_what_came_before_an_error_is_kept() -> None:
    answer = _read(_chunk("a"), _chunk("b"), b"data: {]\n\n")
    assert (answer.text, answer.chunks) == ("ab", 2)


def test_nothing_after_the_end_matters() -> None:
    whole = [_chunk("a", "stop"), END]
    assert _read(*whole, b"data: {]\n\n").error is None
    reader = AnswerReader(framed=False)
    reader.take([(part, 0.0) for part in whole])
    reader.fail("ConnectionLost", "after the end")
    assert reader.finish(1.0, sent=0.0).error is None


def test_an_exception_frame_gives_its_name() -> None:
    data = eventstream.payload_part(_chunk("a"))
    fields = {"Message": "gone", "ErrorCode": "StreamBroken"}
    answer = _read(data, eventstream.exception("ModelStreamError", fields), framed=True)
    assert (answer.error, answer.error_message) == ("ModelStreamError", "StreamBroken: gone")
    damaged = _read(data[:-1] + b"\x00", framed=True)
    assert (damaged.error, damaged.chunks) == ("StreamError", 0)
    cut = _read(eventstream.payload_part(_chunk("a", "stop") + END), data[:20], framed=True)
    assert cut.error is None or "cut" in (cut.error_message or "")
