"""Records and targets for the tests of recorded traffic."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from hypothesis import strategies as st

from peagle_sm.traffic.records import RecordedAnswer, RecordedCall, RecordedUsage, TrafficRecord, to_line

CHAT = {"messages": [{"role": "user", "content": "hello"}], "max_tokens": 8}
ANSWER = b'data: {"choices": [{"index": 0, "text": "hi", "finish_reason": "stop"}]}\n\ndata: [DONE]\n\n'


def record(number: int = 0, **fields: Any) -> TrafficRecord:
    usual: dict[str, Any] = {"id": f"{number:032x}", "time": 1.0e9, "endpoint": "e", "request": CHAT}
    return TrafficRecord(**usual | fields)


def line(number: int = 0, **fields: Any) -> bytes:
    return to_line(record(number, **fields)).encode() + b"\n"


_TEXT = st.text(max_size=20)
_COUNT = st.integers(0, 10**6)
_JSON: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers(-(10**9), 10**9) | _TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_TEXT, inner, max_size=3),
    max_leaves=8,
)
RECORDS = st.builds(
    TrafficRecord,
    id=st.text("0123456789abcdef", min_size=32, max_size=32),
    time=st.floats(0, 4e9),
    endpoint=_TEXT,
    request=st.dictionaries(_TEXT, _JSON, max_size=4),
    mode=st.sampled_from(("none", "eagle3", "p-eagle", "unknown")),
    streamed=st.booleans(),
    answers=st.lists(
        st.builds(
            RecordedAnswer,
            _COUNT,
            _TEXT,
            st.none() | _TEXT,
            _TEXT,
            st.lists(st.builds(RecordedCall, _TEXT, _TEXT, _TEXT), max_size=2).map(tuple),
        ),
        max_size=3,
    ).map(tuple),
    outcome=st.sampled_from(("whole", "cut", "cancelled", "failed")),
    error=st.none() | _TEXT,
    status=st.none() | st.integers(400, 599),
    usage=st.none() | st.builds(RecordedUsage, st.none() | _COUNT, st.none() | _COUNT),
    slices=st.dictionaries(_TEXT, _TEXT, max_size=3),
    drafts=st.none() | _COUNT,
    drafted=st.none() | _COUNT,
    accepted=st.none() | _COUNT,
    histogram=st.lists(_COUNT, max_size=8).map(tuple),
    redacted=st.dictionaries(_TEXT, _COUNT, max_size=3),
    sample=st.floats(0.001, 1),
)


class Kept:
    """A target in memory that can refuse."""

    def __init__(self) -> None:
        self.lines: list[bytes] = []
        self.refusal: Exception | None = None

    def write(self, lines: Sequence[bytes]) -> None:
        if self.refusal is not None:
            raise self.refusal
        self.lines += lines

    def tick(self) -> None:
        pass

    def close(self) -> None:
        pass

    def describe(self) -> str:
        return "memory"

    def documents(self) -> list[Any]:
        return [json.loads(line) for line in self.lines]
