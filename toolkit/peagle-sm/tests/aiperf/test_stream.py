"""Response streams: whole ones give the engine's bytes, damaged and cut ones are errors."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Sequence

import pytest

from peagle_sm.aiperf.protocol import AnswerCheck, payload_parts
from peagle_sm.core.errors import StreamError
from sagemaker_local.wire import eventstream

PARTS = [b'data: {"choices": []}\n\n', "naïve ".encode(), b"data: [DONE]\n\n"]
FRAMES = b"".join(map(eventstream.payload_part, PARTS))


async def chunks(data: Sequence[bytes]) -> AsyncIterator[bytes]:
    for one in data:
        yield one


async def decoded(*data: bytes) -> list[bytes]:
    return [part async for part in payload_parts(chunks(data))]


@pytest.mark.parametrize("size", [1, 7, 64, len(FRAMES)])
async def test_frames_are_put_together_however_they_arrive(size: int) -> None:
    pieces = [FRAMES[at : at + size] for at in range(0, len(FRAMES), size)]
    assert await decoded(*pieces) == PARTS


async def test_an_exception_frame_names_the_code_and_what_was_said() -> None:
    members = {"Message": "the model died", "ErrorCode": "StreamBroken"}
    frames = eventstream.payload_part(b"x") + eventstream.exception("ModelStreamError", members)
    with pytest.raises(StreamError, match="ModelStreamError: StreamBroken: the model died"):
        await decoded(frames)


async def test_a_stream_cut_within_a_frame() -> None:
    with pytest.raises(StreamError, match="cut within a frame"):
        await decoded(FRAMES[:-5])


async def test_a_damaged_frame() -> None:
    damaged = bytearray(FRAMES)
    damaged[-8] ^= 1
    with pytest.raises(StreamError, match="damaged"):
        await decoded(bytes(damaged))


def event(reason: str | None, index: int = 0) -> str:
    choice = {"index": index, "delta": {"content": "x"}, "finish_reason": reason}
    return json.dumps({"choices": [choice]})


def check(messages: Sequence[str], answers: int = 1) -> None:
    whole = AnswerCheck(answers)
    for message in messages:
        whole.take(message)
    whole.finish()


@pytest.mark.parametrize(
    "messages",
    [
        [event(None), "[DONE]"],
        [event(None), event("stop")],
        [event("stop"), '{"choices": [], "usage": {"completion_tokens": 1}}', "[DONE]"],
        ["", event("length"), "[DONE] ", "whatever follows"],
    ],
)
def test_a_stream_ends_by_its_marker_or_by_a_reason(messages: list[str]) -> None:
    check(messages)


@pytest.mark.parametrize("messages", [[], [event(None)], [event(None), event(None)]])
def test_a_stream_that_just_stops_was_cut(messages: list[str]) -> None:
    with pytest.raises(StreamError, match="was cut"):
        check(messages)


@pytest.mark.parametrize("answers", [1, 2])
@pytest.mark.parametrize("end", [[], ["[DONE]"]])
def test_one_answers_reason_does_not_finish_the_others(answers: int, end: list[str]) -> None:
    with pytest.raises(StreamError, match="1 of 2 answers have no finish reason"):
        check([event(None, 0), event(None, 1), event("stop", 0), *end], answers)
    check([event(None, 0), event("length", 1), event("stop", 0), *end], answers)


def test_an_answer_that_was_asked_for_and_never_began() -> None:
    with pytest.raises(StreamError, match="1 of 2 answers have no finish reason"):
        check([event("stop", 0)], 2)


@pytest.mark.parametrize(
    "error",
    [
        '{"error": {"message": "out of memory"}}',
        '{ "error": {"message": "out of memory"}}',
        '{"object": "error", "message": "out of memory", "code": 500}',
        '{"detail": "out of memory"}',
    ],
)
def test_an_error_that_the_engine_reports_in_the_stream(error: str) -> None:
    with pytest.raises(StreamError, match="out of memory"):
        check([event(None), error, "[DONE]"])


@pytest.mark.parametrize("reason", ["abort", "error"])
def test_an_answer_that_the_engine_gave_up_is_not_whole(reason: str) -> None:
    with pytest.raises(StreamError, match=f"aborted the answer: finish_reason '{reason}'"):
        check([event(None), event(reason), "[DONE]"])


@pytest.mark.parametrize("message", ["not json", '{"choices": 3}', '{"id": 1}', "[1]", '{"choices": [1]}'])
def test_what_is_no_event_of_an_answer_is_an_error(message: str) -> None:
    with pytest.raises(StreamError, match="not a completion"):
        check([event("stop"), message, "[DONE]"])
