"""The encoder against botocore's own decoder."""

from __future__ import annotations

import json

from botocore.eventstream import EventStreamBuffer
from hypothesis import given
from hypothesis import strategies as st

from sagemaker_local.wire import eventstream


@given(st.lists(st.binary(max_size=2000)), st.integers(1, 700))
def test_payload_parts_survive_any_split_of_the_bytes(chunks: list[bytes], size: int) -> None:
    wire = b"".join(eventstream.payload_part(chunk) for chunk in chunks)
    buffer = EventStreamBuffer()
    for start in range(0, len(wire), size):
        buffer.add_data(wire[start : start + size])
    events = list(buffer)
    assert [event.payload for event in events] == chunks
    headers = [event.to_response_dict()["headers"] for event in events]
    assert all(each[":event-type"] == "PayloadPart" for each in headers)


def test_an_exception_is_one_to_botocore() -> None:
    buffer = EventStreamBuffer()
    members = {"Message": "cut", "ErrorCode": "StreamBroken"}
    buffer.add_data(eventstream.exception("ModelStreamError", members))
    (event,) = buffer
    response = event.to_response_dict()
    assert response["status_code"] == 400
    assert response["headers"][":exception-type"] == "ModelStreamError"
    assert json.loads(response["body"]) == members
