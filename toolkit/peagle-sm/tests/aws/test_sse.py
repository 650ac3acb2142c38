"""Bytes cut anywhere give the same events."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from peagle_sm.aws.streams.framing import EventTooLarge, SseError, SseParser, StrangeLine
from tests.aws.streams import cut_at

PIECES = st.sampled_from(
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
        b"data: whole\n\n",
    ]
)
TEXTS = st.text(st.characters(exclude_characters="\r\n", codec="utf-8"), min_size=1)


def _events(parts: list[bytes]) -> list[bytes]:
    """The events, and last the kind of error that ended them, if one did."""
    parser = SseParser()
    rows: list[bytes] = []
    try:
        for part in parts:
            rows += parser.feed(part)
        return rows + parser.finish()
    except SseError as error:
        return [*rows, *error.events, type(error).__name__.encode()]


@given(
    texts=st.lists(TEXTS),
    end=st.sampled_from(["\n", "\r\n", "\r"]),
    positions=st.lists(st.integers(0, 10_000), max_size=30),
)
def test_any_text_any_line_end_any_cut(texts: list[str], end: str, positions: list[int]) -> None:
    data = "".join(f"data: {text}{end}{end}" for text in texts).encode()
    assert _events(cut_at(data, positions)) == [text.encode() for text in texts]


@given(st.binary(max_size=200), st.lists(st.integers(0, 300), max_size=20))
def test_cuts_change_nothing_whatever_the_bytes(data: bytes, positions: list[int]) -> None:
    assert _events(cut_at(data, positions)) == _events([data])


@given(st.lists(PIECES, max_size=14))
def test_the_short_way_gives_what_byte_by_byte_gives(pieces: list[bytes]) -> None:
    data = b"".join(pieces)
    assert _events(pieces) == _events([data[n : n + 1] for n in range(len(data))])


def test_comments_other_fields_and_several_data_lines() -> None:
    data = b": keep-alive\n\nevent: x\nid: 1\ndata: a\ndata:b\ndata:  c\n\n"
    assert _events([data]) == [b"a\nb\n c"]


def test_an_event_that_never_ends_is_dropped() -> None:
    parser = SseParser(max_event_bytes=1000)
    parser.feed(b"data: " + b"x" * 900)
    with pytest.raises(EventTooLarge, match="1,000 bytes"):
        parser.feed(b"x" * 200)


@pytest.mark.parametrize("line", [b"dXta: {}", b"{}", b"dat", b"\x00"])
def test_a_line_of_no_field_is_not_dropped_in_silence(line: bytes) -> None:
    parser = SseParser()
    with pytest.raises(StrangeLine) as caught:
        parser.feed(b"data: a\n\n" + line + b"\n\ndata: b\n\n")
    assert caught.value.events == (b"a",)


def test_a_mark_of_byte_order_and_events_without_data_are_nothing() -> None:
    data = b"\xef\xbb\xbfdata: a\n\ndata: \n\ndata:\n\n: x\n\ndata: b\n\n"
    for size in (1, 3, len(data)):
        assert _events([data[n : n + size] for n in range(0, len(data), size)]) == [b"a", b"b"]
