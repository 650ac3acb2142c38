"""Events keep the time of the part that completed them."""

from __future__ import annotations

import pytest

from peagle_bench.load.answer import TimedEvents
from peagle_sm.aws.streams.framing import EventTooLarge


def test_an_event_that_never_ends_is_refused() -> None:
    events = TimedEvents(max_event_bytes=100)
    for _ in range(6):
        assert events.feed([(b"data: 0123456789", 0.0)]) == []
    with pytest.raises(EventTooLarge):
        events.feed([(b"data: 0123456789", 0.0)])
