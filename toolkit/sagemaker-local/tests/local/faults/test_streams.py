"""What each fault makes of an answer, for any answer and any parts, read back by botocore's decoder."""

from __future__ import annotations

import json
import random
from collections.abc import Iterable
from typing import Any

import pytest
from botocore.eventstream import EventStreamBuffer, ParserError
from hypothesis import given
from hypothesis import strategies as st

from sagemaker_local.faults import BareWire, EventStreamWire, Strike, parse, request_of
from sagemaker_local.faults.events import EventCount, events_of, first_event
from sagemaker_local.faults.stream import Cut, Send, Wait, transform

TEXTS = st.lists(st.text(min_size=1, max_size=30), min_size=1, max_size=8)
SEEDS = st.integers(0, 2**32)


def answer(texts: Iterable[str]) -> bytes:
    events = [json.dumps({"choices": [{"text": text}]}, ensure_ascii=False) for text in texts]
    return "".join(f"data: {event}\n\n" for event in [*events, "[DONE]"]).encode()


@st.composite
def answers(draw: st.DrawFn) -> tuple[bytes, list[bytes]]:
    """An answer, and the same bytes in the parts in which an engine's reads may bring them."""
    whole = answer(draw(TEXTS))
    cuts = sorted(draw(st.sets(st.integers(1, len(whole) - 1), max_size=8)))
    return whole, [whole[a:b] for a, b in zip([0, *cuts], [*cuts, len(whole)], strict=True)]


def struck(given: Iterable[bytes], wire: Any, kind: str, seed: int = 0, **options: Any) -> list[Any]:
    strike = Strike(parse({"kind": kind, **options}), random.Random(seed))
    of = transform(strike, wire)
    assert of is not None
    actions: list[Any] = []
    for part in given:
        actions += of.part(part)
        if any(isinstance(each, Cut) for each in actions):
            return actions
    return [*actions, *of.end()]


def sent(actions: Iterable[Any]) -> bytes:
    return b"".join(each.data for each in actions if isinstance(each, Send))


def payloads(wire_bytes: bytes) -> list[bytes]:
    buffer = EventStreamBuffer()
    buffer.add_data(wire_bytes)
    return [event.payload for event in buffer]


@given(answers(), SEEDS, st.sampled_from(["random", "bytes", "one"]))
def test_split_gives_the_same_bytes_in_other_parts(
    made: tuple[bytes, list[bytes]], seed: int, parts: str
) -> None:
    whole, given_parts = made
    result = payloads(sent(struck(given_parts, EventStreamWire(), "split", seed, parts=parts)))
    assert b"".join(result) == whole
    if parts == "one":
        assert len(result) == 1
    if parts == "bytes":
        assert {len(part) for part in result} == {1}


@given(answers())
def test_every_character_of_several_bytes_is_cut(made: tuple[bytes, list[bytes]]) -> None:
    whole, given_parts = made
    result = payloads(sent(struck(given_parts, EventStreamWire(), "utf8-split")))
    assert b"".join(result) == whole
    assert all(not any(byte >= 0xC0 for byte in part[:-1]) for part in result)


@given(answers(), st.integers(0, 12), SEEDS)
def test_a_cut_leaves_the_events_before_it_and_half_a_frame(
    made: tuple[bytes, list[bytes]], after: int, seed: int
) -> None:
    whole, given_parts = made
    actions = struck(given_parts, EventStreamWire(), "cut", seed, after_events=after)
    assert actions[-1] == Cut(clean=False)
    assert b"".join(payloads(sent(actions))) == EventCount(after).split(whole)[0]
    half = sent(actions[-2:-1])
    assert half
    assert payloads(half) == []


@given(answers(), st.integers(0, 12), SEEDS)
def test_a_cut_part_holds_the_beginning_of_an_event_and_no_more(
    made: tuple[bytes, list[bytes]], after: int, seed: int
) -> None:
    whole, given_parts = made
    actions = struck(given_parts, EventStreamWire(), "cut", seed, where="part", after_events=after)
    assert actions[-1] == Cut(clean=False)
    passed, rest = EventCount(after).split(whole)
    *_, half = payloads(sent(actions))
    assert b"".join(payloads(sent(actions))) == passed + half
    event = first_event(rest or b"") or b"data: {"
    assert event.startswith(half)
    assert b"\n" not in half
    assert half != event.rstrip()


@given(answers(), st.integers(1, 12))
def test_events_before_a_fault_come_in_a_part_each(made: tuple[bytes, list[bytes]], after: int) -> None:
    whole, _ = made
    result = payloads(sent(struck([whole], EventStreamWire(), "cut", where="event", after_events=after)))
    assert result == list(events_of(EventCount(after).split(whole)[0]))
    assert len(result) == min(after, whole.count(b"\n\n"))


@given(answers(), st.integers(1, 12), st.booleans())
def test_a_cut_between_events_sends_whole_frames_only(
    made: tuple[bytes, list[bytes]], after: int, clean: bool
) -> None:
    whole, given_parts = made
    options: dict[str, Any] = {"where": "event", "after_events": after, "clean": clean}
    actions = struck(given_parts, EventStreamWire(), "cut", **options)
    assert actions[-1] == Cut(clean=clean)
    assert b"".join(payloads(sent(actions))) == EventCount(after).split(whole)[0]


@given(answers(), st.integers(0, 12))
def test_a_stall_waits_once_and_loses_nothing(made: tuple[bytes, list[bytes]], after: int) -> None:
    whole, given_parts = made
    actions = struck(given_parts, EventStreamWire(), "stall", seconds=7.5, after_events=after)
    assert [each for each in actions if isinstance(each, Wait)] == [Wait(7.5)]
    assert b"".join(payloads(sent(actions))) == whole
    before = actions[: actions.index(Wait(7.5))]
    assert b"".join(payloads(sent(before))) == EventCount(after).split(whole)[0]


@given(answers(), st.integers(0, 12), st.sampled_from(["prelude", "message", "garbage"]), SEEDS)
def test_damage_is_noticed_by_a_decoder_that_checks(
    made: tuple[bytes, list[bytes]], after: int, where: str, seed: int
) -> None:
    whole, given_parts = made
    options: dict[str, Any] = {"where": where, "after_events": after}
    data = sent(struck(given_parts, EventStreamWire(), "corrupt", seed, **options))
    buffer = EventStreamBuffer()
    buffer.add_data(data)
    read: list[bytes] = []
    with pytest.raises(ParserError):
        read.extend(event.payload for event in buffer)
    assert b"".join(read) == EventCount(after).split(whole)[0]


@given(answers(), SEEDS)
def test_damage_to_bare_events_is_no_text_any_more(made: tuple[bytes, list[bytes]], seed: int) -> None:
    with pytest.raises(UnicodeDecodeError):
        sent(struck(made[1], BareWire(), "corrupt", seed)).decode()


@pytest.mark.parametrize(
    ("kind", "name", "members"),
    [
        ("stream-error", "ModelStreamError", {"Message": "m", "ErrorCode": "StreamBroken"}),
        ("internal-stream-failure", "InternalStreamFailure", {"Message": "m"}),
    ],
)
def test_an_exception_ends_the_stream_with_its_members(kind: str, name: str, members: dict[str, str]) -> None:
    actions = struck([answer("abc")], EventStreamWire(), kind, message="m", after_events=2)
    buffer = EventStreamBuffer()
    buffer.add_data(sent(actions))
    events: list[Any] = list(buffer)
    before, last = events[:-1], events[-1]
    assert b"".join(event.payload for event in before) == EventCount(2).split(answer("abc"))[0]
    assert last.headers[":exception-type"] == name
    assert json.loads(last.payload) == members
    assert actions[-1] == Cut(clean=True)


@given(answers(), st.integers(1, 12), st.booleans())
def test_events_are_counted_wherever_their_bytes_are_cut(
    made: tuple[bytes, list[bytes]], wanted: int, crlf: bool
) -> None:
    whole, parts = made
    if crlf:
        whole, parts = whole.replace(b"\n", b"\r\n"), [part.replace(b"\n", b"\r\n") for part in parts]
    end = b"\r\n\r\n" if crlf else b"\n\n"
    expected = end.join(whole.split(end)[:wanted]) + end if whole.count(end) >= wanted else whole
    count, got = EventCount(wanted), b""
    for part in parts:
        before, after = count.split(part)
        got += before
        if after is not None:
            break
    assert got == expected


@given(answers(), st.integers(0, 12))
def test_one_event_comes_twice_and_the_rest_as_it_is(made: tuple[bytes, list[bytes]], after: int) -> None:
    whole, given_parts = made
    events = list(events_of(whole))
    doubled = [event for at, event in enumerate(events) for _ in range(1 + (at == after))]
    assert sent(struck(given_parts, BareWire(), "draft-tokens", after_events=after)) == b"".join(doubled)


def without_format(raw: bytes) -> bytes:
    return request_of(Strike(parse({"kind": "no-format"}), random.Random(0)), raw)


def test_the_engine_gets_the_request_without_its_format() -> None:
    function = {"name": "a", "parameters": {}}
    request = {
        "messages": [],
        "response_format": {"type": "json_object"},
        "structured_outputs": {"regex": "a"},
        "tools": [{"type": "function", "function": {**function, "strict": True}}, 3],
        "tool_choice": "required",
    }
    got = json.loads(without_format(json.dumps(request).encode()))
    loose = [{"type": "function", "function": function}, 3]
    assert got == {"messages": [], "tools": loose, "tool_choice": "auto"}


@pytest.mark.parametrize("raw", [b"", b"no json", b"[1]", b"\xff", b"[" * 100_000])
def test_a_body_that_is_no_request_reaches_the_engine_as_it_is(raw: bytes) -> None:
    assert without_format(raw) == raw


def test_other_faults_leave_the_format_alone() -> None:
    raw = b'{"response_format": 1}'
    assert request_of(Strike(parse({"kind": "stall"}), random.Random(0)), raw) == request_of(None, raw) == raw
