"""Response streams: whole ones give the engine's bytes, damaged and cut ones are errors."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Sequence

import pytest

from peagle_sm.aiperf.stream import check_end, payload_parts
from peagle_sm.core.errors import StreamError
from peagle_sm.local import eventstream

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


def event(reason: str | None) -> str:
    return json.dumps({"choices": [{"delta": {"content": "x"}, "finish_reason": reason}]})


@pytest.mark.parametrize("messages", [[event(None), "[DONE]"], [event(None), event("stop")]])
def test_a_stream_ends_by_its_marker_or_by_a_reason(messages: list[str]) -> None:
    check_end(messages)


@pytest.mark.parametrize("messages", [[], [event(None)], ["not json"], ['{"choices": 3}']])
def test_a_stream_that_just_stops_was_cut(messages: list[str]) -> None:
    with pytest.raises(StreamError, match="was cut"):
        check_end(messages)


def test_an_error_that_the_engine_reports_in_the_stream() -> None:
    with pytest.raises(StreamError, match="out of memory"):
        check_end([event(None), '{"error": {"message": "out of memory"}}', "[DONE]"])
