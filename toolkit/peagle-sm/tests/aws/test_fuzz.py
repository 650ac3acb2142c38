"""Mutated, cut, split and damaged streams: an exact answer or a typed error.

A checksum finds every change of bytes in the messages: the outcome is a typed error or the exact answer. No
reader can find a changed letter in the events: there it is a typed error or what a plain
reading of the same bytes gives.
"""

from __future__ import annotations

import json
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sagemaker_local.wire import eventstream
from tests.aws.streams import NAMES, cut_at, events_of, framed, outcome, recorded

Change = tuple[str, int, int, bytes]
_CHANGES = st.lists(
    st.tuples(
        st.sampled_from(["flip", "delete", "insert", "repeat", "truncate"]),
        st.integers(0, 2**32 - 1),
        st.integers(1, 64),
        st.one_of(
            st.binary(min_size=1, max_size=16),
            st.sampled_from(
                [
                    b"\r",
                    b"\n",
                    b"\r\n\r\n",
                    b"data: ",
                    b"data: [DONE]\n\n",
                    b'data: {"error": {"message": "x"}}\n\n',
                    b'data: {"choices": []}\n\n',
                    b"\xef\xbb\xbf",
                    b"\\ud83d",
                    b"null",
                    b"[[[[",
                    b"1e999",
                    b'"',
                    b"}",
                    b": ping\n\n",
                ]
            ),
        ),
    ),
    max_size=4,
)
#: Places to cut at, or every so many bytes.
_CUTS = st.one_of(st.lists(st.integers(0, 2**32 - 1), max_size=40), st.sampled_from([1, 7, 50, 200]))
Cuts = list[int] | int
_NAME = st.sampled_from(NAMES)
_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=5,
)


def changed(data: bytes, changes: list[Change]) -> bytes:
    """Carry out the changes, one after the other."""
    for kind, where, size, filling in changes:
        place = where % (len(data) + 1)
        if kind == "flip" and place < len(data):
            data = data[:place] + bytes([data[place] ^ filling[0] or 1]) + data[place + 1 :]
        elif kind == "delete":
            data = data[:place] + data[place + size :]
        elif kind == "insert":
            data = data[:place] + filling + data[place:]
        elif kind == "repeat":
            data = data[: place + size] + data[place:]
        elif kind == "truncate":
            data = data[:place]
    return data


def parts_of(data: bytes, cuts: Cuts) -> list[bytes]:
    """Cut the bytes."""
    if isinstance(cuts, int):
        return [data[n : n + cuts] for n in range(0, len(data), cuts)]
    return cut_at(data, cuts)


@given(name=_NAME, changes=_CHANGES, cuts=_CUTS)
def test_damage_below_the_checksums(name: str, changes: list[Change], cuts: Cuts) -> None:
    """Damage below the checksums: the exact answer, or a typed error after a beginning of it."""
    whole = outcome([framed(name)])
    result = outcome(parts_of(changed(framed(name), changes), cuts), frames=True)
    if result.error is None:
        assert result.answer == whole.answer
    elif not any(kind == "repeat" for kind, *_ in changes):  # a message that comes twice is no damage
        assert whole.text.startswith(result.text)


@given(name=_NAME, crlf=st.booleans(), changes=_CHANGES, cuts=_CUTS)
def test_damage_above_the_checksums(name: str, crlf: bool, changes: list[Change], cuts: Cuts) -> None:
    """Damage above the checksums, in sound messages cut anywhere."""
    data = changed(recorded(name).replace(b"\n", b"\r\n") if crlf else recorded(name), changes)
    parts = parts_of(data, cuts)
    result = outcome(parts, frames=False)
    wrapped = b"".join(map(eventstream.payload_part, parts))
    again = outcome(parts_of(wrapped, cuts), frames=True)
    assert (again.error, again.answer) == (result.error, result.answer)
    if result.error is None:
        assert (result.text, result.reasoning) == plain_reading(data)


@given(name=_NAME, place=st.integers(0, 2**32 - 1), value=_JSON, cuts=_CUTS)
def test_another_value_in_the_json_of_an_event(name: str, place: int, value: object, cuts: Cuts) -> None:
    """One value of one event's JSON is another: a typed error, or the text that a plain reading gives."""
    events = events_of(recorded(name))
    chosen = place % (len(events) - 1)
    document = json.loads(events[chosen][6:])
    _replace(document, place // len(events), value)
    events[chosen] = b"data: " + json.dumps(document).encode() + b"\n\n"
    data = b"".join(events)
    result = outcome(parts_of(data, cuts), frames=False)
    if result.error is None:
        assert (result.text, result.reasoning) == plain_reading(data)


def plain_reading(data: bytes) -> tuple[str, str]:
    """Text and thoughts, the simple way, from all bytes at once; the readers' work is not shared."""
    text = thoughts = ""
    for block in re.split(rb"(?:\r\n|\n|\r)(?:\r\n|\n|\r)+", data.removeprefix(b"\xef\xbb\xbf")):
        lines = re.split(rb"\r\n|\n|\r", block)
        event = b"\n".join(line[5:].removeprefix(b" ") for line in lines if line[:5] == b"data:").decode()
        if event.strip() == "[DONE]":
            break
        if not event:
            continue
        for choice in (json.loads(event).get("choices") or [])[:1]:
            message = choice if "text" in choice else choice.get("delta", choice.get("message"))
            thought = None if "text" in choice else message.get("reasoning")
            if thought is None and "text" not in choice:
                thought = message.get("reasoning_content")
            written = message["text"] if "text" in choice else message.get("content")
            assert {type(written), type(thought)} <= {str, type(None)}, "no text, and the reader took it"
            text += written or ""
            thoughts += thought or ""
    return text, thoughts


def _replace(document: object, number: int, value: object) -> None:
    """Put ``value`` in the place of the value of that number, counted through the whole document."""
    spots: list[tuple[dict[str, object] | list[object], str | int]] = []

    def walk(node: object) -> None:
        if isinstance(node, dict):
            for key in node:
                spots.append((node, key))
                walk(node[key])
        elif isinstance(node, list):
            for index, each in enumerate(node):
                spots.append((node, index))
                walk(each)

    walk(document)
    node, key = spots[number % len(spots)]
    node[key] = value  # type: ignore[index]  # the key is the node's own


@pytest.mark.parametrize("name", NAMES)
def test_the_plain_reading_is_right_on_whole_streams(name: str) -> None:
    whole = outcome([recorded(name)], frames=False)
    assert plain_reading(recorded(name)) == (whole.text, whole.reasoning)
    assert whole.text + whole.reasoning + str(whole.calls)
