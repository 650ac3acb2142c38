"""Events cut out of many parts at a time are those of the reader that goes byte by byte."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from peagle_sm.aws.sse import EventTooLarge, SseParser
from peagle_sm.measure.load.events import TimedEvents

_PIECES = st.sampled_from(
    [
        b"data: x",
        b"data:y",
        b"data",
        b": note",
        b"id: 7",
        b"\n",
        b"\n\n",
        b"\r\n",
        b"\r",
        b"data: \xc3",
        b"\xa4",
    ]
)


@given(
    pieces=st.lists(_PIECES, max_size=14),
    places=st.lists(st.integers(0, 10**6), max_size=8),
    batch=st.integers(1, 4),
)
def test_any_cuts_give_the_events_and_times_of_the_careful_reader(
    pieces: list[bytes], places: list[int], batch: int
) -> None:
    data = b"".join(pieces)
    edges = [0, *sorted(place % (len(data) + 1) for place in places), len(data)]
    parts = [(data[a:b], float(n)) for n, (a, b) in enumerate(pairwise(edges))]
    careful = SseParser()
    expected = [(event, at) for part, at in parts for event in careful.feed(part)]
    events = TimedEvents()
    found = [one for n in range(0, len(parts), batch) for one in events.feed(parts[n : n + batch])]
    assert found == expected
    assert [event for event, _ in events.finish(9.0)] == careful.finish()


def test_an_event_that_never_ends_is_refused() -> None:
    events = TimedEvents(max_event_bytes=100)
    for _ in range(6):
        assert events.feed([(b"data: 0123456789", 0.0)]) == []
    with pytest.raises(EventTooLarge):
        events.feed([(b"data: 0123456789", 0.0)])
