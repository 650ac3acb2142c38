"""Frames off, events whole and to the byte, wherever the stream is cut."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from peagle_sm.local import eventstream
from peagle_sm.service.serving.relay import Relay


def event(text: str = "", **more: object) -> bytes:
    said = {"choices": [{"index": 0, "delta": {"content": text}, **more}]}
    return f"data: {json.dumps(said, ensure_ascii=False)}\n\n".encode()


USAGE = b'data: {"choices": [], "usage": {"completion_tokens": 3}}\n\n'
SSE = event("hé") + event("\u2028l") + event("lo", finish_reason="stop") + USAGE + b"data: [DONE]\n\n"
ENDINGS = [SSE, SSE.replace(b"\n", b"\r\n"), SSE.replace(b"\n", b"\r"), b": ping\n\n" + SSE]


def pieces(data: bytes, places: list[int]) -> list[bytes]:
    ends = sorted({place % (len(data) + 1) for place in places})
    return [data[a:b] for a, b in zip([0, *ends], [*ends, len(data)], strict=True)]


def relayed(parts: list[bytes], *, framed: bool = True) -> tuple[bytes, Relay]:
    relay = Relay(framed=framed)
    passed = b"".join(relay.feed(part) for part in parts)
    return passed + relay.finish(), relay


@given(st.sampled_from(ENDINGS), st.lists(st.integers(0, 2000)), st.lists(st.integers(0, 5000)))
def test_a_whole_stream_passes_to_the_byte(sse: bytes, inner: list[int], outer: list[int]) -> None:
    frames = b"".join(eventstream.payload_part(part) for part in pieces(sse, inner))
    passed, relay = relayed(pieces(frames, outer))
    assert passed == sse
    assert relay.problem is None
    assert relay.tokens == 3


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
        assert relay.problem == "the stream ended before the answer did"
        assert not passed or passed.endswith((blank, b"\r\n\r"))
        assert b"[DONE]" not in passed


def test_an_exception_of_sagemaker_s_ends_it_after_what_came() -> None:
    broken = eventstream.exception("ModelStreamError", {"Message": "gone", "ErrorCode": "StreamBroken"})
    half = event("b")[:9]
    passed, relay = relayed([eventstream.payload_part(event("a") + half) + broken])
    assert passed == event("a")
    assert relay.problem is not None
    assert "StreamBroken" in relay.problem


def test_a_bad_checksum_ends_it() -> None:
    frame = bytearray(eventstream.payload_part(event("b")))
    frame[-5] ^= 1
    passed, relay = relayed([eventstream.payload_part(event("a")) + bytes(frame)])
    assert passed == event("a")
    assert relay.problem is not None
    assert "checksum" in relay.problem


def test_an_engine_s_own_error_passes_and_the_done_after_it_does_not() -> None:
    told = b'data: {"error": {"message": "out of memory"}}\n\n'
    passed, relay = relayed([eventstream.payload_part(event("a") + told + b"data: [DONE]\n\n")])
    assert passed == event("a") + told
    assert relay.reported
    assert relay.problem == "the engine reported an error: out of memory"


@pytest.mark.parametrize("bad", [b"data: {half\n\n", b"data: 7\n\n", b"data: \xff\n\n"])
def test_an_event_that_is_none_does_not_pass(bad: bytes) -> None:
    passed, relay = relayed([event("a") + bad + event("b")], framed=False)
    assert passed == event("a")
    assert relay.problem is not None
    assert "damaged" in relay.problem


def test_an_event_without_end_is_not_kept_for_ever() -> None:
    relay = Relay(framed=False, max_event_bytes=100)
    assert relay.feed(b"data: " + b"x" * 200) == b""
    assert relay.problem is not None
    assert "larger than 100 bytes" in relay.problem


def test_the_acceptance_length_is_read_where_vllm_tells_it() -> None:
    told = {
        "acceptance_histogram": [1, 1, 2],
        "mean_acceptance_length": 2.25,
        "num_spec_steps": 4,
        "num_draft_tokens": 8,
        "num_accepted_draft_tokens": 5,
        "num_spec_tokens": 2,
    }
    usage = {"choices": [], "usage": {"completion_tokens": 9, "metrics": {"speculative_decoding": told}}}
    data = event("a", finish_reason="stop") + f"data: {json.dumps(usage)}\n\n".encode() + b"data: [DONE]\n\n"
    _, relay = relayed([data], framed=False)
    assert (relay.tokens, relay.acceptance_length) == (9, 2.25)
