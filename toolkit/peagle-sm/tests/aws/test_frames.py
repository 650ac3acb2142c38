"""Messages of an event stream: payloads with their times, damage, and exceptions with their code."""

from __future__ import annotations

from peagle_sm.aws.streams.framing import FrameDecoder, FrameException
from sagemaker_local.wire import eventstream


def test_a_payload_has_the_time_of_its_last_byte() -> None:
    data = eventstream.payload_part(b"one") + eventstream.payload_part(b"two")
    first = len(eventstream.payload_part(b"one"))
    parts = [(data[: first - 1], 1.0), (data[first - 1 : first + 5], 2.0), (data[first + 5 :], 3.0)]
    assert FrameDecoder().feed(parts) == ([(b"one", 2.0), (b"two", 3.0)], None)


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
