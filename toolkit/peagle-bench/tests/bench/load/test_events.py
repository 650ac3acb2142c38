"""Events keep the time of the part that completed them."""

from __future__ import annotations

import pytest

from peagle_bench.load.answer import TimedEvents
from peagle_sm.aws.streams.framing import EventTooLarge


def test_an_event_has_the_time_of_its_last_byte() -> None:
    events = TimedEvents()
    parts = [(b"data: a\n\nda", 1.0), (b"ta: b\n", 2.0), (b"\ndata: c", 3.0)]
    assert events.feed(parts) == [(b"a", 1.0), (b"b", 3.0)]
    assert events.finish(9.0) == [(b"c", 9.0)]


def test_an_event_that_never_ends_is_refused() -> None:
    events = TimedEvents(max_event_bytes=100)
    for _ in range(6):
        assert events.feed([(b"data: 0123456789", 0.0)]) == []
    with pytest.raises(EventTooLarge):
        events.feed([(b"data: 0123456789", 0.0)])
