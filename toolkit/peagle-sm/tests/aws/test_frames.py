"""Messages of an event stream: payloads with their times, damage, and exceptions with their code."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from peagle_sm.aws.streams.framing import FrameDecoder, FrameError, FrameException
from sagemaker_local.wire import eventstream


def _cut(data: bytes, places: list[int]) -> list[tuple[bytes, float]]:
    edges = [0, *sorted(place % (len(data) + 1) for place in places), len(data)]
    return [(data[a:b], float(n)) for n, (a, b) in enumerate(pairwise(edges))]


@given(
    payloads=st.lists(st.binary(max_size=60), max_size=8), places=st.lists(st.integers(0, 10**6), max_size=9)
)
def test_any_cuts_give_the_same_payloads(payloads: list[bytes], places: list[int]) -> None:
    data = b"".join(eventstream.payload_part(payload) for payload in payloads)
    decoder = FrameDecoder()
    rows = []
    for part in _cut(data, places):
        some, error = decoder.feed([part])
        assert error is None
        rows += some
    assert [payload for payload, _ in rows] == payloads
    assert decoder.is_whole


def test_a_payload_has_the_time_of_its_last_byte() -> None:
    data = eventstream.payload_part(b"one") + eventstream.payload_part(b"two")
    first = len(eventstream.payload_part(b"one"))
    parts = [(data[: first - 1], 1.0), (data[first - 1 : first + 5], 2.0), (data[first + 5 :], 3.0)]
    assert FrameDecoder().feed(parts) == ([(b"one", 2.0), (b"two", 3.0)], None)


@given(st.integers(0, 10**6), st.integers(1, 255))
def test_a_changed_byte_never_passes(place: int, change: int) -> None:
    data = bytearray(eventstream.payload_part(b'data: {"choices": []}'))
    data[place % len(data)] ^= change
    payloads, error = FrameDecoder().feed([(bytes(data), 0.0)])
    assert payloads == []
    assert isinstance(error, FrameError)


def test_an_exception_keeps_its_error_code_and_what_came_before_it() -> None:
    answer = {"Message": "gone", "ErrorCode": "StreamBroken"}
    data = eventstream.payload_part(b"before") + eventstream.exception("ModelStreamError", answer)
    payloads, error = FrameDecoder().feed([(data, 1.0)])
    assert payloads == [(b"before", 1.0)]
    assert isinstance(error, FrameException)
    assert (error.name, error.message) == ("ModelStreamError", "StreamBroken: gone")


def test_an_unmodelled_error_is_one_too() -> None:
    headers = (
        eventstream.header(":message-type", "error")
        + eventstream.header(":error-code", "InternalError")
        + eventstream.header(":error-message", "what happened")
    )
    _, error = FrameDecoder().feed([(eventstream.message(headers, b""), 0.0)])
    assert str(error) == "InternalError: what happened"
