"""Mutated, cut, split and damaged streams; `scripts/fuzz` runs it.

Two levels. In the frames every change of bytes is found by a checksum, so the outcome is a typed error or the
exact answer. In the events a changed letter is another letter, which nobody can find; there the outcome is a
typed error or what a plain reading of the same bytes, all at once, gives.
"""

from __future__ import annotations

import json
import re
import sys
import time
from collections import Counter
from collections.abc import Callable

from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st

from sagemaker_local.wire import eventstream
from tests.aws.streams import NAMES, cut_at, events_of, framed, outcome, recorded

DEFAULT_S = 600.0
_BATCH = 400

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


def check_frames(name: str, changes: list[Change], cuts: Cuts) -> str:
    """Damage below the checksums: the exact answer, or a typed error after a beginning of it."""
    whole = outcome([framed(name)])
    result = outcome(parts_of(changed(framed(name), changes), cuts), frames=True)
    if result.error is None:
        assert result.answer == whole.answer
    elif not any(kind == "repeat" for kind, *_ in changes):  # a message that comes twice is no damage
        assert whole.text.startswith(result.text)
    return result.error or "exact"


def check_events(name: str, crlf: bool, changes: list[Change], cuts: Cuts) -> str:
    """Damage above the checksums, in sound messages cut anywhere."""
    data = changed(recorded(name).replace(b"\n", b"\r\n") if crlf else recorded(name), changes)
    parts = parts_of(data, cuts)
    result = outcome(parts, frames=False)
    wrapped = b"".join(map(eventstream.payload_part, parts))
    again = outcome(parts_of(wrapped, cuts), frames=True)
    assert (again.error, again.answer) == (result.error, result.answer)
    if result.error is None:
        assert (result.text, result.reasoning) == plain_reading(data)
    return result.error or "exact"


def check_shapes(name: str, place: int, value: object, cuts: Cuts) -> str:
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
    return result.error or "exact"


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


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=5,
)
_NAME = st.sampled_from(NAMES)


def run(seconds: float, say: Callable[[str], None], start: int = 0) -> Counter[str]:
    """Draw examples for ``seconds``; what does not hold is raised, made small by hypothesis.

    Each batch has a seed of its own, counted from ``start``, so that a failure can be repeated.
    """
    counter: Counter[str] = Counter()
    until = time.monotonic() + seconds
    number = start
    while time.monotonic() < until:
        for level, check, drawn in (
            ("frames", check_frames, (_NAME, _CHANGES, _CUTS)),
            ("events", check_events, (_NAME, st.booleans(), _CHANGES, _CUTS)),
            ("shapes", check_shapes, (_NAME, st.integers(0, 2**32 - 1), _JSON, _CUTS)),
        ):

            def example(*values: object, level: str = level, check: Callable[..., str] = check) -> None:
                if time.monotonic() < until + 30:  # shrinking may take a while, never for ever
                    counter[f"{level}: {check(*values)}"] += 1

            _drawn(example, drawn, number)
        number += 1
        say(f"{sum(counter.values()):,} streams, seed {number - 1}")
    return counter


def _drawn(example: Callable[..., None], drawn: tuple[st.SearchStrategy[object], ...], number: int) -> None:
    def test(values: tuple[object, ...]) -> None:
        example(*values)

    limited = settings(
        max_examples=_BATCH,
        deadline=None,
        database=None,
        derandomize=False,
        print_blob=True,
        phases=(Phase.generate, Phase.shrink),
        suppress_health_check=list(HealthCheck),
    )
    seed(number)(limited(given(st.tuples(*drawn))(test)))()


def main() -> None:
    """Fuzz for as many seconds as the first argument says, and print what came out."""
    words = sys.argv[1:]
    if len(words) > 1 or (words and not re.fullmatch(r"\d+(\.\d+)?", words[0])):
        sys.exit("usage: scripts/fuzz [SECONDS]; found: " + " ".join(words))
    seconds = float(words[0]) if words else DEFAULT_S
    result = run(seconds, lambda line: print(line, file=sys.stderr), start=int(time.time()))
    for kind, count in sorted(result.items()):
        print(f"{count:9,}  {kind}")
    print(f"{sum(result.values()):9,}  in {seconds:g} s, nothing but exact answers and typed errors")


if __name__ == "__main__":
    main()
