"""Frames off, events whole and to the byte, wherever the stream is cut."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from peagle_sm.core.errors import StreamCut, StreamDamaged, StreamReportedError
from peagle_sm.service.serving.upstream import Relay
from sagemaker_local.wire import eventstream


def event(text: str = "", **more: object) -> bytes:
    answer = {"choices": [{"index": 0, "delta": {"content": text}, **more}]}
    return f"data: {json.dumps(answer, ensure_ascii=False)}\n\n".encode()


USAGE = b'data: {"choices": [], "usage": {"completion_tokens": 3}}\n\n'
SSE = event("hé") + event("\u2028l") + event("lo", finish_reason="stop") + USAGE + b"data: [DONE]\n\n"
ENDINGS = [SSE, SSE.replace(b"\n", b"\r\n"), SSE.replace(b"\n", b"\r"), b": ping\n\n" + SSE]


def pieces(data: bytes, places: list[int]) -> list[bytes]:
    ends = sorted({place % (len(data) + 1) for place in places})
    return [data[a:b] for a, b in zip([0, *ends], [*ends, len(data)], strict=True)]


def relayed(parts: list[bytes], *, framed: bool = True, answers: int = 1) -> tuple[bytes, Relay]:
    relay = Relay(framed=framed, answers=answers)
    passed = b"".join(relay.feed(part) for part in parts)
    return passed + relay.finish(), relay


def said(relay: Relay) -> str:
    assert relay.problem is not None
    return relay.problem.message


@given(st.sampled_from(ENDINGS), st.lists(st.integers(0, 2000)), st.lists(st.integers(0, 5000)))
def test_a_whole_stream_passes_to_the_byte(sse: bytes, inner: list[int], outer: list[int]) -> None:
    frames = b"".join(eventstream.payload_part(part) for part in pieces(sse, inner))
    passed, relay = relayed(pieces(frames, outer))
    assert passed == sse
    assert relay.problem is None
    assert relay.tokens == 3


@given(st.sampled_from([*ENDINGS, SSE.removesuffix(b"\n\ndata: [DONE]\n\n")]), st.lists(st.integers(0, 2000)))
def test_the_usage_is_read_and_not_passed_to_a_client_that_did_not_ask(sse: bytes, places: list[int]) -> None:
    relay = Relay(framed=False, hides_usage=True)
    passed = b"".join(relay.feed(part) for part in pieces(sse, places)) + relay.finish()
    assert (relay.problem, relay.tokens, b"usage" in passed) == (None, 3, False)
    others = [line for line in sse.splitlines() if line and b"usage" not in line]
    assert [line for line in passed.splitlines() if line] == others


@given(st.sampled_from(ENDINGS[:3]), st.integers(0, 2000), st.lists(st.integers(0, 2000)))
def test_a_cut_stream_passes_whole_events_and_says_that_it_was_cut(
    sse: bytes, at: int, places: list[int]
) -> None:
    cut = sse[: at % len(sse)]
    passed, relay = relayed(pieces(cut, places), framed=False)
    assert sse.startswith(passed)
    blank = sse[-2:] if b"\r\n" not in sse else b"\r\n\r\n"
    if relay.problem is None:  # the answer was there, and lacked at most its formal end
        assert b'"finish_reason": "stop"' in passed
    else:
        assert isinstance(relay.problem, StreamCut)
        assert not passed or passed.endswith((blank, b"\r\n\r"))
        assert b"[DONE]" not in passed


def test_an_exception_of_sagemaker_s_ends_it_after_what_came() -> None:
    broken = eventstream.exception("ModelStreamError", {"Message": "gone", "ErrorCode": "StreamBroken"})
    half = event("b")[:9]
    passed, relay = relayed([eventstream.payload_part(event("a") + half) + broken])
    assert passed == event("a")
    assert "StreamBroken" in said(relay)


def test_a_bad_checksum_ends_it() -> None:
    frame = bytearray(eventstream.payload_part(event("b")))
    frame[-5] ^= 1
    passed, relay = relayed([eventstream.payload_part(event("a")) + bytes(frame)])
    assert passed == event("a")
    assert "Checksum" in said(relay)


@pytest.mark.parametrize(
    "document",
    [
        {"error": {"message": "out of memory", "code": 507}},
        {"error": "out of memory"},
        {"object": "error", "message": "out of memory", "code": 507},
        {"detail": "out of memory"},
    ],
)
@pytest.mark.parametrize("blank", [b"\n\n", b""])
def test_every_form_of_an_engine_s_error_ends_it(document: dict[str, object], blank: bytes) -> None:
    data = event("a") + b"data: " + json.dumps(document).encode() + blank
    passed, relay = relayed([eventstream.payload_part(data + b"data: [DONE]\n\n" * bool(blank))])
    assert passed == event("a")
    assert isinstance(relay.problem, StreamReportedError)
    assert relay.problem.details["engine_error"]["message"] == "out of memory"


@pytest.mark.parametrize("reason", ["abort", "error"])
def test_an_answer_that_the_engine_gave_up_is_not_whole(reason: str) -> None:
    passed, relay = relayed(
        [event("a") + event("b", finish_reason=reason) + b"data: [DONE]\n\n"], framed=False
    )
    assert passed == event("a")
    assert f"finish_reason '{reason}'" in said(relay)
    assert not relay.is_answer


def of_answer(index: int, **more: object) -> bytes:
    return f"data: {json.dumps({'choices': [{'index': index, 'text': 'x', **more}]})}\n\n".encode()


@given(st.integers(2, 4), st.data())
def test_a_stream_of_several_answers_is_whole_when_each_has_its_end(count: int, data: st.DataObject) -> None:
    """Cut anywhere before the last finish_reason it is an error, although other answers have theirs."""
    ends = [of_answer(index, finish_reason="stop") for index in data.draw(st.permutations(range(count)))]
    texts = [of_answer(index) for index in data.draw(st.lists(st.integers(0, count - 1)))]
    sse = b"".join(texts + ends)
    at = data.draw(st.integers(0, len(sse)))
    inner = data.draw(st.lists(st.integers(0, 2000), max_size=8))
    frames = b"".join(eventstream.payload_part(part) for part in pieces(sse[:at], inner))
    passed, relay = relayed([frames], answers=count)
    assert sse.startswith(passed)
    if at < len(sse) - 2:
        assert isinstance(relay.problem, StreamCut)
        assert not relay.is_answer
    else:  # at most the last blank line is missing
        assert relay.problem is None
        assert relay.is_answer
        assert passed == sse[:at]


def test_done_does_not_stand_for_an_answer_that_lacks_its_end() -> None:
    data = of_answer(0, finish_reason="stop") + of_answer(1) + b"data: [DONE]\n\n"
    passed, relay = relayed([data], framed=False, answers=2)
    assert b"[DONE]" not in passed
    assert "before the finish_reason of answer 1" in said(relay)


def test_an_engine_that_ignores_stream_ends_it() -> None:
    whole = {"object": "text_completion", "choices": [{"index": 0, "text": "a", "finish_reason": "stop"}]}
    passed, relay = relayed([eventstream.payload_part(json.dumps(whole).encode())])
    assert passed == b""
    assert "ignored `stream`" in said(relay)


@pytest.mark.parametrize("bad", [b"data: {half\n\n", b"data: 7\n\n", b"data: \xff\n\n"])
def test_an_event_that_is_none_does_not_pass(bad: bytes) -> None:
    passed, relay = relayed([event("a") + bad + event("b")], framed=False)
    assert passed == event("a")
    assert isinstance(relay.problem, StreamDamaged)


def test_an_event_without_end_is_not_kept_for_ever() -> None:
    relay = Relay(framed=False, max_event_bytes=100)
    assert relay.feed(b"data: " + b"x" * 200) == b""
    assert "larger than 100 bytes" in said(relay)


def test_the_acceptance_length_is_read_where_vllm_tells_it() -> None:
    answer = {
        "acceptance_histogram": [1, 1, 2],
        "mean_acceptance_length": 2.25,
        "num_spec_steps": 4,
        "num_draft_tokens": 8,
        "num_accepted_draft_tokens": 5,
        "num_spec_tokens": 2,
    }
    usage = {"choices": [], "usage": {"completion_tokens": 9, "metrics": {"speculative_decoding": answer}}}
    data = event("a", finish_reason="stop") + f"data: {json.dumps(usage)}\n\n".encode() + b"data: [DONE]\n\n"
    _, relay = relayed([data], framed=False)
    assert (relay.tokens, relay.acceptance_length) == (9, 2.25)
