"""JumpStart's manifest: rows and versions."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from peagle_sm.core.errors import NotFound
from peagle_sm.core.jumpstart.documents import (
    CatalogueDamaged,
    Row,
    order_of,
    parse_manifest,
    row_of,
)
from tests.core.strategies import json_values


def row(model_id: str, version: str = "1.0.0") -> Row:
    return Row(model_id=model_id, version=version, min_version="2.0.0", spec_key=f"{model_id}/{version}.json")


ROWS = (
    row("openai-reasoning-gpt-oss-20b", "3.9.0"),
    row("openai-reasoning-gpt-oss-20b", "3.38.0"),
    row("openai-reasoning-gpt-oss-20b", "3.4.12"),
    row("huggingface-llm-qwen3-coder-30b-a3b-instruct-fp8"),
    row("huggingface-llm-qwen3-32b"),
    row("meta-textgeneration-llama-2-7b"),
)


def test_the_newest_version_is_the_highest_and_not_the_last_in_the_alphabet() -> None:
    assert row_of(ROWS, "openai-reasoning-gpt-oss-20b").version == "3.38.0"
    assert row_of(ROWS, "openai-reasoning-gpt-oss-20b", "3.9.0").version == "3.9.0"


def test_what_is_not_there_is_told_with_what_is() -> None:
    with pytest.raises(NotFound, match="Did you mean 'openai-reasoning-gpt-oss-20b'"):
        row_of(ROWS, "openai-reasoning-gpt-oss-20")
    with pytest.raises(NotFound, match=r"has version 3\.1\.0 .* it has 3\.4\.12, 3\.9\.0, 3\.38\.0"):
        row_of(ROWS, "openai-reasoning-gpt-oss-20b", "3.1.0")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (b"\xff", "not UTF-8"),
        (b"[{]", "not JSON at line 1, column 3"),
        (b"{}", "found {}; allowed: a list of rows"),
        (b"[[]]", "row 1: the whole: found []"),
        (b'[{"model_id": "m", "version": "1"}]', "row 1:\n  field 'min_version' is missing"),
        (
            b'[{"model_id": "m", "version": 1.0, "min_version": "2", "spec_key": "k"}]',
            "row 1: version: found 1.0; allowed: a text",
        ),
    ],
)
def test_a_damaged_manifest_is_told_with_the_place(text: bytes, said: str) -> None:
    with pytest.raises(CatalogueDamaged) as caught:
        parse_manifest(text)
    assert said in caught.value.message
    assert caught.value.next_step
    assert caught.value.exit_code == 6


@given(json_values)
def test_any_json_is_read_or_told_to_be_damaged(value: Any) -> None:
    try:
        rows = parse_manifest(json.dumps(value).encode())
    except CatalogueDamaged:
        return
    assert isinstance(rows, tuple)


@given(
    st.lists(st.integers(0, 99), min_size=1, max_size=4), st.lists(st.integers(0, 99), min_size=1, max_size=4)
)
def test_versions_are_ordered_by_their_numbers(left: list[int], right: list[int]) -> None:
    one, other = (".".join(map(str, numbers)) for numbers in (left, right))
    assert (order_of(one)[0] < order_of(other)[0]) == (tuple(left) < tuple(right))
