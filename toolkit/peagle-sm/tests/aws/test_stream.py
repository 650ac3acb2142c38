"""A recorded stream gives its chunks and figures however it is cut; cut short, it gives a typed error."""

from __future__ import annotations

import json

import pytest
from botocore.eventstream import ChecksumMismatch
from botocore.exceptions import EventStreamError, ReadTimeoutError
from hypothesis import given
from hypothesis import strategies as st
from urllib3.exceptions import ProtocolError

from peagle_sm.aws.streams.answers import acceptance_of
from peagle_sm.core.errors import PeagleError, SpecError, StreamDamaged, StreamError, StreamReportedError
from tests.aws.streams import breaking, cut_at, read, recorded

CHAT = recorded("chat-usage.sse")
COMPLETION = recorded("completion-continuous-usage.sse")
CHAT_TEXT = "&T+Y*;.R*;.R*;.R"


def _sse(*documents: object) -> bytes:
    return b"".join(b"data: " + json.dumps(one, ensure_ascii=False).encode() + b"\n\n" for one in documents)


def _delta(text: str, finish: str | None = None) -> dict[str, object]:
    return {"choices": [{"index": 0, "text": text, "finish_reason": finish}]}


@given(text=st.text(min_size=1), positions=st.lists(st.integers(0, 10_000), max_size=40))
def test_any_text_survives_any_cut(text: str, positions: list[int]) -> None:
    data = _sse(*(_delta(character) for character in text), _delta("", "stop")) + b"data: [DONE]\n\n"
    stream = read(cut_at(data, positions))
    assert "".join(chunk.text for chunk in stream) == text


def test_all_events_in_one_part_and_without_a_last_blank_line() -> None:
    stream = read([CHAT.rstrip(b"\n")])
    assert len(list(stream)) == 8
    assert stream.text == CHAT_TEXT
    summary = stream.summary
    assert (summary.output_tokens, summary.prompt_tokens, summary.finish_reason) == (8, 5, "length")
    assert summary.acceptance_length == 1.0


def test_a_stream_that_was_cut_has_no_summary() -> None:
    stream = read([CHAT[: len(CHAT) // 2]])
    with pytest.raises(StreamError):
        list(stream)
    with pytest.raises(PeagleError, match="not ended"):
        _ = stream.summary


def test_a_finish_reason_without_done_is_whole() -> None:
    stream = read([_sse(_delta("a"), _delta("b", "stop"))])
    assert [chunk.text for chunk in stream] == ["a", "b"]
    assert stream.summary.output_tokens is None
    assert stream.summary.otps is None


def test_tokens_per_chunk_are_told_where_the_engine_tells_them() -> None:
    assert [chunk.token_count for chunk in read([COMPLETION])] == [3, 1]
    assert [chunk.token_count for chunk in read([CHAT])] == [None] * 8
    ids = {"choices": [{"text": "ab", "token_ids": [5, 6], "finish_reason": "stop"}]}
    assert [chunk.token_count for chunk in read([_sse(ids)])] == [2]


def test_a_step_without_a_draft_counts_for_the_acceptance_length() -> None:
    """n-gram drafts only where the text repeats: 2 of the 90 steps behind the first of 96 tokens."""
    metrics = {
        "mean_acceptance_length": 3.5,
        "acceptance_histogram": [0, 0, 1, 1],
        "num_spec_steps": 2,
        "num_accepted_draft_tokens": 5,
        "num_draft_tokens": 6,
        "num_spec_tokens": 3,
    }
    acceptance = acceptance_of(
        {"usage": {"completion_tokens": 96}, "metrics": {"speculative_decoding": metrics}}
    )
    assert acceptance is not None
    assert acceptance.acceptance_length == pytest.approx(95 / 90)
    assert (acceptance.target_steps, acceptance.histogram) == (90, (88, 0, 1, 1))
    assert acceptance.survival == pytest.approx((2 / 90, 2 / 90, 1 / 90))


def test_the_figures_of_a_stream() -> None:
    metrics = {
        "speculative_decoding": {
            "mean_acceptance_length": 2.5,
            "draft_acceptance_rate": 0.5,
            "acceptance_histogram": [1, 0, 2, 1],
            "num_spec_steps": 4,
            "num_accepted_draft_tokens": 7,
            "num_draft_tokens": 12,
            "num_spec_tokens": 3,
        }
    }
    usage = {"prompt_tokens": 3, "completion_tokens": 11}
    parts = [_sse(_delta("a")), _sse(_delta("b")), _sse(_delta("c", "stop"))]
    parts += [_sse({"choices": [], "usage": usage, "metrics": metrics}), b"data: [DONE]\n\n"]
    stream = read(parts)
    list(stream)
    summary = stream.summary
    # The clock ticks a millisecond at each part, and once more at the end.
    assert (summary.ttft_ms, summary.total_ms) == (pytest.approx(1), pytest.approx(6))
    assert summary.otps == pytest.approx(11 / 0.006)
    assert summary.tpot_ms == pytest.approx(2 / 10)
    assert summary.acceptance is not None
    assert summary.acceptance.survival == (0.75, 0.75, 0.25)
    assert summary.acceptance_length == 2.5
    assert summary.to_dict()["acceptance"]["target_steps"] == 4
    assert json.dumps(summary.to_dict())


def test_reasoning_counts_as_the_first_token_but_is_not_text() -> None:
    thinking = {"choices": [{"delta": {"reasoning_content": "hmm"}, "finish_reason": None}]}
    answer = {"choices": [{"delta": {"content": "4"}, "finish_reason": "stop"}]}
    stream = read([_sse(thinking, answer)])
    assert [(chunk.text, chunk.reasoning) for chunk in stream] == [("", "hmm"), ("4", "")]
    assert stream.text == "4"
    assert stream.summary.ttft_ms == pytest.approx(1)


@pytest.mark.parametrize(
    "document",
    [
        {"error": {"message": "out of memory", "code": 500}},
        {"object": "error", "message": "out of memory", "code": 500},
        {"error": "out of memory"},
        {"detail": "out of memory"},
        {"detail": [{"loc": ["body"], "msg": "out of memory"}]},
    ],
)
def test_an_error_in_the_stream_is_an_error_even_before_done(document: dict[str, object]) -> None:
    stream = read([_sse(_delta("so far"), document), b"data: [DONE]\n\n"])
    with pytest.raises(StreamError, match="out of memory") as caught:
        list(stream)
    assert caught.value.partial_text == "so far"


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (
            EventStreamError(
                {"Error": {"Code": "ModelStreamError", "Message": "the container closed the connection"}},
                "InvokeEndpointWithResponseStream",
            ),
            "ModelStreamError: the container closed the connection",
        ),
        (ReadTimeoutError(endpoint_url="https://x"), "no bytes for 490 s"),
        (ProtocolError("Connection broken: IncompleteRead"), "connection broke"),
        (ConnectionResetError("reset"), "connection broke"),
        (ChecksumMismatch(1, 2), "damaged"),
    ],
    ids=lambda value: type(value).__name__,
)
def test_every_way_to_break_has_a_type_and_the_text(error: Exception, words: str) -> None:
    stream = read(breaking([_sse(_delta("so far"))], error))
    with pytest.raises(StreamError, match=words) as caught:
        list(stream)
    assert caught.value.partial_text == "so far"
    assert caught.value.__cause__ is error


def test_a_break_after_done_does_not_matter() -> None:
    stream = read(breaking([CHAT], ProtocolError("late")))
    list(stream)
    assert stream.summary.output_tokens == 8


def test_a_fault_of_ours_is_not_taken_for_a_broken_stream() -> None:
    with pytest.raises(ZeroDivisionError):
        list(read(breaking([], ZeroDivisionError())))


@pytest.mark.parametrize(
    ("part", "words"),
    [
        (b"data: {oops}\n\n", "not JSON"),
        (b"data: [1]\n\n", "not an object"),
        (b"data: \xff\n\n", "not UTF-8"),
        (b"data: " + b"[" * 100_000 + b"\n\n", "not JSON"),
        (b'data: {"object": "model"}\n\n', "is not a completion"),
        (b'data: {"choices": [{"text": 7}]}\n\n', "is not a completion"),
        (b'data: {"choices": [{"index": 0}]}\n\n', "is not a completion"),
        (b'data: {"choices": [{"text": "", "finish_reason": 7}]}\n\n', "is not a completion"),
        (b'data: {"choices": [], "usage": {"completion_tokens": "7"}}\n\n', "is not a completion"),
        (b'data: {"choices": [{"text": "\\ud83d"}]}\n\n', "half a character"),
        (b"dbta: {}\n\n", "no known field"),
    ],
)
def test_what_is_not_an_event_of_a_completion(part: bytes, words: str) -> None:
    stream = read([_sse(_delta("so far")) + part + _sse(_delta("after", "stop"))])
    assert next(stream).text == "so far"
    for _ in range(2):  # it does not pass for an end when it is asked again
        with pytest.raises(StreamDamaged, match=words) as caught:
            next(stream)
        assert caught.value.partial_text == "so far"


@pytest.mark.parametrize("reason", ["abort", "error"])
def test_an_answer_that_the_engine_gave_up_is_an_error_with_its_text(reason: str) -> None:
    stream = read([_sse(_delta("so "), _delta("far", reason)), b"data: [DONE]\n\n"])
    with pytest.raises(StreamReportedError, match=f"finish_reason '{reason}'") as caught:
        list(stream)
    assert caught.value.partial_text == "so far"


WHOLE = {"object": "text_completion", "choices": [{"index": 0, "text": "a", "finish_reason": "stop"}]}


@pytest.mark.parametrize("indent", [None, 2])
@given(positions=st.lists(st.integers(0, 200), max_size=20), newline=st.booleans())
def test_an_engine_that_ignores_stream_is_not_asked_again(
    indent: int | None, positions: list[int], newline: bool
) -> None:
    data = json.dumps(WHOLE, indent=indent).encode() + b"\n" * newline
    with pytest.raises(StreamDamaged, match="ignored `stream`") as caught:
        list(read(cut_at(data, positions)))
    assert caught.value.next_step is not None
    assert "--no-stream" in caught.value.next_step
    assert "again" not in caught.value.next_step


def test_an_error_of_the_engine_without_a_stream_is_an_error_in_its_words() -> None:
    with pytest.raises(StreamReportedError, match="out of memory"):
        list(read([b'{"detail": "out of memory"}']))


MIN_P = "The min_p and logit_bias sampling parameters are not yet supported with speculative decoding."
REFUSED = {"error": {"message": MIN_P, "type": "BadRequestError", "param": None, "code": 400}}


def test_a_request_that_the_engine_refuses_in_the_stream_is_refused_as_without_one() -> None:
    stream = read([_sse(REFUSED)])
    for _ in range(2):
        with pytest.raises(SpecError, match=r"the engine refuses the request \(400\): The min_p") as caught:
            next(stream)
        assert caught.value.details["original_message"] == MIN_P


@pytest.mark.parametrize(
    "parts", [_sse(_delta("so far"), REFUSED), _sse({"error": {"message": "dead", "code": 500}})]
)
def test_an_error_after_output_or_of_the_engine_itself_is_a_stream_error(parts: bytes) -> None:
    with pytest.raises(StreamReportedError):
        list(read([parts]))


TWO = st.lists(st.sampled_from([0, 1]), min_size=2, max_size=12).filter(lambda order: 1 in order)


@given(order=TWO, positions=st.lists(st.integers(0, 2000), max_size=20))
def test_several_answers_are_never_one_text(order: list[int], positions: list[int]) -> None:
    """The first answer's text up to the other's beginning, then an error."""
    events = [{"choices": [{"index": index, "text": f"{index}"}]} for index in order]
    stream = read(cut_at(_sse(*events) + b"data: [DONE]\n\n", positions))
    with pytest.raises(StreamDamaged, match="several answers") as caught:
        list(stream)
    assert caught.value.partial_text == "0" * order.index(1)


def test_two_answers_in_one_event_are_never_one_text() -> None:
    both = [{"index": 0, "text": "a"}, {"index": 1, "text": "b"}]
    with pytest.raises(StreamDamaged, match="several answers"):
        list(read([_sse({"choices": both})]))
