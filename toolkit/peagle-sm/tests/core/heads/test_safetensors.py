"""No header, whatever it holds, is taken that the format would not take; and no other error comes of one."""

from __future__ import annotations

import itertools
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from peagle_sm.core.heads.weights import BITS, HeaderFault, header_length, parse_header
from tests.heads import filled, safetensors, with_header

BYTE_WISE = sorted(dtype for dtype, bits in BITS.items() if bits % 8 == 0)
SHAPES = st.lists(st.integers(0, 4), max_size=3).map(tuple)
TENSORS = st.dictionaries(
    st.text(min_size=1, max_size=8).filter(lambda name: name != "__metadata__"),
    st.tuples(st.sampled_from(BYTE_WISE), SHAPES),
    max_size=5,
)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=10,
)
ENTRY: dict[str, Any] = {"dtype": "U8", "shape": [2], "data_offsets": [0, 2]}


def read(data: bytes) -> dict[str, Any]:
    length = header_length(data[:8], len(data), "x")
    return dict(parse_header(data[8 : 8 + length], len(data), "x"))


@given(TENSORS)
def test_what_was_written_is_read(tensors: dict[str, tuple[str, tuple[int, ...]]]) -> None:
    written = {name: filled(shape, dtype) for name, (dtype, shape) in tensors.items()}
    result = read(safetensors(written))
    assert {name: (each.dtype, each.shape) for name, each in result.items()} == tensors


@given(TENSORS, st.data())
def test_a_file_that_was_cut_anywhere_is_refused(tensors: dict[str, Any], data: st.DataObject) -> None:
    whole = safetensors({name: filled(shape, dtype) for name, (dtype, shape) in tensors.items()})
    with pytest.raises(HeaderFault):
        read(whole[: data.draw(st.integers(0, len(whole) - 1))])


ODD = st.dictionaries(st.sampled_from(["dtype", "shape", "data_offsets"]), JSON).map(
    lambda odd: {**ENTRY, **odd}
)


@given(st.dictionaries(st.text(max_size=5), JSON | ODD, max_size=3), st.binary(max_size=8))
def test_a_strange_header_is_refused_or_covers_its_file(header: dict[str, Any], data: bytes) -> None:
    try:
        result = read(with_header(header, data))
    except HeaderFault:
        return
    spans = sorted((each.start, each.end) for each in result.values())
    assert sum(end - start for start, end in spans) == len(data)
    assert all(before[1] == after[0] for before, after in itertools.pairwise(spans))


@given(st.binary(max_size=40))
def test_any_bytes_at_all(data: bytes) -> None:
    try:
        read(data)
    except HeaderFault:
        return
    assert data[8:].startswith(b"{")


def entries(*spans: tuple[int, int]) -> dict[str, Any]:
    return {
        f"t{n}": {"dtype": "U8", "shape": [b - a], "data_offsets": [a, b]} for n, (a, b) in enumerate(spans)
    }


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (with_header(entries((0, 4), (2, 6)), bytes(6)), "x: t1 overlaps t0"),
        (with_header(entries((0, 2), (3, 5)), bytes(5)), "x: 1 bytes between t0 and t1 belong to no tensor"),
        (with_header(entries((1, 3)), bytes(3)), "x: 1 bytes between the header and t0 belong to no tensor"),
        (with_header(entries((0, 2)), bytes(5)), "x: 3 bytes after t0 belong to no tensor"),
        (with_header(entries((0, 9)), bytes(5)), "but its header needs"),
        (with_header({"a": {**ENTRY, "shape": [3]}}, bytes(2)), "x: a is 3 of U8, 3 bytes"),
        (with_header({"a": {**ENTRY, "shape": [2**62, 2**62]}}, bytes(2)), "but its offsets span 2"),
        (with_header({"a": {**ENTRY, "shape": [True]}}, bytes(2)), "must be at most"),
        (with_header({"a": {**ENTRY, "shape": [1] * 99}}, bytes(2)), "must be at most"),
        (with_header({"a": {**ENTRY, "data_offsets": [2, 0]}}, bytes(2)), "two ascending whole numbers"),
        (with_header({"a": {**ENTRY, "dtype": "C128"}}, bytes(2)), "dtype 'C128'"),
        (with_header({"__metadata__": {"a": 1}}, b""), "__metadata__ is not a mapping of text to text"),
        (with_header(b'{"a": 1, "a": 2}', b""), "'a' occurs twice in the header"),
        (with_header(b'{"a": ' + b"[" * 100_000, b""), "has no safetensors header"),
        (with_header(b"[]", b""), "does not start with a brace"),
        (with_header(b"{\xff}", b""), "has no safetensors header"),
        (b"<html>not found</html>", "cut short or not a safetensors file"),
    ],
    ids=range(17),
)
def test_each_rule_of_the_format(data: bytes, message: str) -> None:
    with pytest.raises(HeaderFault, match="x") as caught:
        read(data)
    assert message in str(caught.value)


def test_a_huge_header_is_refused_before_it_is_read() -> None:
    with pytest.raises(HeaderFault, match="has a header of 200000000 bytes; allowed: at most 100000000"):
        header_length((200_000_000).to_bytes(8, "little"), 10**12, "x")


def test_blanks_behind_the_header_are_the_formats_own() -> None:
    text = json.dumps({"a": ENTRY}).encode() + b"    "
    assert set(read(with_header(text, bytes(2)))) == {"a"}
