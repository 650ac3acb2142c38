"""Tables of K by batch size: which are accepted, and what they mean."""

from __future__ import annotations

from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from peagle_sm.core.errors import SpecError
from peagle_sm.core.spec.editing import edit_spec
from peagle_sm.core.spec.endpoint_spec import dump_spec, parse_rows, parse_spec, table_text
from tests.core.strategies import json_values, k_tables

FIELD = "speculation.num_speculative_tokens_per_batch_size"
SPEC = "name: demo\nmodel: tiny-code\n"


def refused(table: Any) -> str:
    with pytest.raises(SpecError) as caught:
        edit_spec(SPEC, {FIELD: table})
    return caught.value.message


@pytest.mark.parametrize(
    ("table", "allowed"),
    [
        ([[1, 4, 7], [6, 8, 3]], "row 2 must begin with 5"),
        ([[1, 0, 7]], "rows whose second number is not below the first (row 1)"),
        ([[1, 4, -1]], "K of 0 or more (row 1)"),
        ([[1, 4]], "rows of three whole numbers [first, last, K] (row 1)"),
        ([[1, 4, "7"]], "rows of three whole numbers [first, last, K] (row 1)"),
        ([[1, 4, True]], "rows of three whole numbers [first, last, K] (row 1)"),
        ([[1, 4, 0]], "at least one row with K above 0; set mode: none to turn speculation off"),
        ([], "at least one row with K above 0; set mode: none to turn speculation off"),
        ("1-4: 7", "a list of rows [first, last, K], for example [[1, 4, 7], [5, 32, 3]]"),
    ],
)
def test_a_bad_table_is_refused_with_what_is_allowed(table: Any, allowed: str) -> None:
    message = refused(table)
    assert f"line 4: {FIELD}: found {table!r}; allowed: " in message
    assert allowed in message


@given(k_tables())
def test_a_table_is_written_into_a_spec_and_read_back(table: tuple[tuple[int, int, int], ...]) -> None:
    rows = [list(row) for row in table]
    written = edit_spec(SPEC, {FIELD: rows})
    spec = parse_spec(written)
    assert spec.speculation.num_speculative_tokens_per_batch_size == table
    assert parse_spec(dump_spec(spec)) == spec
    assert yaml.safe_load(dump_spec(spec))["speculation"][FIELD.partition(".")[2]] == rows


@given(k_tables(), st.data())
def test_a_gap_or_an_overlap_anywhere_is_refused(
    table: tuple[tuple[int, int, int], ...], data: st.DataObject
) -> None:
    at = data.draw(st.integers(0, len(table) - 1))
    shift = data.draw(st.integers(-3, 3).filter(bool))
    first, last, k = table[at]
    with pytest.raises(ValueError, match=rf"row {at + 1} must begin with {first}$"):
        parse_rows([*table[:at], (first + shift, max(last, first + shift), k), *table[at + 1 :]])


@given(json_values)
def test_no_value_breaks_the_reading(value: Any) -> None:
    try:
        rows = parse_rows(value)
    except ValueError:
        return
    assert rows[0][0] == 1
    assert any(k for *_, k in rows)


def test_a_table_on_one_line() -> None:
    assert table_text([(1, 4, 7), (5, 5, 3), (6, 32, 0)]) == "7 (1 to 4), 3 (5), 0 (6 and more)"
    assert table_text([(1, 9, 5)]) == "5 (1 and more)"
